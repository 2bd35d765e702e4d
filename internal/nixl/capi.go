//go:build cgo && linux

package nixl

// #cgo noescape nx_start
// #cgo nocallback nx_start
// #cgo noescape nx_poll
// #cgo nocallback nx_poll
// #include "bridge.h"
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"unsafe"
)

// These do not compile when a Go type that is handed to C is not what C takes it for.
var (
	_ [unsafe.Sizeof(span{}) - C.sizeof_nx_span]struct{}
	_ [C.sizeof_nx_span - unsafe.Sizeof(span{})]struct{}
	_ [unsafe.Sizeof(handle(0)) - C.sizeof_uintptr_t]struct{}
	_ [unsafe.Sizeof(Code(0)) - C.sizeof_nx_status]struct{}
)

// capi is the driver over the loaded library. Handles go through Go as integers, so that nothing here is ever taken for Go memory.
type capi struct {
	api    *C.nx_api
	layout C.int
}

func (c *capi) createAgent(name string) (handle, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	var h C.uintptr_t
	r := C.nx_create_agent(c.api, c.layout, cname, &h)
	return handle(h), refusal(r, "")
}

func (c *capi) destroyAgent(agent handle) error {
	return statusError("destroy_agent", "", C.nx_destroy_agent(c.api, C.uintptr_t(agent)))
}

func (c *capi) register(agent handle, addr, n uint64) (handle, error) {
	var h C.uintptr_t
	r := C.nx_register(c.api, C.uintptr_t(agent), C.uint64_t(addr), C.uint64_t(n), &h)
	return handle(h), refusal(r, "")
}

func (c *capi) deregister(agent, registration handle) error {
	return refusal(C.nx_deregister(c.api, C.uintptr_t(agent), C.uintptr_t(registration)), "")
}

func (c *capi) localMetadata(agent handle) ([]byte, error) {
	var data unsafe.Pointer
	var n C.size_t
	r := C.nx_local_md(c.api, C.uintptr_t(agent), &data, &n)
	if r.code != 0 {
		return nil, refusal(r, "")
	}
	defer C.free(data)
	return append([]byte(nil), unsafe.Slice((*byte)(data), int(n))...), nil
}

func (c *capi) load(agent handle, blob []byte, name string) error {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	r := C.nx_load(c.api, C.uintptr_t(agent), unsafe.Pointer(unsafe.SliceData(blob)), C.size_t(len(blob)), cname)
	if r.code == C.NX_WRONG_NAME {
		return fmt.Errorf("nixl: load_remote_md: %w: the library reads another agent name in it than %q", ErrMetadata, name)
	}
	return refusal(r, name)
}

func (c *capi) invalidate(agent handle, name string) error {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	return statusError("invalidate_remote_md", name, C.nx_invalidate(c.api, C.uintptr_t(agent), cname))
}

func (c *capi) start(agent handle, peer string, mem MemType, spans []span) started {
	// Both are four 64-bit integers in the same order.
	first := (*C.nx_span)(unsafe.Pointer(unsafe.SliceData(spans)))
	cname := append(make([]byte, 0, 128), peer...)
	cname = append(cname, 0)
	var req C.uintptr_t
	var posted C.bool
	r := C.nx_start(c.api, C.uintptr_t(agent), (*C.char)(unsafe.Pointer(&cname[0])), C.int(mem), first, C.size_t(len(spans)),
		C.uint64_t(spin), &req, &posted)
	s := started{code: Code(r.code), req: handle(req), posted: bool(posted)}
	if r.code < 0 {
		s.call = C.GoString(r.call)
	}
	return s
}

func (c *capi) poll(agent handle, reqs []handle, status []Code, t tick) {
	C.nx_poll(c.api, C.uintptr_t(agent), (*C.uintptr_t)(unsafe.Pointer(unsafe.SliceData(reqs))),
		(*C.nx_status)(unsafe.Pointer(unsafe.SliceData(status[:len(reqs)]))), C.size_t(len(reqs)), C.uint64_t(t.pause), C.uint64_t(t.spin))
}

func (c *capi) release(agent, req handle) error {
	return statusError("release_xfer_req", "", C.nx_release(c.api, C.uintptr_t(agent), C.uintptr_t(req)))
}

// refusal makes the error of a row of calls of which one failed.
func refusal(r C.nx_result, peer string) error {
	if r.code == 0 {
		return nil
	}
	return statusError(C.GoString(r.call), peer, r.code)
}

func statusError(call, peer string, code C.nx_status) error {
	if code == 0 {
		return nil
	}
	return &CallError{Call: call, Peer: peer, Code: Code(code), Kind: ErrRefused}
}
