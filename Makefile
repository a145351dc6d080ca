# Everything that is done to this repository by hand or by a machine. "make" alone lists it.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
REVISION := $(shell git rev-parse HEAD 2>/dev/null)
# The time in everything that is built: that of the commit.
CREATED := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
LINT    := .build/tools/golangci-lint
HELM    := .build/tools/helm
CLUSTER := go run ./test/cluster/cmd/cluster
# The race detector needs a C compiler. On a machine without one the tests run without it, and say so.
RACE    := $(shell command -v "$$(go env CC)" >/dev/null 2>&1 && echo -race)
# How long make fuzz searches for each property.
FUZZTIME := 60s
# How many worlds make converge makes for each strategy.
WORLDS := 200
# How many pods make limits drains.
PODS := 300
# How long make faults breaks things, and the seed that says what is broken when; without one it takes another each time.
MINUTES := 10
SEED :=
# Where make generate writes to. A test has it write somewhere else and compares.
KINDS := schemas/v1alpha1
CRDS  := deploy/crds
CHART := deploy/helm/rehome
# Further arguments of make bench and make demo.
ARGS :=

.DEFAULT_GOAL := help
.PHONY: help build generate test unit e2e limits faults converge bench fuzz check format vet lint walls chart demo cluster-up cluster-down clean

help: ## List what there is.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Where the linker writes the version.
SETTINGS = github.com/rehome-dev/rehome/app/settings

# How the program is built, for whatever platform: the same commit is always the same bytes.
COMPILE = CGO_ENABLED=0 nice go build -trimpath -buildvcs=false \
  -ldflags '-s -w -X $(SETTINGS).Version=$(VERSION) -X $(SETTINGS).revision=$(REVISION)'

build: ## Build bin/rehome.
	$(COMPILE) -o bin/rehome ./cmd/rehome

# Images are packed by a program with a module of its own, like the linter; no container engine is needed. BASE is scratch,
# the directory of an OCI layout, or the name of an image in a registry. See docs/decisions/0012-own-images.md.
IMAGES    := .build/images
IMAGE     := ghcr.io/rehome-dev/rehome
BASE      := scratch
PLATFORMS := linux/amd64 linux/arm64
PACK      := .build/tools/images
PACKED     = -version '$(VERSION)' -revision '$(REVISION)' -created $(CREATED) -platforms '$(PLATFORMS)' -base '$(BASE)'

.PHONY: images nats-image prometheus-image archives
images: $(PACK) ## Build the images of PLATFORMS and what is in them, into .build/images, on BASE=scratch.
	@set -e; for p in $(PLATFORMS); do \
	  dir=$(IMAGES)/bin/$${p%/*}-$${p#*/}; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(COMPILE) -o $$dir/rehome ./cmd/rehome; \
	done
	$(PACK) -name $(IMAGE) -title 'An event-driven descheduler for Kubernetes' -source https://github.com/rehome-dev/rehome \
	  $(PACKED) -binary '$(IMAGES)/bin/{platform}/rehome=/rehome' -binary LICENSE=/LICENSE \
	  -directory /var/lib/rehome -directory /etc/rehome/nats -env REHOME_STORE_DIR=/var/lib/rehome \
	  -label org.opencontainers.image.licenses=Apache-2.0 -out $(IMAGES)

# What people download: the program of each platform as an archive, their sums, and the manifest of the plugin for krew.
ARCHIVES  := .build/archives
DOWNLOADS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
archives: ## Build the program for DOWNLOADS, as archives with their sums and a manifest for krew, into .build/archives.
	@set -e; for p in $(DOWNLOADS); do \
	  case $$p in windows/*) exe=.exe ;; *) exe= ;; esac; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(COMPILE) -o $(ARCHIVES)/bin/$${p%/*}-$${p#*/}/rehome$$exe ./cmd/rehome; \
	done
	go run ./test/archives -version '$(VERSION)' -created $(CREATED) -platforms '$(DOWNLOADS)' \
	  -programs $(ARCHIVES)/bin -out $(ARCHIVES)

# An image of the NATS server that is linked into the program, for tests without a network.
nats-image: $(PACK)
	@set -e; for p in $(PLATFORMS); do \
	  dir=$(IMAGES)/bin/$${p%/*}-$${p#*/}; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(COMPILE) -o $$dir/nats-server github.com/nats-io/nats-server/v2; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(COMPILE) -o $$dir/wget ./test/images/wget; \
	done
	$(PACK) -name nats -title 'The NATS server, for tests' $(PACKED) -binary '$(IMAGES)/bin/{platform}/nats-server=/usr/local/bin/nats-server' \
	  -binary '$(IMAGES)/bin/{platform}/wget=/usr/local/bin/wget' -env PATH=/usr/local/bin -directory /var/lib/rehome -out $(IMAGES)/nats

# An image of the Prometheus server, for tests without a network, like that of NATS. It has a module of its own, like the
# linter. Without the service discoveries of clouds it takes two minutes to build, once; its pages are not in the module, but
# its API is. /prometheus is where its data is mounted.
prometheus-image: $(PACK)
	@set -e; for p in $(PLATFORMS); do \
	  dir=$(abspath $(IMAGES))/bin/$${p%/*}-$${p#*/}; \
	  (cd test/tools/prometheus && GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 nice go build -trimpath -buildvcs=false \
	    -tags remove_all_sd -ldflags '-s -w' -o $$dir/prometheus github.com/prometheus/prometheus/cmd/prometheus); \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(COMPILE) -o $$dir/wget ./test/images/wget; \
	done
	$(PACK) -name prometheus -title 'The Prometheus server, for tests' $(PACKED) -binary '$(IMAGES)/bin/{platform}/prometheus=/bin/prometheus' \
	  -binary '$(IMAGES)/bin/{platform}/wget=/bin/wget' -env PATH=/bin -directory /prometheus -out $(IMAGES)/prometheus

