# Every target needs make, sh and the Go version named in go.mod. The targets marked
# "as root" also need Debian's packages over the network.

GO ?= go
# go.work joins the library, the program and fleet; every other module stands alone.
ALONE := GOWORK=off $(GO)
FUZZTIME ?= 10s
SEEDS ?= 1000
# What "make test" tests: the modules in go.work, or make test PKG=./stage/differ RUN=TestX
PKG ?= work
RUN ?=
# Further arguments of the program: make run ARGS="-o json"
ARGS ?=

# The path of the linter, which this builds.
LINT = $(shell $(ALONE) tool -modfile=tools.mod -n golangci-lint)
# Modules in go.work, and those beside them. Those that import Kubernetes take longer than
# everything else and are left out: make lint LINT_MODULES=kubelet
MODULES := . cmd/pleg-pipeline fleet
LINT_MODULES ?= tests/real deploy

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What the program says of itself; empty outside a git checkout.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null)
CLI := github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli

.PHONY: build
build: ## build bin/pleg-pipeline, static as in releases
	@echo "building bin/pleg-pipeline"
	@CGO_ENABLED=0 $(GO) build -ldflags '-X $(CLI).version=$(VERSION) -X $(CLI).revision=$(REVISION)' -o bin/pleg-pipeline ./cmd/pleg-pipeline

# Where install puts the program: DESTDIR is for packages.
PREFIX ?= /usr/local

.PHONY: install
install: build ## install the program in PREFIX/bin (/usr/local/bin)
	install -D -m 0755 bin/pleg-pipeline $(DESTDIR)$(PREFIX)/bin/pleg-pipeline

# On a terminal, set -m gives the program its own process group: Ctrl-C then reaches
# only the program, and make sees its exit code.
.PHONY: run
run: build ## print the events of a simulated runtime until Ctrl-C
	@if [ -t 0 ] && [ -t 1 ]; then set -m; fi; bin/pleg-pipeline run --simulate $(ARGS)

.PHONY: run-fleet
run-fleet: build ## print the events of 20 simulated nodes, through a real nats-server
	@tests/real/fleet/run.sh $(ARGS)

# The race detector needs cgo, which needs a C compiler.
RACE = $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

# Many tests wait for a timeout or another process: the tests of two packages for each
# processor keep it busy.
PACKAGES = $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

# A program that the race detector checks sleeps for a second at its end, which is for the
# reports of other goroutines: the tests end with none.
test: export GORACE = atexit_sleep_ms=0
.PHONY: test
test: ## vet and test with the race detector: everything, or PKG and RUN
	$(GO) vet $(PKG)
	@[ -n "$(RACE)" ] || echo "no C compiler: the tests run without the race detector"
	$(GO) test $(RACE) -p $(PACKAGES) -timeout 20m$(if $(RUN), -run '$(RUN)') $(PKG)

# An embedder gets the versions in go.mod, or newer ones. The tests of "make test" use the newest,
# which the program needs.
.PHONY: test-lowest
test-lowest: ## build the library with the versions in its go.mod; test what uses them
	$(ALONE) vet ./...
	$(ALONE) test $(RACE) -timeout 10m . ./cri ./server ./client ./lookup ./node ./plegtest

.PHONY: lint
lint: tidy-check ## run the linters; check formatting and go.mod
	$(LINT) fmt --diff
	@set -e; lint=$(LINT); for module in $(MODULES); do \
		echo "lint $$module"; \
		(cd $$module && $$lint run); \
	done; for module in $(LINT_MODULES); do \
		echo "lint $$module"; \
		(cd $$module && GOWORK=off $$lint run); \
	done

# It takes seconds, so .ci/run begins with it: a change of tests/kit may need a change of
# every go.mod that replaces the main module.
.PHONY: tidy-check
tidy-check: ## check that the go.mod of each module in MODULES and LINT_MODULES is tidy
	@set -e; for module in $(MODULES) $(LINT_MODULES); do \
		$(ALONE) -C $$module mod tidy -diff || { echo "$$module/go.mod is not tidy: run make tidy" >&2; exit 1; }; \
	done

