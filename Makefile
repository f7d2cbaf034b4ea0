# Short names for the commands of this project. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where `install` puts things: DESTDIR in front, for packages and images. They have the plugin where the node's server finds it and copies it from
# (CNI_BIN_DIR=/usr/libexec/cni): a package that is removed must not take it from pods that are attached.
DESTDIR ?=
CNI_BIN_DIR ?= /opt/cni/bin
# How `build` compiles: release, or dist, which is for releases and has to be small (Cargo.toml).
PROFILE ?= release
# What executables, packages, images and releases are for: amd64 or arm64. What is not for this machine is in target/ARCH instead of target.
HOST_ARCH := $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(shell uname -m)))
ARCH ?= $(HOST_ARCH)
export ARCH
MACHINE := $(patsubst amd64,x86_64,$(patsubst arm64,aarch64,$(ARCH)))
FOREIGN := $(filter-out $(HOST_ARCH),$(ARCH))
# The plugin is copied to hosts of any distribution, so both executables are static.
STATIC ?= $(MACHINE)-unknown-linux-musl
# Two libraries have parts in C: ring, the cryptography below TLS, and jemalloc, which needs musl's headers.
CC_OF_STATIC := CC_$(subst -,_,$(STATIC))
ifeq ($(FOREIGN),)
export $(CC_OF_STATIC) ?= musl-gcc
else
CROSS := $(CC_OF_STATIC)=$$(integration/cross.sh cc $(ARCH)) \
	CARGO_TARGET_$(shell tr a-z- A-Z_ <<<"$(STATIC)")_LINKER=$(MACHINE)-linux-gnu-gcc
# Runs the executables.
RUN := qemu-$(MACHINE)-static
endif
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
OUT := $(TARGET_DIR)$(if $(FOREIGN),/$(ARCH))
BIN := $(OUT)/bin
DOCUMENTS := $(OUT)/documents
# Beside the executables: images have both.
SBOM := $(BIN)/sbom
STAGE := $(OUT)/stage
# Of the workspace: what --version says.
VERSION_BUILT = $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
IMAGES := $(OUT)/images
# Where cargo puts them.
BUILT := $(TARGET_DIR)/$(STATIC)/$(patsubst dev,debug,$(PROFILE))
# Tests stop and kill the plugin at any stage; an installed plugin has no such failpoints.
TEST_FEATURES := cni/failpoints,ovnkube/failpoints
# What tests are built from. One selection everywhere: libraries have the features that all of it asks for, and another one would compile them again.
TESTED := --locked --workspace --features $(TEST_FEATURES)
BUILD_TESTS := cargo build $(TESTED) --bins --tests
# For commands that start no tests. With SHARED=1 it is what tests have built already.
BUILD_LAB := $(if $(filter-out 0 no,$(SHARED)),$(BUILD_TESTS),cargo build --locked -p cni -p ovnkube -p integration)