# What reads docker-compose.yaml in tests, as Compose itself does.
.build/tools/compose: $(wildcard test/tools/compose/*)
	cd test/tools/compose && nice go build -trimpath -o ../../../$@ .

$(PACK): $(wildcard test/tools/images/*)
	cd test/tools/images && nice go build -trimpath -o ../../../$@ .

# controller-gen has a module of its own, like the linter. Go builds it once and keeps it in its cache.
GENERATE := nice go tool -modfile test/tools/crds/go.mod controller-gen

generate: ## Make what follows from the types in schemas/v1alpha1, and the chart's copies of what is in deploy.
	$(GENERATE) object paths=./schemas/v1alpha1 output:object:dir=$(KINDS)
	$(GENERATE) crd paths=./schemas/v1alpha1 output:crd:dir=$(CRDS)
	go run ./test/chart/copies $(CHART)/files

test: build unit e2e ## Run every test: of all packages, and then end to end.

# The first run builds a control plane into .build/controlplane, about six minutes on two cores. It is built on its own,
# so that its progress is seen and the time limit is that of the tests.
.PHONY: controlplane
controlplane:
	$(CLUSTER) build

# Nothing runs at once in these packages and their tests, and test/walls holds them to it: the race detector has nothing to
# find there, and they take up to ten times as long with it.
SEQUENTIAL = go list ./functions/... ./maintenance/plan ./policy ./schemas/... | grep -vE '/(functions|dispatch|httpfunction|post)$$'
.PHONY: sequential
sequential:
	@$(SEQUENTIAL)

# What these test are processes of their own, images, manifests and pages: they take no race detector either.
WHOLE = go list ./test/archives ./test/chart/... ./test/crds ./test/deploy/... ./test/docs ./test/fit ./test/images/... ./test/walls

# Tests wait for servers more than they compute, so more run at a time than two cores would have. Those that wait the longest
# begin first.
unit: tested ## Run the tests of all packages, without the end-to-end tests.
	@$(MAKE) --no-print-directory -k -j 2 unit-whole unit-parts

# What tests need and do not build themselves.
.PHONY: tested
tested: controlplane $(PACK) .build/tools/compose $(HELM)
	@test -n "$(RACE)" || echo 'no C compiler: the race detector is off' >&2
	@docker version >/dev/null 2>&1 || echo 'no container engine: the images and docker-compose.yaml are read, but not run' >&2

# The limit is there to end what hangs. test/images builds everything for two platforms, which takes a quarter of an hour when
# nothing of it is cached and the machine is busy.
UNIT_LIMIT = 40m

.PHONY: unit-parts unit-whole
unit-parts:
	go test -p 2 $$($(SEQUENTIAL))
	go test $(RACE) -p 3 -timeout $(UNIT_LIMIT) ./actuator ./app ./bus ./cli \
	  $$(go list ./... | grep -vE '/test/(converge|e2e|faults)$$' | grep -vxF "$$($(SEQUENTIAL); $(WHOLE))")
	cd test/conformance && go test $(RACE) -timeout 5m ./...

unit-whole:
	go test -p 3 -timeout $(UNIT_LIMIT) ./test/deploy ./test/images ./test/docs $$($(WHOLE))
	cd test/monitoring && go test -timeout 10m ./...
	cd test/tools/kinds && go test -timeout 5m ./...

# The tests of maintenances have a control plane of their own, beside that of the others.
MAINTENANCES = $$(grep -ohE '^func Test[A-Za-z0-9]+' test/e2e/maint*_test.go | cut -c6- | paste -sd '|')
END_TO_END   = go test -v -count 1 -timeout 30m -parallel 6 ./test/e2e

e2e: controlplane ## Run the end-to-end tests against real control planes.
	@$(MAKE) --no-print-directory -k -j 2 e2e-moves e2e-maintenances

.PHONY: e2e-moves e2e-maintenances
e2e-moves:
	$(END_TO_END) -skip "^($(MAINTENANCES))$$"

e2e-maintenances:
	$(END_TO_END) -run "^($(MAINTENANCES))$$"
	go test -v -count 1 -timeout 20m ./test/faults

limits: controlplane ## Drain PODS=300 under each limit of the policy in turn, and see that it holds at every moment.
	go test -v -count 1 -timeout 30m -parallel 4 -run TestADrainKeepsEveryLimit ./test/e2e -args -pods $(PODS)

faults: controlplane ## Kill and restart everything for MINUTES=10 while pods are moved, and see that nothing is lost.
	go test -v -count 1 -timeout $$(($(MINUTES) + 20))m ./test/faults -args -minutes $(MINUTES) $(if $(SEED),-seed $(SEED))

converge: controlplane ## Apply each strategy to WORLDS=200 random small clusters until nothing moves, beside a real kube-scheduler.
	go test -v -count 1 -timeout 60m ./test/converge -args -worlds $(WORLDS) $(if $(SEED),-seed $(SEED))

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

# Helm has a module of its own, too, for the tests of the chart. Building it once takes three minutes on two cores.
$(HELM): test/tools/helm/go.mod test/tools/helm/go.sum
	@echo "building helm, about three minutes"
	cd test/tools/helm && CGO_ENABLED=0 nice go build -trimpath -ldflags '-s -w' -o ../../../$@ helm.sh/helm/v4/cmd/helm

chart: $(HELM) ## Check the chart and package it into bin.
	$(HELM) lint --strict deploy/helm/rehome
	$(HELM) package deploy/helm/rehome --destination bin

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
