# Everything here needs make, sh and the Go named in go.mod; "make e2e" and "make
# bench-full" need root, and a network with Debian's packages.

GO ?= go
FUZZTIME ?= 10s
SEEDS ?= 1000
# What "make run" passes to the program, such as: make run ARGS="-o json"
ARGS ?=
# How long "make soak" takes, and what it soaks beside.
DURATION ?= 30m
SOAKS ?= soak-simulated soak-containerd

LINT := $(GO) tool -modfile=tools.mod golangci-lint
# Modules of their own that are linted too. Not those with all of Kubernetes in them, which take longer to check than
# everything else: make lint LINT_MODULES="kubelet bench/kubelet"
LINT_MODULES ?= tests/e2e kubelet/e2e bench/harness bench/containerd

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/pleg-pipeline
	@echo "building bin/pleg-pipeline"
	@$(GO) build -o bin/pleg-pipeline ./cmd/pleg-pipeline

# On a terminal the program runs as a job of its own (set -m), so that Ctrl-C
# ends the program, in order, and make sees its exit code instead of the signal.
.PHONY: run
run: build ## print the events of a simulated runtime until Ctrl-C
	@if [ -t 0 ] && [ -t 1 ]; then set -m; fi; bin/pleg-pipeline run --simulate $(ARGS)

.PHONY: test
test: ## vet and test with the race detector; needs no root and no runtime
	$(GO) vet ./...
	$(GO) test -race -timeout 20m ./...

.PHONY: lint
lint: ## check style, and that go.mod is tidy
	$(LINT) run
	$(LINT) fmt --diff
	$(GO) mod tidy -diff
	@set -e; lint=$$($(GO) tool -modfile=tools.mod -n golangci-lint); for module in $(LINT_MODULES); do \
		echo "lint $$module"; \
		(cd $$module && $$lint run && $(GO) mod tidy -diff); \
	done

.PHONY: fmt
fmt: ## format the code
	$(LINT) fmt

# Go before 1.27 sometimes reports the end of FUZZTIME as a failure: go.dev/issue/75804.
.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME
	@set -e; log=$$(mktemp); trap 'rm -f $$log' EXIT; for package in $$($(GO) list ./...); do \
		names=$$($(GO) test -list '^Fuzz' $$package); \
		for name in $$names; do \
			case $$name in Fuzz*) ;; *) continue ;; esac; \
			echo "$$package $$name"; \
			if ! $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$package >$$log 2>&1; then \
				cat $$log; \
				if grep -qE 'Failing input|seed corpus' $$log || ! grep -qx '    context deadline exceeded' $$log; then exit 1; fi; \
				echo "no input failed: the end of FUZZTIME, golang/go#75804"; \
			else tail -n 2 $$log; fi; \
		done; \
	done

.PHONY: faults
faults: ## run SEEDS random mixes of faults and model sequences, and the long random tests
	$(GO) test -race -count=1 -timeout 2h ./tests/faults -run TestRandomFaults -faults.seeds $(SEEDS)
	$(GO) test -race -count=1 -timeout 2h ./tests/model -model.seeds $(SEEDS)
	$(GO) test -race -count=1 -timeout 1h ./tests/contract -run '^TestContractRandom' -contract.seeds 10
	$(GO) test -race -count=1 -timeout 1h ./tests/hints -run 'Faults|Flood' -hints.seeds 5 -hints.flood 100000

# Only some of them: make mutants MUTANTS="differ 42-"
MUTANTS ?=

.PHONY: mutants
mutants: ## break each rule once; its test must fail
	@sh tests/mutants/run.sh $(MUTANTS)

.PHONY: mutants-check
mutants-check: ## check that every patch of "make mutants" still applies
	@sh tests/mutants/run.sh --check $(MUTANTS)

.PHONY: e2e
e2e: ## test with real containerd and runc; installs what it needs (as root)
	tests/e2e/setup.sh
	$(GO) test -C tests/e2e -race -count=1 -p 1 -timeout 30m -skip '^TestFaultMatrix$$' ./...

# Rows of the matrix, such as: make e2e-faults FAULTS=shim
FAULTS ?= .

.PHONY: e2e-faults
e2e-faults: ## break a real containerd and our own program in every way we know (as root)
	tests/e2e/setup.sh
	$(GO) test -C tests/e2e -race -count=1 -timeout 40m -parallel 3 -v -run '^TestFaultMatrix$$/$(FAULTS)' .

.PHONY: test-kubelet
test-kubelet: ## test the drop-in for the kubelet; compiles much of Kubernetes
	$(GO) test -C kubelet -race ./...

.PHONY: e2e-kubelet
e2e-kubelet: ## run two kubelets, stock and ours, side by side on containerd (as root)
	kubelet/e2e/run.sh

# Both at once, each with a report of its own in bin/.
.PHONY: soak
soak: build ## soak the program for DURATION: simulated runtime and, as root, containerd
	@$(MAKE) --no-print-directory -j2 $(SOAKS) DURATION=$(DURATION)

.PHONY: soak-simulated
soak-simulated: build
	@$(GO) build -o bin/soak-simulated ./tests/soak/simulated
	@bin/soak-simulated -duration $(DURATION) -out bin/soak-simulated.json

.PHONY: soak-containerd
soak-containerd: build
	@tests/e2e/setup.sh
	@$(GO) build -C tests/e2e -o ../../bin/soak-containerd ./soak
	@cd tests/e2e && ../../bin/soak-containerd -program ../../bin/pleg-pipeline -duration $(DURATION) -out ../../bin/soak-containerd.json

.PHONY: bench
bench: ## compare with the serial baseline and the kubelet's PLEG (some 40 minutes)
	$(MAKE) -C bench quick

.PHONY: bench-full
bench-full: ## the same with all scenarios, real containerd among them (as root)
	tests/e2e/setup.sh
	$(MAKE) -C bench full

.PHONY: bench-compare
bench-compare: ## Go benchmarks against another revision: make bench-compare REF=main
	$(MAKE) -C bench compare REF=$(REF)

.PHONY: cover
cover: ## test and show the coverage of each package
	$(GO) test -coverprofile=coverage.out -coverpkg=./... ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: tidy
tidy: ## tidy every go.mod
	for module in . tests/e2e bench/harness bench/kubelet bench/containerd kubelet kubelet/e2e; do $(GO) -C $$module mod tidy || exit; done

.PHONY: check
check: lint test ## what has to pass before a change is handed in
