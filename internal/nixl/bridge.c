//go:build cgo && linux

#define _GNU_SOURCE
#include "bridge.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEM_DRAM = 0, OP_WRITE = 1, SYNC_RW = 2, IN_PROGRESS = 1 };

// The progress thread sleeps in poll() on UCX's event descriptor and is woken by traffic; this bounds one sleep (spec 1.5).
#define PROGRESS_DELAY_US 100000u

// Both layouts as compiled by the library (spec 1.1). They differ in the type of the port and so in all that follows it.
typedef struct {
	bool progress_thread, listen_thread;
	int listen_port;
	int thread_sync;
	unsigned num_workers;
	uint64_t progress_delay_us, listen_delay_us;
	bool telemetry;
} config_a;

typedef struct {
	bool progress_thread, listen_thread;
	uint16_t listen_port;
	int thread_sync;
	unsigned num_workers;
	uint64_t progress_delay_us, listen_delay_us;
	bool telemetry;
} config_b;

_Static_assert(sizeof(config_a) == 40 && offsetof(config_a, thread_sync) == 8 && offsetof(config_a, progress_delay_us) == 16, "layout A");
_Static_assert(sizeof(config_b) == 40 && offsetof(config_b, thread_sync) == 4 && offsetof(config_b, progress_delay_us) == 16, "layout B");

static uint64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static nx_result result(nx_status code, const char *call) {
	return (nx_result){code, call};
}

void *nx_dlopen(const char *path, char *err, size_t err_len) {
	// NOW: what is missing shows here. LOCAL: the library exports some of libstdc++'s own symbols.
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) {
		const char *text = dlerror();
		snprintf(err, err_len, "%s", text != NULL ? text : "unknown error");
	}
	return lib;
}

void nx_dlclose(void *lib) {
	dlclose(lib);
}

void *nx_dlsym(void *lib, const char *name) {
	return dlsym(lib, name);
}

bool nx_path_of(void *fn, char *path, size_t path_len) {
	Dl_info info;
	if (dladdr(fn, &info) == 0 || info.dli_fname == NULL) {
		return false;
	}
	snprintf(path, path_len, "%s", info.dli_fname);
	return true;
}

// UCX comes as libucp.so.0 or under a name of the wheel's own (libucp-<hash>.so.0.0.0).
static int find_ucp(struct dl_phdr_info *info, size_t size, void *found) {
	(void)size;
	const char *base = strrchr(info->dlpi_name, '/');
	if (base != NULL && strncmp(base, "/libucp", 7) == 0) {
		*(const char **)found = info->dlpi_name;
		return 1;
	}
	return 0;
}

bool nx_ucx_version(char *version, size_t version_len) {
	const char *path = NULL;
	dl_iterate_phdr(find_ucp, &path);
	void *lib = path != NULL ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	if (lib == NULL) {
		return false;
	}
	const char *(*version_string)(void) = (const char *(*)(void))dlsym(lib, "ucp_get_version_string");
	if (version_string != NULL) {
		snprintf(version, version_len, "%s", version_string());
	}
	dlclose(lib);
	return version_string != NULL;
}

bool nx_is_stub(const nx_api *api) {
	return api->is_stub();
}

void nx_version(const nx_api *api, int *major, int *minor) {
	int patch = 0;
	api->get_version(major, minor, &patch);
}

nx_result nx_create_agent(const nx_api *api, int layout, const char *name, uintptr_t *agent) {
	const uint64_t delay = PROGRESS_DELAY_US; // the listener's too, which is off
	const config_a a = {.progress_thread = true, .thread_sync = SYNC_RW, .num_workers = 1, .progress_delay_us = delay, .listen_delay_us = delay};
	const config_b b = {.progress_thread = true, .thread_sync = SYNC_RW, .num_workers = 1, .progress_delay_us = delay, .listen_delay_us = delay};
	const void *config = layout == NX_LAYOUT_A ? (const void *)&a : (const void *)&b;
	void *handle = NULL, *mems = NULL, *params = NULL, *backend = NULL;
	nx_result r = result(api->create_configured_agent(name, config, &handle), "create_configured_agent");
	if (r.code != 0) {
		return r;
	}
	r = result(api->get_plugin_params(handle, "UCX", &mems, &params), "get_plugin_params");
	if (r.code == 0) {
		r = result(api->create_backend(handle, "UCX", params, &backend), "create_backend");
		api->destroy_params(params);
		api->destroy_mem_list(mems);
	}
	if (r.code != 0) {
		api->destroy_agent(handle);
		return r;
	}
	api->destroy_backend(backend); // frees its handle only: the backend lives as long as the agent
	*agent = (uintptr_t)handle;
	return r;
}

nx_status nx_destroy_agent(const nx_api *api, uintptr_t agent) {
	return api->destroy_agent((void *)agent);
}

