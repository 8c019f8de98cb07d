# Everything here needs make, sh and the Go named in go.mod. "make e2e" also
# needs root and what e2e/setup.sh installs.

GO ?= go
FUZZTIME ?= 10s
# What "make run" passes to the program, such as: make run ARGS="-o json"
ARGS ?=
BENCH ?= .

LINT := $(GO) tool -modfile=tools.mod golangci-lint

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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
	$(GO) test -race ./...

.PHONY: lint
lint: ## check style, and that go.mod is tidy
	$(LINT) run
	$(LINT) fmt --diff
	$(GO) mod tidy -diff

.PHONY: fmt
fmt: ## format the code
	$(LINT) fmt

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME
	@set -e; for package in $$($(GO) list ./...); do \
		names=$$($(GO) test -list '^Fuzz' $$package); \
		for name in $$names; do \
			case $$name in Fuzz*) ;; *) continue ;; esac; \
			echo "$$package $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

.PHONY: e2e
e2e: ## test with real containerd and runc (as root, after e2e/setup.sh)
	$(GO) test -C e2e -count=1 -timeout 15m ./...

.PHONY: bench
bench: ## run the benchmarks that match BENCH
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

.PHONY: cover
cover: ## test and show the coverage of each package
	$(GO) test -coverprofile=coverage.out -coverpkg=./... ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: tidy
tidy: ## tidy go.mod
	$(GO) mod tidy

.PHONY: check
check: lint test ## what has to pass before a change is handed in