# Of the commands that run upstream's programs.
UPSTREAM_DIR = $(or $(UPSTREAM),$(error UPSTREAM=DIR with upstream's two executables is missing))

# No target is a file.
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## List these commands
	@echo 'To see it work: make demo. To build it: make build, then make install. What else there is:'
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

build: ## Build ovn-k8s-cni-overlay and ovnkube, static, into target/bin (ARCH=arm64 for another architecture, into target/arm64; also for what follows up to `image`)
	@integration/prerequisites.sh $(if $(FOREIGN),$(ARCH),build)
	# One job more than processors: the plugin's link-time optimisation, which keeps one busy for long, does not wait for the others' end.
	$(CROSS) RUSTC_WRAPPER=$(abspath integration/rustc-wrapper.sh) RUSTFLAGS="$${RUSTFLAGS-} -C embed-bitcode=yes" cargo build --locked --profile $(PROFILE) \
		--target $(STATIC) --jobs $$(($$(nproc) + 1)) -p cni --bin ovn-k8s-cni-overlay -p ovnkube --bin ovnkube
	install -D -t $(BIN) $(BUILT)/ovn-k8s-cni-overlay $(BUILT)/ovnkube

install: build sbom ## Install them with their configuration (DESTDIR=… for a package)
	install -D -m 755 $(BIN)/ovn-k8s-cni-overlay $(DESTDIR)$(CNI_BIN_DIR)/ovn-k8s-cni-overlay
	install -D -m 755 $(BIN)/ovnkube $(DESTDIR)/usr/bin/ovnkube
	# Scripts call nics-to-bridge and bridges-to-nic under these names.
	ln -sf ovnkube $(DESTDIR)/usr/bin/ovn-kube-util
	ln -sf ovnkube $(DESTDIR)/usr/bin/kubectl-ovn
	ln -sf ovnkube $(DESTDIR)/usr/bin/ovn-k8s-util
	# Programs of 2016 to 2018.
	ln -sf ovnkube $(DESTDIR)/usr/bin/ovn-k8s-overlay
	ln -sf ovnkube $(DESTDIR)/usr/bin/ovn-k8s-gateway-helper
	ln -sf ovnkube $(DESTDIR)/usr/bin/ovn-k8s-watcher
	install -D -m 644 -t $(DESTDIR)/usr/share/doc/ovn-kubernetes/sbom $(SBOM)/*.cdx.json
	install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/system conf/ovnkube-node.service conf/ovnkube-master.service
	install -D -m 644 conf/pod.yaml $(DESTDIR)/usr/share/doc/ovn-kubernetes/examples/pod.yaml
	$(RUN) $(BIN)/ovnkube --generate-documents $(DOCUMENTS)
	install -D -m 644 -t $(DESTDIR)/usr/share/man/man8 $(DOCUMENTS)/man8/*
	install -D -m 644 -t $(DESTDIR)/usr/share/man/man5 $(DOCUMENTS)/man5/*
	install -D -m 644 $(DOCUMENTS)/completions/ovnkube.bash $(DESTDIR)/usr/share/bash-completion/completions/ovnkube
	install -D -m 644 $(DOCUMENTS)/completions/_ovnkube $(DESTDIR)/usr/share/zsh/vendor-completions/_ovnkube
	install -D -m 644 $(DOCUMENTS)/completions/ovnkube.fish $(DESTDIR)/usr/share/fish/vendor_completions.d/ovnkube.fish
	install -D -m 644 -t $(DESTDIR)/usr/share/ovn-kubernetes/kubernetes conf/kubernetes/*.yaml conf/kubernetes/Kustomization
	install -D -m 644 -t $(DESTDIR)/usr/share/ovn-kubernetes/kubernetes/openshift conf/kubernetes/openshift/*.yaml conf/kubernetes/openshift/Kustomization
	install -d $(DESTDIR)/usr/share/ovn-kubernetes/helm
	cp -R conf/helm/ovn-kubernetes $(DESTDIR)/usr/share/ovn-kubernetes/helm/
	install -D -m 644 -t $(DESTDIR)/usr/share/ovn-kubernetes/monitoring conf/monitoring/*
	# Keep an administrator's own settings.
	test -e $(DESTDIR)/etc/logrotate.d/ovn-kubernetes || install -D -m 644 conf/logrotate.d/ovn-kubernetes $(DESTDIR)/etc/logrotate.d/ovn-kubernetes
	test -e $(DESTDIR)/etc/openvswitch/ovn_k8s.conf || install -D -m 644 conf/ovn_k8s.conf $(DESTDIR)/etc/openvswitch/ovn_k8s.conf

packages: ## Make packages of them, .deb and .rpm, in target/packages
	@integration/prerequisites.sh packages
	@$(MAKE) --no-print-directory stage
	integration/packages/build.sh $(STAGE) $(VERSION_BUILT) $(OUT)/packages

test-packages: ## Install, upgrade, remove and purge these packages (ROOTS="this bookworm trixie sid rpm")
	@integration/prerequisites.sh packages compat
	@$(MAKE) --no-print-directory stage
	integration/packages/test.sh $(STAGE) $(ROOTS)

release: ## Make a release, with sums, bills of materials and provenance, from two builds that have to be the same (VERSION=1.2.3 SIGN_KEY=…)
	@integration/release.sh make $(or $(VERSION),$(error VERSION=$(VERSION_BUILT) is missing))

rehearse-release: ## Try everything of a release but its two builds, with what `make build` builds, and the packages on this machine's root
	@integration/prerequisites.sh packages
	@$(MAKE) --no-print-directory stage
	@integration/release.sh rehearse $(STAGE)
	@integration/packages/test.sh $(STAGE) this rpm

stage: # What packages contain.
	rm -rf $(STAGE)
	@$(MAKE) --no-print-directory install DESTDIR=$(abspath $(STAGE)) CNI_BIN_DIR=/usr/libexec/cni >/dev/null

clean: ## Remove what these commands made in the checkout (what they keep for all checkouts is in ~/.cache/ovn-kubernetes)
	rm -rf $(TARGET_DIR)

image: build sbom ## Make the images ovn-kube (with Open vSwitch and OVN) and ovn-kubernetes-node in target/images, without a builder of images (NAME=netdev22:5000/ovn-kube TAG=latest for the first one's name)
	@integration/prerequisites.sh image
	@conf/image/image.sh archive ovn-kube $(BIN) $(IMAGES)/ovn-kube.tar
	@env -u NAME -u TAG conf/image/image.sh archive ovn-kubernetes-node $(BIN) $(IMAGES)/ovn-kubernetes-node.tar

image-lock: ## Take the versions of packages that Debian has today for the image ovn-kube
	@integration/prerequisites.sh image
	conf/image/image.sh lock ovn-kube

docs: ## Write manual pages, shell completion and the options file into target/documents, and the reference pages of docs/
	cargo build --locked -p ovnkube --bin ovnkube
	$(TARGET_DIR)/debug/ovnkube --generate-documents $(DOCUMENTS)
	install -m 644 -t docs $(DOCUMENTS)/reference/*.md

sbom: ## Write a bill of materials (CycloneDX) of each executable into target/bin/sbom
	@integration/prerequisites.sh sbom
	integration/sbom.sh $(SBOM) $(STATIC)

demo: ## See it work: two nodes, pods, packets between them (KEEP=1 leaves them until Ctrl-D)
	@integration/prerequisites.sh demo
	cargo build --locked -p cni -p ovnkube -p integration
	@$(TARGET_DIR)/debug/integration demo $(if $(filter-out 0 no,$(KEEP)),--keep)

cluster: kubernetes ## Start a whole Kubernetes with two nodes, and a shell with kubectl; it ends with the shell (GATEWAY=local or none; else shared)
	cargo build --locked -p cni -p ovnkube -p integration
	@$(TARGET_DIR)/debug/integration cluster $(if $(GATEWAY),--gateway-mode $(GATEWAY))

kubernetes: # The programs of a cluster: built once for this machine, kept in ~/.cache.
	@integration/prerequisites.sh cluster
	@mkdir -p $(TARGET_DIR)
	@integration/cluster/programs.sh $(TARGET_DIR)/kubernetes >/dev/null

test: ## Run every test (as root: the lab makes namespaces)
	@integration/prerequisites.sh test
	# The tests start these executables; a test that had to build them would time out.
	$(BUILD_TESTS)
	cargo test $(TESTED) --quiet --doc
	cargo nextest run $(TESTED)

test-page: ## Look at the page of `ovnkube status -o html` with a real browser, wide, narrow and dark; screenshots are left in target/page
	@integration/prerequisites.sh browser test
	$(BUILD_TESTS)
	cargo nextest run $(TESTED) --profile page --no-capture

test-compat: ## Run the tests with Open vSwitch and OVN of other Debian releases (SUITES="trixie sid")
	@integration/prerequisites.sh test compat
	$(BUILD_TESTS)
	@TEST_FEATURES=$(TEST_FEATURES) integration/compat.sh test $(SUITES)

test-kernel: ## Run tests of the lab on the kernel's datapath, in a virtual machine (QUICK=1 for five minutes, TESTS="attach limits:a_limited", SUITE=trixie)
	@integration/prerequisites.sh kernel
	$(BUILD_TESTS)
	@SUITE=$(SUITE) QUICK=$(QUICK) integration/kernel/test.sh $(TESTS)

test-uplinks: ## Start a virtual machine again and again whose NIC a real DHCP client configures (SCENARIOS="networkd-refused ifupdown-moved-two", BOOTS=10)
	@integration/prerequisites.sh kernel compat
	cargo build --locked -p ovnkube
	@BOOTS=$(BOOTS) integration/kernel/uplinks.sh $(SCENARIOS)

test-arm64: ## Build executables and images for arm64, and try them under emulation (PROFILE=dev compiles in a third of the time)
	@$(MAKE) --no-print-directory image ARCH=arm64
	@integration/cross.sh try arm64 $(TARGET_DIR)/arm64/bin $(TARGET_DIR)/arm64/images

test-image-builder: build sbom ## Build the image ovn-kube by its Dockerfile with a real builder (buildah), and compare it with what `make image` makes
	@integration/prerequisites.sh image image-builder
	@integration/image-builder.sh $(BIN)

test-reboots: ## Install the .deb in a virtual machine, and start it again and again while no API server answers, every second time after a power cut (BOOTS=10)
	@integration/prerequisites.sh kernel compat packages
	@$(MAKE) --no-print-directory stage
	@BOOTS=$(BOOTS) integration/kernel/reboots.sh $(STAGE)

test-cluster: build sbom kubernetes ## Run the tests with a whole Kubernetes: kubelets, containerd and what `make build` builds (CONTAINERD=2 for version 2 in all of them, QUICK=1 without those that wait for minutes)
	@integration/prerequisites.sh cluster test
	# The lab has no network from which it could come.
	@ANY_VERSIONS=1 conf/image/image.sh layer ovn-kube >/dev/null
	$(BUILD_TESTS)
	OVN_CNI_BIN_DIR=$(abspath $(BIN)) OVN_CLUSTER_CONTAINERD=$(CONTAINERD) cargo nextest run $(TESTED) --profile cluster$(if $(filter-out 0 no,$(QUICK)),-quick)
	# Rows of both matrices that need Kubernetes, with the executables of `make test`.
	cargo nextest run $(TESTED) --profile cluster-faults

conformance: kubernetes ## Run Kubernetes' own specs of networking and the suites of network-policy-api on a cluster (SUITE_OF=kubernetes or network-policy-api, FOCUS='Services should' LANE=ipv4 NODES=3 PROCS=4 GATEWAY=shared, QUICK=1 for ten of them, RECORD=1)
	@integration/prerequisites.sh conformance
	@integration/cluster/conformance.sh $(TARGET_DIR)/conformance-suite >/dev/null
	# The ten specs of QUICK are none of its suites.
	@$(if $(filter-out 0 no,$(QUICK)),,integration/cluster/network-policy-api.sh $(TARGET_DIR)/network-policy-api >/dev/null)
	$(BUILD_LAB)
	# Debian 12's ovs-vswitchd ends under the suite's parallel connections.
	@$(if $(filter-out 0 no,$(SHARED)),OVN_CNI_BIN_DIR=$(abspath $(BIN))) integration/compat.sh with $(or $(SUITE),sid) $(TARGET_DIR)/debug/integration conformance $(if $(LANE),--lane $(LANE)) $(if $(NODES),--nodes $(NODES)) \
		$(if $(PROCS),--procs $(PROCS)) $(if $(GATEWAY),--gateway-mode $(GATEWAY)) $(if $(filter-out 0 no,$(QUICK)),--quick) $(if $(filter-out 0 no,$(RECORD)),--record) \
		$(if $(SUITE_OF),--suite-of $(SUITE_OF)) $(if $(FOCUS),--focus '$(FOCUS)')

takeover: kubernetes ## Take over a node of upstream's while its connections go on, and hand it back (UPSTREAM=DIR with its two executables, SERVICES=500 GATEWAY=local)
	cargo build --locked -p cni -p ovnkube -p integration
	@integration/compat.sh with $(or $(SUITE),sid) $(TARGET_DIR)/debug/integration takeover --upstream $(UPSTREAM_DIR) $(if $(SERVICES),--services $(SERVICES)) $(if $(GATEWAY),--gateway-mode $(GATEWAY))

connectivity: kubernetes ## Run `ovnkube connectivity test` on a node of upstream's (UPSTREAM=DIR with its two executables, GATEWAY=local)
	cargo build --locked -p cni -p ovnkube -p integration
	@integration/compat.sh with $(or $(SUITE),sid) $(TARGET_DIR)/debug/integration connectivity --upstream $(UPSTREAM_DIR) $(if $(GATEWAY),--gateway-mode $(GATEWAY))

node-start: build kubernetes ## Measure a node's start with a gateway against upstream's (UPSTREAM=DIR with its two executables, ROUNDS=5 GATEWAY=local)
	cargo build --locked -p integration
	@OVN_CNI_BIN_DIR=$(abspath $(BIN)) integration/compat.sh with $(or $(SUITE),sid) $(TARGET_DIR)/debug/integration starts --upstream $(UPSTREAM_DIR) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(GATEWAY),--gateway-mode $(GATEWAY))

faults: kubernetes ## Inject every fault of the matrix, and print which of its rows hold (ROWS="16 17" for some, QUICK=1 for the short forms)
	@integration/prerequisites.sh test
	$(BUILD_TESTS)
	@$(TARGET_DIR)/debug/integration faults $(if $(filter-out 0 no,$(QUICK)),--quick) $(ROWS)

questions: ## Ask `ovnkube trace` random questions in random worlds, and compare each verdict with packets (QUESTIONS=10000, SEED=1 for other worlds, WORLD=13 to begin with the one of an error)
	@integration/prerequisites.sh test
	$(BUILD_TESTS)
	OVN_TRACE_QUESTIONS=$(or $(QUESTIONS),10000) $(if $(SEED),OVN_TRACE_SEED=$(SEED)) $(if $(WORLD),OVN_TRACE_WORLD=$(WORLD)) cargo nextest run $(TESTED) \
		--profile questions --no-capture

tenants: kubernetes ## Try every row of the matrix of tenants beside another tenant, and print which hold, with the figure seen (ROWS="1 7" for some, QUICK=1 for the short forms without Kubernetes, TABLE=1 for the table of SECURITY.md alone)
	@integration/prerequisites.sh test
	$(BUILD_TESTS)
	@$(TARGET_DIR)/debug/integration tenants $(if $(filter-out 0 no,$(QUICK)),--quick) $(if $(filter-out 0 no,$(TABLE)),--table) $(ROWS)

scale: build kubernetes ## Measure the control plane with many nodes and pods (NODES=500 PODS=10000 RATES=10,50,200 COMPARE=1000,50000 SERVICES=10000 BACKENDS=5 POLICIES=4800 EXCEPT=1 TIMES=10 SCALE=--northd), nodes with gateways that join (JOIN=400), node ports of a node (NODEPORTS=2000), or nodes that are asked what is in force (APPLIED=500)
	cargo build --locked --release -p integration
	# What `make build` builds: its allocator gives memory back.
	@OVN_CNI_BIN_DIR=$(abspath $(BIN)) $(TARGET_DIR)/release/integration scale $(if $(NODES),--nodes $(NODES)) $(if $(PODS),--pods $(PODS)) $(if $(RATES),--rates $(RATES)) $(if $(COMPARE),--compare $(COMPARE)) $(if $(SERVICES),--services $(SERVICES)) $(if $(BACKENDS),--backends $(BACKENDS)) $(if $(POLICIES),--policies $(POLICIES)) $(if $(filter-out 0 no,$(EXCEPT)),--except) $(if $(TIMES),--times $(TIMES)) $(if $(JOIN),--join $(JOIN)) $(if $(NODEPORTS),--node-ports $(NODEPORTS)) $(if $(APPLIED),--applied $(APPLIED)) $(SCALE)

latency: build kubernetes ## Measure how soon connections follow a change of a Service or a policy, and the floor (OTHERS=5000 POLICIES=1000 ROUNDS=20), or how soon a pod that starts may send, and kube-burner's workload of policies (STARTS=200)
	cargo build --locked --release -p integration
	@OVN_CNI_BIN_DIR=$(abspath $(BIN)) $(TARGET_DIR)/release/integration latency $(if $(OTHERS),--others $(OTHERS)) $(if $(POLICIES),--other-policies $(POLICIES)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(STARTS),--starts $(STARTS)) $(LATENCY)

bench: build ## Measure every verb against the floor and other plugins, with gates (UPSTREAM=FILE BENCH="--at-once 1,100")
	@integration/prerequisites.sh bench
	cargo build --locked --release -p integration
	OVN_CNI_BIN_DIR=$(BIN) $(TARGET_DIR)/release/integration bench $(if $(UPSTREAM),--upstream $(UPSTREAM)) $(QUICK) $(BENCH)

bench-quick: QUICK := --quick
bench-quick: bench ## Measure only what the gates need, in less than two minutes

bench-cluster: build kubernetes ## Measure bursts of pods on a whole Kubernetes, ours and bridge in turn (ROUNDS=3 BURSTS=1,20,50,100)
	@integration/prerequisites.sh cluster
	cargo build --locked --release -p integration
	OVN_CNI_BIN_DIR=$(abspath $(BIN)) $(TARGET_DIR)/release/integration cluster --nodes 1 --compare $(or $(ROUNDS),3) $(if $(BURSTS),--bursts $(BURSTS))

bench-services: build kubernetes ## Measure Services against kube-proxy with the plugin bridge, in turn (ROUNDS=20)
	@integration/prerequisites.sh cluster
	cargo build --locked --release -p integration
	OVN_CNI_BIN_DIR=$(abspath $(BIN)) $(TARGET_DIR)/release/integration services $(if $(ROUNDS),--rounds $(ROUNDS))

bench-kernel: build kubernetes ## Measure ways of packets against kube-proxy on the kernel's datapath, in a virtual machine: ratios (TURNS=8 TURN=3 NODEPORT=1 SUITE=trixie)
	@integration/prerequisites.sh cluster kernel
	cargo build --locked --release -p integration
	@SUITE=$(SUITE) TURNS=$(TURNS) TURN=$(TURN) NODEPORT=$(NODEPORT) OVN_CNI_BIN_DIR=$(abspath $(BIN)) integration/kernel/bench.sh $(abspath $(TARGET_DIR))/release/integration

figures: build kubernetes ## Measure all figures of a release in one run, and write their page, docs/figures/VERSION.md (ONLY="bench scale" for some, SHORT=1 for fewer rounds of the plugin)
	@integration/prerequisites.sh bench figures
	@SHORT=$(filter-out 0 no,$(SHORT)) integration/figures/figures.sh docs/figures/$(VERSION_BUILT).md $(ONLY)

bench-record: build # For continuous integration: bench-quick with a debug driver; a slow machine is not a failure.
	@integration/prerequisites.sh bench
	$(BUILD_LAB)
	OVN_CNI_BIN_DIR=$(BIN) $(TARGET_DIR)/debug/integration bench --quick --no-time-gates $(BENCH)

soak: build ## Let 10,000 pods come and go, and fail if anything grows (CYCLES=1000 CHURN=100)
	@integration/prerequisites.sh demo
	cargo build --locked --release -p integration
	OVN_CNI_BIN_DIR=$(BIN) $(TARGET_DIR)/release/integration soak $(if $(CYCLES),--cycles $(CYCLES)) $(if $(CHURN),--churn $(CHURN))

properties: ## Try the properties with other random inputs than `make test` (TIMES=10)
	@integration/prerequisites.sh test
	@for seed in $$(shuf -n $(or $(TIMES),10) -i 2-4294967295); do \
		echo "PROPTEST_RNG_SEED=$$seed"; \
		PROPTEST_RNG_SEED=$$seed cargo nextest run $(TESTED) -E 'kind(lib)' || exit; \
	done

fuzz: ## Fuzz each parser of outside input (TIME=60 seconds each, TARGETS="net_conf call"); what it finds is in fuzz/artifacts
	@integration/prerequisites.sh fuzz
	fuzz/run.sh $(or $(TIME),60) $(TARGETS)

lint: ## Check format, lints, documentation, scripts and dependencies
	@integration/prerequisites.sh lint
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --locked --quiet --workspace --no-deps --document-private-items
	shellcheck --external-sources --source-path=SCRIPTDIR $$(git grep -lE '^#!/(usr/)?bin/.*sh$$')
	cargo deny --locked check bans licenses sources
	advisories/check.sh

advisories: ## Take a new snapshot of the security advisories that `make lint` checks against (FROM=a clone of them; else the network)
	advisories/refresh.sh $(FROM)