.PHONY: fmt
fmt: ## format the code
	$(LINT) fmt

# Go before 1.27 sometimes reports the end of FUZZTIME as a failure: go.dev/issue/75804.
.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME
	@set -e; log=$$(mktemp); trap 'rm -f $$log' EXIT; for package in $$($(GO) list -f '{{.Dir}}' work); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$(find $$package -maxdepth 1 -name '*_test.go') /dev/null); do \
			echo "$${package#$$PWD/} $$name"; \
			if ! $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$package >$$log 2>&1; then \
				cat $$log; \
				if grep -qE 'Failing input|seed corpus' $$log || ! grep -qx '    context deadline exceeded' $$log; then exit 1; fi; \
				echo "no input failed: the end of FUZZTIME, golang/go#75804"; \
			else tail -n 2 $$log; fi; \
		done; \
	done

.PHONY: faults
faults: ## run SEEDS random mixes of faults, and the long random tests
	$(GO) test -race -count=1 -timeout 2h ./tests/faults -run 'TestFaultMatrix|TestRandomFaults|TestEventStream' -faults.all -faults.seeds $(SEEDS) -faults.stream-seeds 8
	$(GO) test -race -count=1 -timeout 1h ./tests/invariants -run '^TestSlowRuntime$$' -invariants.all
	$(GO) test -race -count=1 -timeout 1h ./stage/dispatcher -run '^TestThreeSpeeds$$' -dispatcher.lives 100000
	$(GO) test -race -count=1 -timeout 1h ./cmd/pleg-pipeline/internal/otlp -run '^TestRandomFaults' -otlp.seeds 30

.PHONY: explore
explore: ## try every order of inputs of the differ in larger worlds
	$(GO) test -count=1 -timeout 2h -v ./stage/differ -run '^(TestSmallWorlds|TestExplore)$$' -differ.large -differ.runs 1000000

# Only some of them: make mutants MUTANTS="differ/ cri/reply". MUTANTS=-check only checks that the
# edits still fit.
MUTANTS ?=

.PHONY: mutants
mutants: ## break each rule once; its test must fail
	$(GO) run ./tests/mutants $(MUTANTS)

.PHONY: e2e
e2e: ## test with real containerd and runc; installs missing tools (as root)
	tests/real/e2e/setup.sh
	$(ALONE) test -C tests/real/e2e -race -count=1 -p 1 -parallel 6 -timeout 40m -skip '^(TestFaultMatrix|TestIdleWatchOfShims|TestKilledMonitorIsNamed)$$' ./...

# It compares processor time, so it needs an idle machine.
.PHONY: e2e-watch
e2e-watch: ## measure what the watch of 110 shims costs an idle daemon (as root)
	tests/real/e2e/setup.sh
	$(ALONE) test -C tests/real/e2e -count=1 -timeout 40m -v -run '^TestIdleWatchOfShims$$' .

# These tests start containerd 1.6 themselves, or have a target of their own.
E2E_CRIO_SKIP := ^(TestFaultMatrix|TestContainerd16|TestIdleWatchOfShims)$$
# Tests of polling, for CRI-O with its default settings.
E2E_POLLING := ^(TestStorm|TestFaultsInShort|TestLifeOfPod)$$

.PHONY: e2e-crio
e2e-crio: ## test with a real CRI-O, events on and off; builds it (as root)
	tests/real/e2e/setup.sh cri-o
	PLEG_E2E_RUNTIME=cri-o $(ALONE) test -C tests/real/e2e -race -count=1 -p 1 -parallel 3 -timeout 30m -skip '$(E2E_CRIO_SKIP)' ./...
	PLEG_E2E_RUNTIME=cri-o-without-events $(ALONE) test -C tests/real/e2e -race -count=1 -timeout 20m -run '$(E2E_POLLING)' .

