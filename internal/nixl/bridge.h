//go:build cgo && linux

// What the Go side calls. Every function here is one row of library calls on one thread: nothing is kept between two of
// them except the handles that they return. Errors are the library's own codes together with the name of the call.

#ifndef PD_ROUTER_NIXL_BRIDGE_H
#define PD_ROUTER_NIXL_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int nx_status; // an enum of the library: 0 done, 1 in progress, below 0 an error

// The library's functions, bound once (bind.go). All enums are 32 bits, all handles are pointers (spec 1.2, 1.3).
typedef struct {
	bool (*is_stub)(void);
	void (*get_version)(int *major, int *minor, int *patch); // NULL before generation 3
	nx_status (*create_configured_agent)(const char *name, const void *config, void **agent);
	nx_status (*destroy_agent)(void *agent);
	nx_status (*get_plugin_params)(void *agent, const char *plugin, void **mems, void **params);
	nx_status (*destroy_params)(void *params);
	nx_status (*destroy_mem_list)(void *mems);
	nx_status (*create_backend)(void *agent, const char *plugin, void *params, void **backend);
	nx_status (*destroy_backend)(void *backend);
	nx_status (*create_reg_dlist)(int mem, void **list);
	nx_status (*reg_dlist_add_desc)(void *list, uintptr_t addr, size_t len, uint64_t dev, const void *meta, size_t meta_len);
	nx_status (*destroy_reg_dlist)(void *list);
	nx_status (*register_mem)(void *agent, void *list, void *opt);
	nx_status (*deregister_mem)(void *agent, void *list, void *opt);
	nx_status (*get_local_md)(void *agent, void **data, size_t *len);
	nx_status (*load_remote_md)(void *agent, const void *data, size_t len, char **name);
	nx_status (*invalidate_remote_md)(void *agent, const char *name);
	nx_status (*create_xfer_dlist)(int mem, void **list);
	nx_status (*xfer_dlist_add_desc)(void *list, uintptr_t addr, size_t len, uint64_t dev);
	nx_status (*destroy_xfer_dlist)(void *list);
	nx_status (*create_xfer_req)(void *agent, int op, void *local, void *remote, const char *peer, void **req, void *opt);
	nx_status (*post_xfer_req)(void *agent, void *req, void *opt);
	nx_status (*get_xfer_status)(void *agent, void *req);
	nx_status (*release_xfer_req)(void *agent, void *req);
	nx_status (*destroy_xfer_req)(void *req);
} nx_api;

// How the library lays out the 40 bytes of its agent configuration.
enum { NX_LAYOUT_A = 0, NX_LAYOUT_B = 1 };

// A result is a code and the call that gave it, a literal.
typedef struct {
	nx_status code;
	const char *call;
} nx_result;

// One piece of a write: from local memory to the peer's.
typedef struct {
	uint64_t local, remote, len, dev;
} nx_span;

// The loader. On failure the text of dlerror, read on the thread that failed, is in err (always terminated).
void *nx_dlopen(const char *path, char *err, size_t err_len);
void nx_dlclose(void *lib);
void *nx_dlsym(void *lib, const char *name);
bool nx_path_of(void *fn, char *path, size_t path_len);
bool nx_ucx_version(char *version, size_t version_len);

bool nx_is_stub(const nx_api *api);
void nx_version(const nx_api *api, int *major, int *minor);

// An agent with the UCX backend, RW locking, and a progress thread that sleeps while there is nothing to do.
nx_result nx_create_agent(const nx_api *api, int layout, const char *name, uintptr_t *agent);
nx_status nx_destroy_agent(const nx_api *api, uintptr_t agent);

// The registration is needed again to deregister; nx_deregister frees it when it succeeds.
nx_result nx_register(const nx_api *api, uintptr_t agent, uint64_t addr, uint64_t len, uintptr_t *registration);
nx_result nx_deregister(const nx_api *api, uintptr_t agent, uintptr_t registration);

// The agent's own metadata; free() it.
nx_result nx_local_md(const nx_api *api, uintptr_t agent, void **data, size_t *len);

// Loads the metadata of a peer whose name is expected; another name is an error (NX_WRONG_NAME).
enum { NX_WRONG_NAME = -1000 };
nx_result nx_load(const nx_api *api, uintptr_t agent, const void *data, size_t len, const char *name);
nx_status nx_invalidate(const nx_api *api, uintptr_t agent, const char *name);

// Posts one write of n spans and looks at it for spin_ns at most. The request is set only when it is still in progress;
// otherwise it is released. posted tells whether anything may have been sent.
nx_result nx_start(const nx_api *api, uintptr_t agent, const char *peer, int remote_mem, const nx_span *spans, size_t n,
                   uint64_t spin_ns, uintptr_t *req, bool *posted);

// Looks at n requests until one is no longer in progress or spin_ns are over, after a sleep of pause_ns.
void nx_poll(const nx_api *api, uintptr_t agent, const uintptr_t *reqs, nx_status *status, size_t n, uint64_t pause_ns,
             uint64_t spin_ns);
nx_status nx_release(const nx_api *api, uintptr_t agent, uintptr_t req);

#endif
