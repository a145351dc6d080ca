# Builds, tests, and checks of this repository. "make" alone lists the targets.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
REVISION := $(shell git rev-parse HEAD 2>/dev/null)
# The modification time of files in images and archives: the time of the commit.
CREATED := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
LINT    := .build/tools/golangci-lint
HELM    := .build/tools/helm
VALE    := .build/tools/vale
CLUSTER := go run ./test/cluster/cmd/cluster
# The race detector needs a C compiler. Without one, the tests run without it and report so.
RACE    := $(shell command -v "$$(go env CC)" >/dev/null 2>&1 && echo -race)
# How long make fuzz runs each fuzz test.
FUZZTIME := 60s
# How many worlds make converge makes for each strategy.
WORLDS := 200
# The number of pods that make limits drains.
PODS := 300
# The duration of make faults, and its random seed. The default seed differs in each run.
MINUTES := 10
SEED :=
# Faults of make faults: those whose names match this regular expression. Empty means all.
ONLY :=
# Additional arguments of make bench and make demo.
ARGS :=
# The last line of the targets that take minutes.
BEGAN := $(shell date +%s)
TOOK   = @took=$$(($$(date +%s) - $(BEGAN))); echo "make $@ took $$((took / 60)) min $$((took % 60)) s"

.DEFAULT_GOAL := help
.PHONY: help build generate test ci test-all unit e2e limits faults faults-restarts compat converge bench bench-page pictures fuzz check format vet lint workflows walls chart demo cluster-up cluster-down clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The package with the version variables for the linker.
SETTINGS = github.com/rehome-dev/rehome/app/settings

# The build command for every platform. The same commit always gives the same bytes.
COMPILE = CGO_ENABLED=0 nice go build -trimpath -buildvcs=false \
  -ldflags '-s -w -X $(SETTINGS).Version=$(VERSION) -X $(SETTINGS).revision=$(REVISION)'

build: ## Build bin/rehome.
	$(COMPILE) -o bin/rehome ./cmd/rehome

# A program with its own module packs the images without a container engine. BASE is scratch,
# the directory of an OCI layout, or the name of an image in a registry. See docs/decisions/0012-own-images.md.
IMAGES    := .build/images
IMAGE     := ghcr.io/rehome-dev/rehome
BASE      := scratch
PLATFORMS := linux/amd64 linux/arm64
PACK      := .build/tools/images
PUSH      :=
PACKED     = -version '$(VERSION)' -revision '$(REVISION)' -created $(CREATED) -platforms '$(PLATFORMS)' -base '$(BASE)' $(if $(PUSH),-push)

.PHONY: images nats-image prometheus-image
images: $(PACK) ## Build the images for PLATFORMS into .build/images, on BASE=scratch.
	@set -e; for p in $(PLATFORMS); do \
	  dir=$(IMAGES)/bin/$${p%/*}-$${p#*/}; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(COMPILE) -o $$dir/rehome ./cmd/rehome; \
	done
	$(PACK) -name $(IMAGE) -title 'An event-driven descheduler for Kubernetes' -source https://github.com/rehome-dev/rehome \
	  $(PACKED) -binary '$(IMAGES)/bin/{platform}/rehome=/rehome' -binary LICENSE=/LICENSE \
	  -directory /var/lib/rehome -directory /etc/rehome/nats -env REHOME_STORE_DIR=/var/lib/rehome \
	  -label org.opencontainers.image.licenses=Apache-2.0 -out $(IMAGES)

# A release: archives, checksums, bills of materials, the manifests for krew and Homebrew, the image, and the charts, signed and
# with their provenance. SNAPSHOT=1 leaves the archives in .build/release. See docs/releasing.md.
SNAPSHOT :=
REGISTRY := ghcr.io/rehome-dev
.PHONY: release release-test release-tools
release: release-tools $(HELM) $(PACK) ## Release VERSION to REGISTRY and GitHub; with SNAPSHOT=1 to REGISTRY only.
	PATH="$(abspath .build/tools):$$PATH" SNAPSHOT=$(SNAPSHOT) hack/release.sh $(if $(SNAPSHOT),v0.1.0-snapshot.g$(shell git rev-parse --short HEAD),$(VERSION)) $(REGISTRY)