# The runtimes of "make e2e-runtimes".
RUNTIMES ?= containerd-1.6 containerd-1.7 containerd cri-o cri-o-without-events

.PHONY: e2e-runtimes
e2e-runtimes: ## run the storm on each version of containerd and on CRI-O (as root)
	tests/real/e2e/setup.sh cri-o
	@set -e; for runtime in $(RUNTIMES); do \
		echo "storm on $$runtime"; \
		PLEG_E2E_RUNTIME=$$runtime $(ALONE) test -C tests/real/e2e -race -count=1 -timeout 20m -v -run '^TestStorm$$' .; \
	done

# Which rows of the matrix to run: make e2e-faults FAULTS=shim. PLEG_E2E_RUNTIME=cri-o
# runs them on CRI-O.
FAULTS ?= .

.PHONY: e2e-faults
e2e-faults: ## test faults of a real runtime and of the program (as root)
	tests/real/e2e/setup.sh $(PLEG_E2E_RUNTIME)
	$(ALONE) test -C tests/real/e2e -race -count=1 -timeout 40m -parallel 3 -v -run '^TestFaultMatrix$$/$(FAULTS)' .

# How long the page shows 1,000 pods: make test-browser PAGE_LOAD=10s
PAGE_LOAD ?= 2m

.PHONY: test-browser
test-browser: chromium ## test the page in Chromium (installs it as root)
	$(ALONE) test -C tests/real/browser -count=1 -timeout 20m -v . -page.load $(PAGE_LOAD)

.PHONY: screenshot
screenshot: chromium ## take the picture of the page for the README
	mkdir -p bin
	PLEG_PIPELINE_INSPECT_TIMEOUT=3s $(ALONE) test -C tests/real/browser -count=1 -run '^TestPictures$$/^hang$$' . -page.lasts 55s -page.pictures $(CURDIR)/bin
	mv bin/hang.png docs/page.png

.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }

.PHONY: test-kubelet
test-kubelet: ## test the drop-in for the kubelet; compiles much of Kubernetes
	$(ALONE) test -C kubelet -race ./...

.PHONY: test-fleet
test-fleet: ## test package fleet with real nats-servers and faults; builds them first
	$(ALONE) test -C tests/real/fleet -race -parallel 8 -timeout 10m ./...

# It compiles much of the Collector, so neither .ci/run nor "make lint" includes it.
.PHONY: test-otlp
test-otlp: ## test the OTLP exporter with a real OpenTelemetry Collector; builds it first
	$(ALONE) test -C tests/real/otlp -count=1 -timeout 20m ./...

# The older version: make test-skew SKEW=v0.1.0
SKEW ?= HEAD~300

.PHONY: test-skew
test-skew: ## test this program with the one of 300 commits ago, as daemon and as reader
	GO=$(GO) tests/real/skew/run.sh $(SKEW)

# How large the fleet is, such as FLEET="-nodes 20000 -pods 5 -connections 60 -three". It needs 20 GB, or 17 with GOMEMLIMIT=13GiB.
FLEET ?= -nodes 5000 -pods 110 -connections 50 -rate 2000 -duration 30s

.PHONY: fleet-scale
fleet-scale: ## measure a fleet of virtual nodes under faults (15 minutes)
	$(ALONE) test -C tests/real/fleet -run '^TestScale$$' -v -timeout 60m -count=1 . -args $(FLEET)

.PHONY: e2e-kubelet
e2e-kubelet: ## compare a stock kubelet with ours on a real runtime (as root)
	tests/real/kubelet/run.sh

