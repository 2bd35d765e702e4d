//go:build cgo && linux

package nixl

// #cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
// #cgo LDFLAGS: -ldl
// #include "bridge.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// prefix begins the names of all functions of the library.
const prefix = "nixl_capi_"

// The version of the C interface that this package was written for. Before 1.0 a minor version may break (spec 1.1).
const knownMajor, knownMinor = 0, 1

// open loads one candidate, binds its functions and decides how to talk to it. An error that wraps ErrUnsupported means that the library
// is there but cannot be used; any other means that it could not be loaded.
func open(path string) (driver, Info, error) {
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	var text [1024]C.char
	lib := C.nx_dlopen(cpath, &text[0], C.size_t(len(text)))
	if lib == nil {
		return nil, Info{}, errors.New(C.GoString(&text[0]))
	}
	api := (*C.nx_api)(C.calloc(1, C.sizeof_nx_api)) // C memory: it lives as long as the library, for good
	info := Info{Path: path}
	err := bind(lib, path, api)
	if err == nil {
		if C.nx_path_of(*(*unsafe.Pointer)(unsafe.Pointer(&api.is_stub)), &text[0], C.size_t(len(text))) {
			info.Path = C.GoString(&text[0])
		}
		err = judge(api, &info)
	}
	if err != nil {
		C.free(unsafe.Pointer(api))
		C.nx_dlclose(lib)
		return nil, Info{}, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	layout := C.int(C.NX_LAYOUT_A)
	if info.Layout == "B" {
		layout = C.NX_LAYOUT_B
	}
	return &capi{api: api, layout: layout}, info, nil
}

// bind fills the table once: what is missing fails here, all names in one error, never in the first transfer.
func bind(lib unsafe.Pointer, path string, api *C.nx_api) error {
	p := func(field unsafe.Pointer) *unsafe.Pointer { return (*unsafe.Pointer)(field) }
	var err error
	for _, f := range []struct {
		fn       *unsafe.Pointer
		name     string
		optional bool
	}{
		{p(unsafe.Pointer(&api.is_stub)), "is_stub", false},
		{p(unsafe.Pointer(&api.get_version)), "get_version", true}, // its presence selects the configuration layout
		{p(unsafe.Pointer(&api.create_configured_agent)), "create_configured_agent", false},
		{p(unsafe.Pointer(&api.destroy_agent)), "destroy_agent", false},
		{p(unsafe.Pointer(&api.get_plugin_params)), "get_plugin_params", false},
		{p(unsafe.Pointer(&api.destroy_params)), "destroy_params", false},
		{p(unsafe.Pointer(&api.destroy_mem_list)), "destroy_mem_list", false},
		{p(unsafe.Pointer(&api.create_backend)), "create_backend", false},
		{p(unsafe.Pointer(&api.destroy_backend)), "destroy_backend", false},
		{p(unsafe.Pointer(&api.create_reg_dlist)), "create_reg_dlist", false},
		{p(unsafe.Pointer(&api.reg_dlist_add_desc)), "reg_dlist_add_desc", false},
		{p(unsafe.Pointer(&api.destroy_reg_dlist)), "destroy_reg_dlist", false},
		{p(unsafe.Pointer(&api.register_mem)), "register_mem", false},
		{p(unsafe.Pointer(&api.deregister_mem)), "deregister_mem", false},
		{p(unsafe.Pointer(&api.get_local_md)), "get_local_md", false},
		{p(unsafe.Pointer(&api.load_remote_md)), "load_remote_md", false},
		{p(unsafe.Pointer(&api.invalidate_remote_md)), "invalidate_remote_md", false},
		{p(unsafe.Pointer(&api.create_xfer_dlist)), "create_xfer_dlist", false},
		{p(unsafe.Pointer(&api.xfer_dlist_add_desc)), "xfer_dlist_add_desc", false},
		{p(unsafe.Pointer(&api.destroy_xfer_dlist)), "destroy_xfer_dlist", false},
		{p(unsafe.Pointer(&api.create_xfer_req)), "create_xfer_req", false},
		{p(unsafe.Pointer(&api.post_xfer_req)), "post_xfer_req", false},
		{p(unsafe.Pointer(&api.get_xfer_status)), "get_xfer_status", false},
		{p(unsafe.Pointer(&api.release_xfer_req)), "release_xfer_req", false},
		{p(unsafe.Pointer(&api.destroy_xfer_req)), "destroy_xfer_req", false},
	} {
		name := C.CString(prefix + f.name)
		*f.fn = C.nx_dlsym(lib, name)
		C.free(unsafe.Pointer(name))
		if *f.fn == nil && !f.optional {
			err = errors.Join(err, &MissingSymbolError{Library: path, Name: prefix + f.name})
		}
	}
	return err
}

// judge refuses a library that only pretends, or whose interface this package does not know. A library that has get_version has
// layout B; one that has not has layout A, in all versions that exist (spec 1.1).
func judge(api *C.nx_api, info *Info) error {
	if bool(C.nx_is_stub(api)) {
		return fmt.Errorf("%s is a stub without NIXL in it", info.Path)
	}
	if api.get_version == nil {
		info.Layout = "A"
		return nil
	}
	var major, minor C.int
	C.nx_version(api, &major, &minor)
	if major != knownMajor || minor < 0 || minor > knownMinor {
		return fmt.Errorf("%s has version %d.%d of the C interface, known is up to %d.%d", info.Path, int(major), int(minor), knownMajor, knownMinor)
	}
	info.Layout, info.Version = "B", fmt.Sprintf("%d.%d", int(major), int(minor))
	return nil
}

// ucxVersion asks the UCX of this process, if one is loaded.
func ucxVersion() string {
	var text [64]C.char
	if !C.nx_ucx_version(&text[0], C.size_t(len(text))) {
		return ""
	}
	return C.GoString(&text[0])
}
