# Everything that is done to this repository by hand or by a machine. "make" alone lists it.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
LINT    := .build/tools/golangci-lint
CLUSTER := go run ./test/cluster/cmd/cluster
# The race detector needs a C compiler. On a machine without one the tests run without it, and say so.
RACE    := $(shell command -v "$$(go env CC)" >/dev/null 2>&1 && echo -race)
# How long make fuzz searches for each property.
FUZZTIME := 60s
# How many pods make limits drains.
PODS := 300
# How long make faults breaks things, and the seed that says what is broken when; without one it takes another each time.
MINUTES := 10
SEED :=
# Further arguments of make bench and make demo.
ARGS :=

.DEFAULT_GOAL := help
.PHONY: help build test unit e2e limits faults bench fuzz check format vet lint walls demo cluster-up cluster-down clean

help: ## List what there is.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build bin/rehome.
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/rehome ./cmd/rehome

test: build unit e2e ## Run every test: the program, its parts with the race detector, then end to end.

# The first run builds a control plane into .build/controlplane, about six minutes on two cores. It is built on its own,
# so that its progress is seen and the time limit is that of the tests.
.PHONY: controlplane
controlplane:
	$(CLUSTER) build

# Most of these tests wait for servers more than they compute, so more packages run at a time than two cores would have.
unit: controlplane ## Run the tests of all packages with the race detector, without the end-to-end tests.
	@test -n "$(RACE)" || echo 'no C compiler: the race detector is off' >&2
	go test $(RACE) -p 4 -timeout 15m $$(go list ./... | grep -vE '/test/(e2e|faults)$$')
	cd test/conformance && go test $(RACE) -timeout 5m ./...

e2e: controlplane ## Run the end-to-end tests against a real control plane.
	go test -v -count 1 -timeout 30m -parallel 6 ./test/e2e/...
	go test -v -count 1 ./test/faults

limits: controlplane ## Drain PODS=300 under each limit of the policy in turn, and see that it holds at every moment.
	go test -v -count 1 -timeout 30m -parallel 4 -run TestADrainKeepsEveryLimit ./test/e2e -args -pods $(PODS)

faults: controlplane ## Kill and restart everything for MINUTES=10 while pods are moved, and see that nothing is lost.
	go test -v -count 1 -timeout $$(($(MINUTES) + 10))m ./test/faults -args -minutes $(MINUTES) $(if $(SEED),-seed $(SEED))

bench: ## Measure Rehome at scale and print each figure beside its target.
	go run ./test/bench $(ARGS)

# The fuzz tests are found by their names, so a new one is run without being listed here.
fuzz: ## Search for counter-examples to every fuzz test, FUZZTIME=60s each.
	@grep -rnHoE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' --exclude-dir=.build . | \
	  sed -E 's|/[^/]*:[0-9]+:func (Fuzz.*)| \1|' | sort | \
	  while read -r package name; do \
	    echo "$$package $$name"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package" || exit 1; \
	  done

check: format vet lint walls unit ## Everything that must hold before a change is merged, except end to end.

format: ## Fail when a Go file is not formatted.
	@files=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	  test -z "$$files" || { echo "not formatted, run gofmt -w:"; echo "$$files"; exit 1; }

vet: ## Run go vet.
	go vet ./...

lint: $(LINT) ## Run the pinned linter with the rules of .golangci.yml.
	nice $(LINT) run ./...

# The linter has a module of its own, so that none of its 200 dependencies is one of ours. Building it once takes 80 seconds
# on two cores.
$(LINT): test/tools/go.mod test/tools/go.sum
	@echo "building the linter, about 80 seconds"
	cd test/tools && nice go build -trimpath -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

walls: ## Check which package imports which.
	go test ./test/walls

demo: build ## Show in a minute what Rehome does, on a simulated cluster.
	go run ./test/demo $(ARGS)

cluster-up: ## Start a real control plane with 20 simulated nodes to try things on.
	$(CLUSTER) up --nodes 20

cluster-down: ## Stop it and remove all of it.
	$(CLUSTER) down

clean: ## Remove everything that was built; the next test builds the control plane again, about six minutes.
	rm -rf bin .build