# Go verifies these versions with its checksum database. Their first build takes long: they have a thousand dependencies.
goreleaser = github.com/goreleaser/goreleaser/v2@v2.15.1
cosign     = github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
syft       = github.com/anchore/syft/cmd/syft@v1.57.1
registry   = github.com/distribution/distribution/v3/cmd/registry@v3.1.2
krew       = sigs.k8s.io/krew/cmd/krew@v0.4.3
release-test: controlplane release-tools $(HELM) $(PACK) .build/tools/registry .build/tools/krew ## Make a snapshot of a release, and use each part of it.
	go test -v -count 1 -timeout 60m ./test/release

release-tools: $(addprefix .build/tools/,goreleaser cosign syft)
.build/tools/goreleaser .build/tools/cosign .build/tools/syft .build/tools/registry .build/tools/krew:
	@echo "building $(@F)"
	@GOBIN=$(abspath .build/tools) CGO_ENABLED=0 nice go install -trimpath -ldflags '-s -w' $($(@F))

# An image of the NATS server in go.mod, for tests without a network.
nats-image: $(PACK)
	@set -e; for p in $(PLATFORMS); do \
	  dir=$(IMAGES)/bin/$${p%/*}-$${p#*/}; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(COMPILE) -o $$dir/nats-server github.com/nats-io/nats-server/v2; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(COMPILE) -o $$dir/wget ./test/images/wget; \
	done
	$(PACK) -name nats -title 'The NATS server, for tests' $(PACKED) -binary '$(IMAGES)/bin/{platform}/nats-server=/usr/local/bin/nats-server' \
	  -binary '$(IMAGES)/bin/{platform}/wget=/usr/local/bin/wget' -env PATH=/usr/local/bin -directory /var/lib/rehome -out $(IMAGES)/nats

# An image of the Prometheus server, for tests without a network. It has its own module. Without the service discoveries of
# clouds its first build takes two minutes. It has the API but not the web pages. Its data volume is /prometheus.
prometheus-image: $(PACK)
	@set -e; for p in $(PLATFORMS); do \
	  dir=$(abspath $(IMAGES))/bin/$${p%/*}-$${p#*/}; \
	  (cd test/tools/prometheus && GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 nice go build -trimpath -buildvcs=false \
	    -tags remove_all_sd -ldflags '-s -w' -o $$dir/prometheus github.com/prometheus/prometheus/cmd/prometheus); \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(COMPILE) -o $$dir/wget ./test/images/wget; \
	done
	$(PACK) -name prometheus -title 'The Prometheus server, for tests' $(PACKED) -binary '$(IMAGES)/bin/{platform}/prometheus=/bin/prometheus' \
	  -binary '$(IMAGES)/bin/{platform}/wget=/bin/wget' -env PATH=/bin -directory /prometheus -out $(IMAGES)/prometheus

