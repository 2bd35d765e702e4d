# pd-router. `make help` lists what there is; each target is also what CI runs.

GO          ?= go
BIN         := bin/pd-router
RACE        := $(GO) test -race
# Linters are pinned here and nowhere else. `go run` builds them once into the build cache; they never enter go.mod.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 60s
REQUESTS    ?= 10000
# The version is what the build reads from git. Outside a repository with commits (a source archive, say) there is nothing to read.
BUILDVCS    := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## ---- build and run

.PHONY: build demo dist clean
build: ## bin/pd-router
	$(GO) build -trimpath -buildvcs=$(BUILDVCS) -o $(BIN) ./cmd/pd-router

demo: build ## the main job: a burst of agent requests on one simulated slot, without a queue and with one
	$(BIN) demo

dist: ## release archives with checksums in out/dist, the same bytes anywhere; ARGS="amd64" picks
	GO=$(GO) deploy/dist.sh $(ARGS)

clean: ## remove what builds leave behind
	rm -rf bin out

## ---- tests: Go and a C compiler are enough

.PHONY: test race bench bench-smoke bench-router bench-handoff bench-nixl fuzz fuzz-smoke
test: ## all Go tests, plain and then with the race detector
	$(GO) test ./...
	$(RACE) ./...

race: ## all Go tests with the race detector
	$(RACE) ./...

bench: ## all benchmarks, with allocations
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-smoke: ## each benchmark once: they still run
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

bench-router: build ## what the router costs: the same load directly, through it and through others; ARGS for bench/
	$(GO) run ./bench -router $(BIN) $(ARGS)

bench-handoff: build ## how busy each handoff mode keeps a decode slot; ARGS for bench/handoff
	PD_ROUTER_NIXL_LIBRARY=$$(test/nixl-deps.sh) $(GO) run ./bench/handoff -router $(BIN) $(ARGS)

bench-nixl: ## what the NIXL binding costs against C (fetches the library once); ARGS for bench/nixl/
	PD_ROUTER_NIXL_LIBRARY=$$(test/nixl-deps.sh) $(GO) run ./bench/nixl $(ARGS)

fuzz: ## each fuzz target for FUZZTIME (60s)
	test/fuzz.sh $(FUZZTIME)

fuzz-smoke: ## each fuzz target for a few seconds
	test/fuzz.sh 3s

## ---- the gate: what every commit passes

.PHONY: check fmt mod vet lint scripts dashboards
check: fmt mod vet lint scripts race dashboards ## format, modules, vet, lint, scripts, race tests (with architecture and goldens)

fmt: ## every Go file is as gofmt writes it
	@bad=$$(gofmt -l .); [ -z "$$bad" ] || { echo "not gofmt-ed:"; echo "$$bad"; exit 1; }

mod: ## go.mod and go.sum are tidy and match what was downloaded
	$(GO) mod tidy -diff
	$(GO) -C deploy/grafana/gen mod tidy -diff
	$(GO) -C test/deploy mod tidy -diff
	$(GO) mod verify

vet: ## go vet
	$(GO) vet ./...

lint: ## staticcheck (staticcheck.conf)
	$(GO) run $(STATICCHECK) ./...

dashboards: ## the generator of the dashboards, a module of its own: vet and tests
	$(GO) -C deploy/grafana/gen vet ./...
	$(GO) -C deploy/grafana/gen test ./...

scripts: ## shell and Python files parse
	@for f in .ci/run deploy/slurm/job.sbatch deploy/slurm/python $$(find . -name '*.sh' -not -path './out/*'); do bash -n "$$f" || exit 1; done
	@python3 -B -c 'import ast, pathlib; [ast.parse(p.read_text(), str(p)) for d in ("test", "bench") for p in pathlib.Path(d).rglob("*.py")]'

## ---- with things from outside: libraries, and the conformance kit of CONTRIBUTING.md

.PHONY: deps test-real blackbox test-clients test-peer test-ctrlcases test-staging test-sim-nixl test-nixl-interop test-chaos observe observe-check dashboard-pictures test-page test-deploy ci
deps: ## fetch what test-real needs: the NIXL library and real tokenizers, about 200 MB, once
	test/real.sh setup

test-real: ## the Go tests that `make test` skips without deps
	test/real.sh

blackbox: ## black-box cases; ARGS="--only B11,T4" or "--group RT" picks some
	test/blackbox.sh $(ARGS)

test-clients: ## published clients; ARGS="openai-py go" picks some
	test/clients.sh $(ARGS)

test-peer: ## the real TileRT decode server behind this router, and both routers side by side
	test/peer.sh $(ARGS)

test-ctrlcases: ## control-plane and decode-node cases against the simulated decode node
	test/ctrlcases.sh

test-staging: ## the staging arena between a NIXL sender of another make and the real decode server
	test/staging-peer.sh

test-sim-nixl: ## the simulated nodes over NIXL: the real decode server, senders of another make, killed under load; ARGS="raw" picks
	test/sim-nixl.sh $(ARGS)

test-nixl-interop: ## the NIXL binding and a peer of another make, both ways; SOAK agents come and go (1000)
	test/nixl-interop.sh $(ARGS)

test-chaos: ## nodes killed, stopped and lying at every step while REQUESTS (10000) requests go each way, KV over NIXL; ARGS="-chaos-seed 7"
	PD_ROUTER_NIXL_LIBRARY=$$(test/nixl-deps.sh) CI=1 $(GO) test -count 1 -timeout 3h -run '^TestChaos$$' -v ./test/scenario -chaos $(REQUESTS) $(ARGS)

observe-check: ## a real Prometheus watches the router: every query of every dashboard and alert has data
	test/observe.sh check

observe: ## the same until Ctrl-C, to look at
	test/observe.sh up

dashboard-pictures: ## docs/img/dash-*.png anew: the dashboards after a minute of traffic, drawn by Grafana's library in a browser
	test/observe.sh draw

test-page: ## the status page in a real browser
	test/status-page.sh

test-deploy: ## deploy/ with the programs that it is for: systemd, Helm, Kubernetes' schemas, compose, Prometheus, Slurm; ARGS="helm slurm" picks
	test/deploy.sh $(ARGS)

ci: ## everything, as CI runs it
	.ci/run