# Which kubelets, how many pods, how often: make e2e-kubelet-restart SIZES=110 RUNS=5
KINDS ?= stock small-step both-steps pipeline
SIZES ?= 110 250 500
RUNS ?= 5
.PHONY: e2e-kubelet-restart
e2e-kubelet-restart: ## measure kubelets that restart beside up to 500 pods, 2 hours (as root)
	KUBELET_E2E_KINDS="$(KINDS)" KUBELET_E2E_SIZES="$(SIZES)" KUBELET_E2E_RUNS=$(RUNS) tests/real/kubelet/run.sh -run '^(TestKubeletRestart|TestQuantile)$$'

.PHONY: e2e-node
e2e-node: ## run the kubelet's own node e2e with stock and changed kubelets, hours (as root)
	tests/real/node-e2e/run.sh

# Only one step of it: make e2e-cluster CLUSTER="-test.run /upgrade"
CLUSTER ?=

.PHONY: e2e-cluster
e2e-cluster: ## test deploy/ in a real Kubernetes cluster of one node (as root)
	GO=$(GO) tests/real/cluster/run.sh $(CLUSTER)

# One kind of attack: make siege SIEGE="-only idle"
.PHONY: siege
siege: ## attack the program for 3 minutes beside 500 gRPC and 200 SSE readers
	@$(GO) build -ldflags '-X $(CLI).forTests=yes' -o bin/siege/pleg-pipeline ./cmd/pleg-pipeline
	@$(GO) build -o bin/siege/siege ./tests/siege
	@bin/siege/siege $(SIEGE)

.PHONY: bench
bench: ## compare with the kubelet's PLEG (25 minutes)
	$(MAKE) -C bench all

.PHONY: reproduce
reproduce: ## compare with the kubelet's PLEG, 10 minutes: the table of docs/dev/upstream.md
	$(MAKE) -C bench reproduce

.PHONY: upstream
upstream: ## apply the steps of docs/dev/upstream.md, test and measure them, 20 minutes
	cd kubelet && $(ALONE) run ./upstream $(GO) test -trimpath -race -count=1 -timeout 20m k8s.io/cri-client/pkg \
		k8s.io/kubernetes/pkg/kubelet k8s.io/kubernetes/pkg/kubelet/pleg k8s.io/kubernetes/pkg/kubelet/container k8s.io/kubernetes/pkg/kubelet/kuberuntime
	cd kubelet && $(ALONE) run ./upstream $(GO) test -trimpath -race -count=1 -run 'SameAsGenericPLEG|AgainstGenericPLEG' . -args -sequences 300
	$(MAKE) -C bench reproduce relistcost

.PHONY: bench-compare
bench-compare: ## compare the Go benchmarks with revision REF
	$(MAKE) -C bench compare REF=$(REF)

# VERSION and OUT of a release: make dist VERSION=v0.1.0 OUT=dist
.PHONY: dist
dist: ## build archives, packages, the image and an SBOM into dist/
	GO=$(GO) deploy/release/dist.sh

.PHONY: test-deploy
test-deploy: ## test manifests, alerts and dashboard (installs prometheus as root)
	@command -v promtool >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus; }
	$(ALONE) test -C deploy/test -count=1 ./...

.PHONY: test-clients
test-clients: ## test the clients of docs/clients.md (installs protoc and Python's gRPC as root)
	@dpkg-query -W python3-grpcio python3-protobuf protobuf-compiler >/dev/null 2>&1 || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-grpcio python3-protobuf protobuf-compiler; }
	$(ALONE) test -C tests/real/clients -count=1 ./...

.PHONY: test-dist
test-dist: ## build a release twice, compare, install and remove it (as root)
	GO=$(GO) deploy/release/test.sh

.PHONY: image
image: ## build the container image into dist/
	GO=$(GO) deploy/release/dist.sh image

.PHONY: tidy
tidy: ## tidy every go.mod
	for module in $(MODULES) $(LINT_MODULES) kubelet tests/real/fleet/oldserver; do $(ALONE) -C $$module mod tidy || exit; done

.PHONY: check
check: lint test ## run what must pass before you send a change
