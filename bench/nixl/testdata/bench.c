// The calls that internal/nixl makes, in plain C: what the Go binding is measured against.
//
//   bench LIBRARY target SIZE     registers SIZE bytes, prints "metadata address", stays until its input ends
//   bench LIBRARY writer SIZE     reads lines "peer METADATA NAME" once, then "write COUNT BASE N OFF LEN ADDR ..." (N spans, addresses
//                                 relative to BASE) and answers each with COUNT times in nanoseconds
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef int status;

static void *lib;
static void *agent;
static char *memory;

static void die(const char *what, long code) {
	fprintf(stderr, "bench: %s: %ld\n", what, code);
	exit(1);
}

static void *symbol(const char *name) {
	void *fn = dlsym(lib, name);
	if (fn == NULL) {
		die(name, 0);
	}
	return fn;
}

// CALL looks a function up once and calls it; CHECK ends the program unless it says 0.
#define CALL(name, types, args) ({ static status(*fn) types; if (fn == NULL) { fn = symbol("nixl_capi_" #name); } fn args; })
#define CHECK(name, types, args) do { status s_ = CALL(name, types, args); if (s_ != 0) { die(#name, s_); } } while (0)

static void start(const char *path, const char *role, size_t size) {
	struct {
		bool progress_thread, listen_thread;
		int listen_port, thread_sync;
		unsigned num_workers;
		uint64_t progress_delay_us, listen_delay_us;
		bool telemetry;
	} config = {.progress_thread = true, .thread_sync = 2, .num_workers = 1, .progress_delay_us = 100000, .listen_delay_us = 100000};
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) {
		fprintf(stderr, "bench: %s\n", dlerror());
		exit(1);
	}
	if (dlsym(lib, "nixl_capi_get_version") != NULL) {
		die("this library has another layout", 0);
	}
	char name[64];
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(name, sizeof name, "%s-%lld-%ld", role, (long long)t.tv_sec, t.tv_nsec);
	void *mems, *params, *backend, *list;
	CHECK(create_configured_agent, (const char *, const void *, void **), (name, &config, &agent));
	CHECK(get_plugin_params, (void *, const char *, void **, void **), (agent, "UCX", &mems, &params));
	CHECK(create_backend, (void *, const char *, void *, void **), (agent, "UCX", params, &backend));
	CHECK(create_reg_dlist, (int, void **), (0, &list));
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		die("mmap", 0);
	}
	madvise(memory, size, MADV_HUGEPAGE); // as the Go side does
	memset(memory, 1, size);
	CHECK(reg_dlist_add_desc, (void *, uintptr_t, size_t, uint64_t, const void *, size_t), (list, (uintptr_t)memory, size, 0, NULL, 0));
	CHECK(register_mem, (void *, void *, void *), (agent, list, NULL));
}

static void target(void) {
	unsigned char *md;
	size_t n;
	CHECK(get_local_md, (void *, void **, size_t *), (agent, (void **)&md, &n));
	for (size_t i = 0; i < n; i++) {
		printf("%02x", md[i]);
	}
	printf(" %llu\n", (unsigned long long)(uintptr_t)memory);
	fflush(stdout);
	while (getchar() != EOF) {
	}
}

struct span {
	size_t off, len, addr;
};

static uint64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void write_once(const char *peer, const struct span *spans, size_t n) {
	void *local, *remote, *req;
	CHECK(create_xfer_dlist, (int, void **), (0, &local));
	CHECK(create_xfer_dlist, (int, void **), (0, &remote));
	for (size_t i = 0; i < n; i++) {
		CHECK(xfer_dlist_add_desc, (void *, uintptr_t, size_t, uint64_t), (local, (uintptr_t)memory + spans[i].off, spans[i].len, 0));
		CHECK(xfer_dlist_add_desc, (void *, uintptr_t, size_t, uint64_t), (remote, spans[i].addr, spans[i].len, 0));
	}
	CHECK(create_xfer_req, (void *, int, void *, void *, const char *, void **, void *), (agent, 1, local, remote, peer, &req, NULL));
	CHECK(destroy_xfer_dlist, (void *), (local));
	CHECK(destroy_xfer_dlist, (void *), (remote));
	status s = CALL(post_xfer_req, (void *, void *, void *), (agent, req, NULL));
	while (s == 1) {
		s = CALL(get_xfer_status, (void *, void *), (agent, req));
	}
	if (s != 0) {
		die("get_xfer_status", s);
	}
	CHECK(release_xfer_req, (void *, void *), (agent, req));
	CHECK(destroy_xfer_req, (void *), (req));
}

static void add_peer(const char *hex) {
	size_t n = strlen(hex) / 2;
	unsigned char *md = malloc(n);
	for (size_t i = 0; i < n; i++) {
		unsigned byte = 0;
		sscanf(hex + 2 * i, "%2x", &byte);
		md[i] = (unsigned char)byte;
	}
	char *name;
	CHECK(load_remote_md, (void *, const void *, size_t, char **), (agent, md, n, &name));
	free(name);
	free(md);
}

static void writer(void) {
	static char word[1 << 16], peer[256];
	while (scanf("%65535s", word) == 1) {
		if (strcmp(word, "peer") == 0) {
			if (scanf("%65535s %255s", word, peer) != 2) {
				die("peer", 0);
			}
			add_peer(word);
			continue;
		}
		size_t count, base, n;
		if (scanf("%zu %zu %zu", &count, &base, &n) != 3) {
			die("write", 0);
		}
		struct span *spans = calloc(n, sizeof *spans);
		for (size_t i = 0; i < n; i++) {
			if (scanf("%zu %zu %zu", &spans[i].off, &spans[i].len, &spans[i].addr) != 3) {
				die("span", (long)i);
			}
			spans[i].addr += base;
		}
		for (size_t i = 0; i < count; i++) {
			uint64_t began = now_ns();
			write_once(peer, spans, n);
			printf("%llu ", (unsigned long long)(now_ns() - began));
		}
		printf("\n");
		fflush(stdout);
		free(spans);
	}
}

int main(int argc, char **argv) {
	if (argc != 4) {
		die("usage: bench LIBRARY target|writer SIZE", argc);
	}
	start(argv[1], argv[2], strtoull(argv[3], NULL, 10));
	if (strcmp(argv[2], "target") == 0) {
		target();
	} else {
		writer();
	}
	return 0;
}