# The parser of docker-compose.yaml for tests, from Docker Compose.
.build/tools/compose: $(wildcard test/tools/compose/*)
	cd test/tools/compose && nice go build -trimpath -o ../../../$@ .

$(PACK): $(wildcard test/tools/images/*)
	cd test/tools/images && nice go build -trimpath -o ../../../$@ .

# controller-gen has its own module. Go builds it once and caches it.
GENERATE := nice go tool -modfile test/tools/crds/go.mod controller-gen

generate: ## Generate everything that derives from Go: CRDs, schemas, AsyncAPI, reference pages, and files of the chart.
	$(GENERATE) object paths=./schemas/v1alpha1 output:object:dir=schemas/v1alpha1
	$(GENERATE) crd paths=./schemas/v1alpha1 output:crd:dir=deploy/crds
	UPDATE_GOLDEN=1 go test ./policy -run 'TestSchema$$|TestKeysPage'
	go run ./test/chart/generate deploy/helm
	go run ./hack/generate
	go run ./hack/pictures
	go test ./cli ./bus/credentials ./api -run 'TestReference|TestSettingsPage|TestOutputSchema|TestRightsPage|TestOpenAPI' -update
	go test ./cli -run 'TestCommandOutput/schemas_list' -update

# Three sets of tests. This one leaves the race detector, installations, the page, images, the rights of each key, and the comparison
# with kube-scheduler to make ci, so it needs neither a browser nor npm. The longest packages start first.
test: build controlplane $(VALE) ## Run the tests that protect correctness: the packages, without the race detector, and the core scenes.
	go test -p 3 -timeout 30m -skip '^(TestMinimalRights|TestPrefix)$$' ./bus ./cli ./app ./api \
	  $$(go list ./... | grep -vE '/test/(bench|chart|converge|crds|demo|deploy|e2e|fit|images|page|release|site)(/|$$)')
	$(CORE)
	$(TOOK)

ci: build lint unit e2e ## Run what each change must pass: the linter, the tests of all packages, with the race detector, and all end-to-end tests.
	$(TOOK)

test-all: ci ## Run all tests: also faults, limits, a snapshot of a release, other versions of Kubernetes, and fuzzing. It takes hours.
	$(MAKE) faults faults-restarts limits release-test compat converge fuzz vulncheck
	$(TOOK)

# The first run builds a control plane into .build/controlplane, in about six minutes on two cores. It is a separate target, so its
# progress is visible and does not count against the time limit of the tests.
.PHONY: controlplane
controlplane:
	$(CLUSTER) build

# These packages and their tests are sequential, which test/walls checks. The race detector would find nothing there, and the
# tests take up to ten times as long with it.
SEQUENTIAL = go list ./functions/... ./maintenance/plan ./policy ./schemas/... | grep -vE '/(functions|dispatch|httpfunction|post)$$'
.PHONY: sequential
sequential:
	@$(SEQUENTIAL)

# These tests run other processes or check images, manifests, and pages, so the race detector does not help.
WHOLE = go list ./test/chart/... ./test/crds ./test/deploy/... ./test/docs ./test/fit ./test/images/... ./test/page ./test/site ./test/walls

# Tests mostly wait for servers, so more of them run in parallel than there are cores. The longest ones start first.
unit: tested ## Run the tests of all packages, without the end-to-end tests.
	@$(MAKE) --no-print-directory -k -j 2 unit-whole unit-parts unit-rights

# Tools that tests need and do not build.
.PHONY: tested
tested: controlplane browser site $(PACK) .build/tools/compose $(HELM) $(VALE)
	@test -n "$(RACE)" || echo 'no C compiler: the race detector is off' >&2
	@docker version >/dev/null 2>&1 || echo 'no container engine: the images and docker-compose.yaml are read, but not run' >&2

# The tests of the page run Chromium, with a font, and axe-core. See docs/decisions/0023-browser-tests.md.
AXE_VERSION = 4.14.1
AXE_SUM     = 29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
AXE         = .build/tools/axe.min.js
.PHONY: browser
browser: $(AXE) ## Install Chromium and axe-core for the tests of the page; needs root on Debian.
	@command -v chromium >/dev/null || { apt-get update -q && apt-get install -q -y chromium fonts-inter; }

$(AXE):
	@command -v npm >/dev/null || { apt-get update -q && apt-get install -q -y --no-install-recommends npm; }
	@mkdir -p $(@D) && dir=$$(mktemp -d) && (cd $$dir && npm pack --silent axe-core@$(AXE_VERSION) >/dev/null && \
	  tar -xzf axe-core-$(AXE_VERSION).tgz package/axe.min.js && echo "$(AXE_SUM)  package/axe.min.js" | sha256sum -c --quiet -) && \
	  mv $$dir/package/axe.min.js $@ && rm -r $$dir

# The documentation site. Its tools come from npm, pinned by docs/site/package-lock.json; see docs/decisions/0026-vitepress.md.
# SITE_VERSION=v0.2 builds the site of a release, for the folder /v0.2/ of the server.
SITE_VERSION :=
SITE_WORK    := .build/site-work
SITE_PAGES   := README.md $(shell find docs -path docs/examples -prune -o -type f -print)
.PHONY: site site-serve
site: .build/site$(addprefix /,$(SITE_VERSION))/index.html ## Build the documentation site into .build/site.

.build/site$(addprefix /,$(SITE_VERSION))/index.html: $(SITE_PAGES) $(SITE_WORK)/node_modules/.package-lock.json
	@rm -rf $(SITE_WORK)/pages $(SITE_WORK)/.vitepress && mkdir -p $(SITE_WORK)/pages
	@cp -R docs/site/. $(SITE_WORK) && cp -R docs/*.md docs/images docs/decisions $(SITE_WORK)/pages
	@# These two pages come from other folders, so their links change.
	@sed 's#](\.\./#](#g' docs/site/index.md > $(SITE_WORK)/pages/index.md && rm $(SITE_WORK)/index.md
	@sed -E 's/^# Rehome$$/# First steps/; s#\]\(docs/#](#g; s#\]\((deploy/|[A-Z]+\)|CONTRIBUTING|SECURITY)#](../\1#g' README.md > $(SITE_WORK)/pages/first-steps.md
	cd $(SITE_WORK) && SITE_VERSION=$(SITE_VERSION) nice npm run --silent build

$(SITE_WORK)/node_modules/.package-lock.json: docs/site/package.json docs/site/package-lock.json
	@command -v npm >/dev/null || { apt-get update -q && apt-get install -q -y --no-install-recommends npm; }
	@mkdir -p $(SITE_WORK) && cp $^ $(SITE_WORK)
	cd $(SITE_WORK) && npm ci --no-audit --no-fund
	@touch $@

site-serve: site ## Show the documentation site at http://localhost:4173.
	cd $(SITE_WORK) && npx vitepress preview

# The time limit ends tests that hang. test/images builds everything for two platforms with nice, beside other tests. Without a
# cache that took 39 minutes on two cores.
UNIT_LIMIT = 60m

.PHONY: unit-parts unit-whole unit-rights
unit-parts:
	go test -p 2 $$($(SEQUENTIAL))
	go test $(RACE) -p 2 -timeout $(UNIT_LIMIT) ./actuator ./app ./bus ./cli \
	  $$(go list ./... | grep -vE '/test/(converge|e2e|release)(/|$$)' | grep -vxF "$$($(SEQUENTIAL); $(WHOLE))")
	go test -timeout 5m -run 'TestPredicted|TestFewestMoves' ./test/converge -args -worlds 500 -seed 21
	cd test/conformance && go test $(RACE) -timeout 5m ./...

unit-whole:
	go test -p 2 -timeout $(UNIT_LIMIT) ./test/deploy ./test/images ./test/docs $$($(WHOLE))
	cd test/monitoring && go test -timeout 10m ./...
	cd test/tools/kinds && go test -timeout 5m ./...

# These tests are built only without the race detector: they run thousands of jobs on hundreds of bus servers,
# which mostly wait.
unit-rights:
	go test -parallel 8 -timeout 20m -run 'TestMinimalRights|TestPrefix' ./bus

# Each folder of scenes has its own control plane. Two of them run at a time.
SCENES     = ./test/e2e/moves ./test/e2e/maintenance ./test/e2e/bus ./test/e2e/requests
END_TO_END = go test -v -count 1 -p 2 -timeout 30m -parallel 6

e2e: controlplane ## Run the end-to-end tests against real control planes.
	$(END_TO_END) $(SCENES)
	go test -v -count 1 -timeout 20m -skip TestFaultsDuringRestarts ./test/e2e/faults -args -core

# The scenes that use the most of the API of Kubernetes: moves by each strategy, protections, budgets, restarts, requests,
# maintenances, leases, and the roles with their own rights.
RELEASES ?= 1.35 1.36 1.37
CORE = $(END_TO_END) -run '^($(CORE_SCENES))$$' $(SCENES)
CORE_SCENES = TestChangeMovesMisplacedPods|TestBudgetDefersMove|TestReplacementFirst|TestPodLifeTime|TestTooManyRestarts|$\
	TestOverusedByLoad|TestRequestCommands|TestServiceAccountRequestsOverHTTP|TestMaintenanceWalkthrough|$\
	TestUserCordonDuringMaintenance|TestStandbyTakesOverDrain|TestOnceDrainsTaintedNode|TestRolesWithOwnRights|TestExplainPod

compat: controlplane $(HELM) ## Test the core scenes, the chart, and the scheduler with Kubernetes RELEASES="1.35 1.36 1.37".
	@for release in $(RELEASES); do \
	  echo "Kubernetes $$release"; \
	  export REHOME_TEST_KUBERNETES=$$release; \
	  $(CLUSTER) build && \
	  $(CORE) && \
	  go test -v -count 1 -timeout 20m ./test/fit && \
	  go test -v -count 1 -timeout 20m -run 'TestReleaseLifecycle|TestReachFromOutside' ./test/chart || exit 1; \
	done

limits: controlplane ## Drain PODS=300 under each limit of the policy in turn, and check the limit at every moment.
	go test -v -count 1 -timeout 30m -parallel 4 -run TestDrainKeepsLimits ./test/e2e/moves -args -pods $(PODS)

faults: controlplane ## Break everything around Rehome for MINUTES=10 during moves, and check that nothing is lost. ONLY='bus' selects faults.
	go test -v -count 1 -timeout $$(($(MINUTES) + 25))m -skip TestFaultsDuringRestarts ./test/e2e/faults \
	  -args -minutes $(MINUTES) $(if $(SEED),-seed $(SEED)) $(if $(ONLY),-only '$(ONLY)')

faults-restarts: controlplane ## Kill and pause Rehome in each step of restarts and maintenances, for 2 minutes and a fifth of MINUTES=10.
	go test -v -count 1 -timeout $$(($(MINUTES) + 20))m -run TestFaultsDuringRestarts ./test/e2e/faults -args -minutes $(MINUTES) $(if $(SEED),-seed $(SEED))

converge: controlplane ## Apply each strategy to WORLDS=200 random small clusters until nothing moves, beside a real kube-scheduler.
	go test -v -count 1 -timeout 60m ./test/converge -args -worlds $(WORLDS) $(if $(SEED),-seed $(SEED))

bench-page: browser ## Draw 5,000 nodes and 100,000 pods in Chromium, and measure frames, memory, and the server.
	go test -v -run '^$$' -bench BenchmarkPicture -benchtime 1x -timeout 20m ./test/page

pictures: browser controlplane ## Make the pictures of docs/ui.md.
	go test -count 1 -timeout 10m ./test/page -args -pictures

bench: ## Measure Rehome at scale and compare each result with its target.
	go run ./test/bench $(ARGS)

# Fuzz tests are found by name, so new ones run without a change here.
fuzz: ## Run every fuzz test for FUZZTIME=60s.
	@grep -rnHoE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' --exclude-dir=.build . | \
	  sed -E 's|/[^/]*:[0-9]+:func (Fuzz.*)| \1|' | sort | \
	  while read -r package name; do \
	    echo "$$package $$name"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package" || exit 1; \
	  done

check: format vet lint workflows prose walls unit ## Run all checks for a change, except end-to-end tests.

format: ## Check the format of Go files.
	@files=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	  test -z "$$files" || { echo "not formatted, run gofmt -w:"; echo "$$files"; exit 1; }

vet: ## Run go vet.
	go vet ./...

lint: $(LINT) ## Run the pinned linter with the rules of .golangci.yml.
	nice $(LINT) run ./...

# The linter has its own module, because it has 200 dependencies. Its first build takes 80 seconds on two cores.
$(LINT): test/tools/go.mod test/tools/go.sum
	@echo "building the linter, about 80 seconds"
	cd test/tools && nice go build -trimpath -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# actionlint has its own module, too.
ACTIONLINT := .build/tools/actionlint
$(ACTIONLINT): test/tools/workflows/go.mod test/tools/workflows/go.sum
	cd test/tools/workflows && nice go build -trimpath -o ../../../$@ github.com/rhysd/actionlint/cmd/actionlint

workflows: $(ACTIONLINT) ## Check the workflows of GitHub Actions.
	$(ACTIONLINT) -shellcheck= -pyflakes=

# Vale has its own module. It needs a C compiler for its parsers of code. See docs/decisions/0027-vale.md.
$(VALE): test/tools/vale/go.mod test/tools/vale/go.sum
	@command -v "$$(go env CC)" >/dev/null || { apt-get update -q && apt-get install -q -y --no-install-recommends gcc libc6-dev; }
	@echo "building vale, about 45 seconds"
	cd test/tools/vale && CGO_CFLAGS=-w nice go build -trimpath -o ../../../$@ github.com/vale-cli/vale/v3/cmd/vale

.PHONY: prose
prose: $(VALE) ## Check the language of README and docs with the rules of test/tools/vale/styles.
	@$(VALE) --output=line README.md CONTRIBUTING.md SECURITY.md docs

# govulncheck has its own module. It is not part of check, because it downloads the database of vulnerabilities.
VULNCHECK := .build/tools/govulncheck
VULNDB    := https://vuln.go.dev
$(VULNCHECK): test/tools/vuln/go.mod test/tools/vuln/go.sum
	cd test/tools/vuln && nice go build -trimpath -o ../../../$@ golang.org/x/vuln/cmd/govulncheck

# Exit code 3 means that a vulnerability was found.
.PHONY: vulncheck
vulncheck: $(VULNCHECK) ## Look for known vulnerabilities in code that the program calls; needs VULNDB=https://vuln.go.dev or a copy.
	@nice $(VULNCHECK) -db '$(VULNDB)' ./cmd/rehome || { code=$$?; test $$code = 3 || \
	  echo "nothing was checked: the database $(VULNDB) is needed; for a copy, set VULNDB=file:///DIRECTORY" >&2; exit $$code; }

# Helm has its own module, for the tests of the chart. Its first build takes three minutes on two cores.
$(HELM): test/tools/helm/go.mod test/tools/helm/go.sum
	@echo "building helm, about three minutes"
	cd test/tools/helm && CGO_ENABLED=0 nice go build -trimpath -ldflags '-s -w' -o ../../../$@ helm.sh/helm/v4/cmd/helm

chart: $(HELM) ## Check the charts and package them into bin.
	$(HELM) lint --strict deploy/helm/rehome deploy/helm/rehome-crds
	$(HELM) package deploy/helm/rehome deploy/helm/rehome-crds --destination bin

walls: ## Check the imports between packages.
	go test ./test/walls

KEEP :=
demo: build ## Demonstrate Rehome on a simulated cluster in a minute. KEEP=1 leaves it running until Ctrl-C.
	CGO_ENABLED=0 go build -trimpath -o .build/demo ./test/demo
	@# On a terminal, job control sends Ctrl-C to the demo alone: make would take it as an error.
	@if [ -t 0 ]; then set -m; .build/demo $(ARGS); else exec .build/demo $(ARGS); fi

cluster-up: ## Start a real control plane with 20 simulated nodes for experiments.
	$(CLUSTER) up --nodes 20

cluster-down: ## Stop the control plane and remove its data.
	$(CLUSTER) down

clean: ## Remove all build results, including the control plane, which takes about six minutes to build.
	rm -rf bin .build
