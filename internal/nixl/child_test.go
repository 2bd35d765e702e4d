package nixl

const childVariable = "PD_ROUTER_NIXL_TEST_CHILD"

func child() {}
