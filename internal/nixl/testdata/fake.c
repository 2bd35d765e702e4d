// A library with the functions of libnixl_capi.so that internal/nixl uses, for what the real one does not do on demand. Agents live in
// one process and a transfer is a copy, made at the second look. What it was given wrongly it refuses with INVALID_PARAM, and the last agent
// that leaves something behind with INVALID_STATE.
//
//   -DVERSION=major,minor   generation 3: get_version, and the other layout of the configuration
//   -DSTUB                  a library without NIXL in it
//   -DINCOMPLETE            without two of its functions
//   environment FAKE_NIXL_FAIL="name=code"   that function says that
//   environment FAKE_NIXL_ONE_AGENT          no second agent beside the first
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, IN_PROGRESS = 1, INVALID_PARAM = -1, INVALID_STATE = -3, NOT_FOUND = -6 };

#define FAILS(name) \
	do { \
		int code_ = wanted(#name); \
		if (code_ != OK) { \
			return code_; \
		} \
	} while (0)

static int live, agents; // objects that somebody must destroy; the agents among them

static int wanted(const char *name) {
	const char *text = getenv("FAKE_NIXL_FAIL");
	size_t n = strlen(name);
	if (text == NULL || strncmp(text, name, n) != 0 || text[n] != '=') {
		return OK;
	}
	return atoi(text + n + 1);
}

static void *object(size_t size) {
	live++;
	return calloc(1, size);
}

static int gone(void *p) {
	if (p == NULL) {
		return INVALID_PARAM;
	}
	live--;
	free(p);
	return OK;
}

struct agent {
	char name[128], peer[128];
	uintptr_t addr;
	size_t len;
};

struct list {
	int mem;
	size_t n;
	uintptr_t addr[512];
	size_t len[512];
};

struct request {
	struct list local, remote;
	int looks;
	bool released;
};

bool nixl_capi_is_stub(void) {
#ifdef STUB
	return true;
#else
	return false;
#endif
}

struct config {
	bool progress_thread, listen_thread;
#ifdef VERSION
	uint16_t listen_port;
#else
	int listen_port;
#endif
	int thread_sync;
	unsigned num_workers;
	uint64_t progress_delay_us, listen_delay_us;
	bool telemetry;
};

#ifdef VERSION
void nixl_capi_get_version(int *major, int *minor, int *patch) {
	const int v[] = {VERSION};
	*major = v[0], *minor = v[1], *patch = 7;
}
#endif

int nixl_capi_create_configured_agent(const char *name, const struct config *c, void **agent) {
	FAILS(create_configured_agent);
	if (!c->progress_thread || c->listen_thread || c->listen_port != 0 || c->thread_sync != 2 || c->progress_delay_us != 100000 || c->telemetry) {
		return INVALID_PARAM;
	}
	if (agents > 0 && getenv("FAKE_NIXL_ONE_AGENT") != NULL) {
		return INVALID_STATE; // the one before was forgotten
	}
	struct agent *a = object(sizeof *a);
	snprintf(a->name, sizeof a->name, "%s", name);
	agents++;
	*agent = a;
	return OK;
}

int nixl_capi_destroy_agent(void *agent) {
	FAILS(destroy_agent);
	gone(agent);
	agents--;
	return agents > 0 || live == 0 ? OK : INVALID_STATE;
}

int nixl_capi_get_plugin_params(void *agent, const char *plugin, void **mems, void **params) {
	FAILS(get_plugin_params);
	if (agent == NULL || strcmp(plugin, "UCX") != 0) {
		return INVALID_PARAM;
	}
	*mems = object(1);
	*params = object(1);
	return OK;
}

int nixl_capi_destroy_params(void *params) { return gone(params); }
int nixl_capi_destroy_mem_list(void *mems) { return gone(mems); }

int nixl_capi_create_backend(void *agent, const char *plugin, void *params, void **backend) {
	FAILS(create_backend);
	if (agent == NULL || strcmp(plugin, "UCX") != 0 || params == NULL) {
		return INVALID_PARAM;
	}
	*backend = object(1);
	return OK;
}

int nixl_capi_destroy_backend(void *backend) { return gone(backend); }

static int create_list(int mem, void **list) {
	struct list *l = object(sizeof *l);
	l->mem = mem;
	*list = l;
	return OK;
}

static int add(struct list *l, uintptr_t addr, size_t len) {
	if (l->n == sizeof l->addr / sizeof l->addr[0]) {
		return INVALID_PARAM;
	}
	l->addr[l->n] = addr;
	l->len[l->n++] = len;
	return OK;
}

int nixl_capi_create_reg_dlist(int mem, void **list) {
	FAILS(create_reg_dlist);
	return create_list(mem, list);
}

int nixl_capi_reg_dlist_add_desc(void *list, uintptr_t addr, size_t len, uint64_t dev, const void *meta, size_t meta_len) {
	FAILS(reg_dlist_add_desc);
	if (addr % 4096 != 0 || dev != 0 || meta != NULL || meta_len != 0) {
		return INVALID_PARAM;
	}
	return add(list, addr, len);
}

int nixl_capi_destroy_reg_dlist(void *list) { return gone(list); }

int nixl_capi_register_mem(void *agent, void *list, void *opt) {
	FAILS(register_mem);
	struct agent *a = agent;
	struct list *l = list;
	if (opt != NULL || l->mem != 0 || l->n != 1) {
		return INVALID_PARAM;
	}
	a->addr = l->addr[0];
	a->len = l->len[0];
	return OK;
}

int nixl_capi_deregister_mem(void *agent, void *list, void *opt) {
	FAILS(deregister_mem);
	struct agent *a = agent;
	struct list *l = list;
	if (opt != NULL || l->addr[0] != a->addr || l->len[0] != a->len) {
		return INVALID_PARAM;
	}
	a->addr = 0;
	return OK;
}

static void put(char **at, const char *tag, const void *value, uint64_t n) {
	memcpy(*at, tag, strlen(tag));
	*at += strlen(tag);
	memcpy(*at, &n, 8);
	memcpy(*at + 8, value, n);
	*at += 8 + n;
	*(*at)++ = '|';
}

int nixl_capi_get_local_md(void *agent, void **data, size_t *len) {
	FAILS(get_local_md);
	struct agent *a = agent;
	char *b = malloc(1024), *at = b + 11;
	const uint64_t one = 1, desc[3] = {a->addr, a->len, 0};
	const int dram = 0;
	memcpy(b, "nixlSerDes|", 11);
	put(&at, "Agent", a->name, strlen(a->name));
	put(&at, "Conns", &one, 8);
	put(&at, "t", "UCX", 3);
	put(&at, "c", " fake", 5);
	put(&at, "", "MemSection", 10);
	put(&at, "nixlSecElms", &one, 8);
	put(&at, "bknd", "UCX", 3);
	put(&at, "nixlDList", "nixlSDList", 10);
	put(&at, "t", &dram, 4);
	put(&at, "n", &one, 8);
	put(&at, "", desc, sizeof desc);
	*data = b;
	*len = (size_t)(at - b);
	return OK;
}

int nixl_capi_load_remote_md(void *agent, const void *data, size_t len, char **name) {
	FAILS(load_remote_md);
	struct agent *a = agent;
	uint64_t n;
	if (len < 11 + 5 + 8) {
		return INVALID_PARAM;
	}
	memcpy(&n, (const char *)data + 16, 8);
	*name = strndup((const char *)data + 24, n);
	if (wanted("another_name") != OK) {
		(*name)[0] ^= 1;
	}
	snprintf(a->peer, sizeof a->peer, "%s", *name);
	return OK;
}

int nixl_capi_invalidate_remote_md(void *agent, const char *name) {
	FAILS(invalidate_remote_md);
	struct agent *a = agent;
	if (strcmp(a->peer, name) != 0) {
		return NOT_FOUND;
	}
	a->peer[0] = 0;
	return OK;
}

int nixl_capi_create_xfer_dlist(int mem, void **list) {
	FAILS(create_xfer_dlist);
	return create_list(mem, list);
}

int nixl_capi_xfer_dlist_add_desc(void *list, uintptr_t addr, size_t len, uint64_t dev) {
	FAILS(xfer_dlist_add_desc);
	return dev == 0 ? add(list, addr, len) : INVALID_PARAM;
}

int nixl_capi_destroy_xfer_dlist(void *list) { return gone(list); }

#ifndef INCOMPLETE
int nixl_capi_create_xfer_req(void *agent, int op, void *local, void *remote, const char *peer, void **req, void *opt) {
	FAILS(create_xfer_req);
	struct agent *a = agent;
	if (op != 1 || opt != NULL || strcmp(a->peer, peer) != 0) {
		return INVALID_PARAM;
	}
	struct request *r = object(sizeof *r);
	r->local = *(struct list *)local;
	r->remote = *(struct list *)remote;
	*req = r;
	return OK;
}

int nixl_capi_post_xfer_req(void *agent, void *req, void *opt) {
	FAILS(post_xfer_req);
	return agent != NULL && req != NULL && opt == NULL ? IN_PROGRESS : INVALID_PARAM;
}
#endif

int nixl_capi_get_xfer_status(void *agent, void *req) {
	FAILS(get_xfer_status);
	struct request *r = req;
	if (agent == NULL || r->looks++ < 1) {
		return IN_PROGRESS;
	}
	for (size_t i = 0; i < r->local.n; i++) {
		memcpy((void *)r->remote.addr[i], (const void *)r->local.addr[i], r->local.len[i]);
	}
	return OK;
}

int nixl_capi_release_xfer_req(void *agent, void *req) {
	struct request *r = req;
	if (agent == NULL || r->released) {
		return INVALID_PARAM;
	}
	r->released = true;
	return OK;
}

int nixl_capi_destroy_xfer_req(void *req) {
	struct request *r = req;
	return r->released ? gone(r) : INVALID_STATE;
}