nx_result nx_register(const nx_api *api, uintptr_t agent, uint64_t addr, uint64_t len, uintptr_t *registration) {
	void *list = NULL;
	nx_result r = result(api->create_reg_dlist(MEM_DRAM, &list), "create_reg_dlist");
	if (r.code != 0) {
		return r;
	}
	r = result(api->reg_dlist_add_desc(list, (uintptr_t)addr, (size_t)len, 0, NULL, 0), "reg_dlist_add_desc");
	if (r.code == 0) {
		r = result(api->register_mem((void *)agent, list, NULL), "register_mem");
	}
	if (r.code != 0) {
		api->destroy_reg_dlist(list);
		return r;
	}
	*registration = (uintptr_t)list;
	return r;
}

nx_result nx_deregister(const nx_api *api, uintptr_t agent, uintptr_t registration) {
	nx_result r = result(api->deregister_mem((void *)agent, (void *)registration, NULL), "deregister_mem");
	if (r.code == 0) {
		api->destroy_reg_dlist((void *)registration);
	}
	return r;
}

nx_result nx_local_md(const nx_api *api, uintptr_t agent, void **data, size_t *len) {
	return result(api->get_local_md((void *)agent, data, len), "get_local_md");
}

nx_result nx_load(const nx_api *api, uintptr_t agent, const void *data, size_t len, const char *name) {
	char *loaded = NULL;
	nx_result r = result(api->load_remote_md((void *)agent, data, len, &loaded), "load_remote_md");
	if (r.code == 0 && (loaded == NULL || strcmp(loaded, name) != 0)) {
		r.code = NX_WRONG_NAME;
	}
	free(loaded);
	return r;
}

nx_status nx_invalidate(const nx_api *api, uintptr_t agent, const char *name) {
	return api->invalidate_remote_md((void *)agent, name);
}

// create builds both descriptor lists and the request; the library copies the lists.
static nx_result create(const nx_api *api, uintptr_t agent, const char *peer, int remote_mem, const nx_span *spans, size_t n, void **req) {
	void *local = NULL, *remote = NULL;
	nx_result r = result(api->create_xfer_dlist(MEM_DRAM, &local), "create_xfer_dlist");
	if (r.code != 0) {
		return r;
	}
	r = result(api->create_xfer_dlist(remote_mem, &remote), "create_xfer_dlist");
	for (size_t i = 0; i < n && r.code == 0; i++) {
		nx_status s = api->xfer_dlist_add_desc(local, (uintptr_t)spans[i].local, (size_t)spans[i].len, 0);
		if (s == 0) {
			s = api->xfer_dlist_add_desc(remote, (uintptr_t)spans[i].remote, (size_t)spans[i].len, spans[i].dev);
		}
		r = result(s, "xfer_dlist_add_desc");
	}
	if (r.code == 0) {
		r = result(api->create_xfer_req((void *)agent, OP_WRITE, local, remote, peer, req, NULL), "create_xfer_req");
	}
	api->destroy_xfer_dlist(local);
	if (remote != NULL) {
		api->destroy_xfer_dlist(remote);
	}
	return r;
}

nx_result nx_start(const nx_api *api, uintptr_t agent, const char *peer, int remote_mem, const nx_span *spans, size_t n,
                   uint64_t spin_ns, uintptr_t *req, bool *posted) {
	void *handle = NULL;
	nx_result r = create(api, agent, peer, remote_mem, spans, n, &handle);
	if (r.code != 0) {
		return r;
	}
	const uintptr_t posted_req = (uintptr_t)handle;
	*posted = true;
	r = result(api->post_xfer_req((void *)agent, handle, NULL), "post_xfer_req");
	if (r.code == IN_PROGRESS) {
		r.call = "get_xfer_status";
		nx_poll(api, agent, &posted_req, &r.code, 1, 0, spin_ns);
	}
	if (r.code == IN_PROGRESS) {
		*req = posted_req;
	} else {
		nx_release(api, agent, posted_req);
	}
	return r;
}

void nx_poll(const nx_api *api, uintptr_t agent, const uintptr_t *reqs, nx_status *status, size_t n, uint64_t pause_ns,
             uint64_t spin_ns) {
	if (pause_ns != 0) {
		struct timespec pause = {(time_t)(pause_ns / 1000000000u), (long)(pause_ns % 1000000000u)};
		nanosleep(&pause, NULL);
	}
	uint64_t end = spin_ns != 0 ? now_ns() + spin_ns : 0;
	for (;;) {
		bool ended = false;
		for (size_t i = 0; i < n; i++) {
			status[i] = api->get_xfer_status((void *)agent, (void *)reqs[i]);
			ended |= status[i] != IN_PROGRESS;
		}
		if (ended || now_ns() >= end) {
			return;
		}
	}
}

nx_status nx_release(const nx_api *api, uintptr_t agent, uintptr_t req) {
	nx_status s = api->release_xfer_req((void *)agent, (void *)req);
	nx_status d = api->destroy_xfer_req((void *)req);
	return s != 0 ? s : d;
}
