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
# The plugin is copied to hosts of any distribution, so both executables are static.
STATIC ?= $(shell uname -m)-unknown-linux-musl
# Two libraries have parts in C: ring, the cryptography below TLS, and jemalloc, which needs musl's headers.
export CC_$(subst -,_,$(STATIC)) ?= musl-gcc
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BIN := $(TARGET_DIR)/bin
DOCUMENTS := $(TARGET_DIR)/documents
SBOM := $(TARGET_DIR)/sbom
STAGE := $(TARGET_DIR)/stage
# Of the workspace: what --version says.
VERSION_BUILT = $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
IMAGES := $(TARGET_DIR)/images
# Tests stop and kill the plugin at any stage; an installed plugin has no such failpoints.
TEST_FEATURES := cni/failpoints,ovnkube/failpoints

# Of the commands that run upstream's programs.
UPSTREAM_DIR = $(or $(UPSTREAM),$(error UPSTREAM=DIR with upstream's two executables is missing))

# No target is a file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## List these commands
	@echo 'To see it work: make demo. To build it: make build, then make install. What else there is:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

build: ## Build ovn-k8s-cni-overlay and ovnkube, static, into target/bin
	@integration/prerequisites.sh build
	# One job more than processors: the plugin's link-time optimisation, which keeps one busy for long, does not wait for the others' end.
	RUSTC_WRAPPER=$(abspath integration/rustc-wrapper.sh) RUSTFLAGS="$${RUSTFLAGS-} -C embed-bitcode=yes" cargo build --locked --profile $(PROFILE) \
		--target $(STATIC) --jobs $$(($$(nproc) + 1)) -p cni --bin ovn-k8s-cni-overlay -p ovnkube --bin ovnkube
	install -D -t $(BIN) $(TARGET_DIR)/$(STATIC)/$(PROFILE)/ovn-k8s-cni-overlay $(TARGET_DIR)/$(STATIC)/$(PROFILE)/ovnkube

install: build sbom ## Install them with their configuration (DESTDIR=… for a package)
	install -D -m 755 $(BIN)/ovn-k8s-cni-overlay $(DESTDIR)$(CNI_BIN_DIR)/ovn-k8s-cni-overlay
	install -D -m 755 $(BIN)/ovnkube $(DESTDIR)/usr/bin/ovnkube
	# Scripts call nics-to-bridge and bridges-to-nic under these names.
	ln -sf ovnkube $(DESTDIR)/usr/bin/ovn-kube-util
	ln -sf ovnkube $(DESTDIR)/usr/bin/ovn-k8s-util
	install -D -m 644 -t $(DESTDIR)/usr/share/doc/ovn-kubernetes/sbom $(SBOM)/*.cdx.json
	install -D -m 644 -t $(DESTDIR)/usr/lib/systemd/system conf/ovnkube-node.service conf/ovnkube-master.service
	install -D -m 644 conf/pod.yaml $(DESTDIR)/usr/share/doc/ovn-kubernetes/examples/pod.yaml
	$(BIN)/ovnkube --generate-documents $(DOCUMENTS)
	install -D -m 644 -t $(DESTDIR)/usr/share/man/man8 $(DOCUMENTS)/man8/*
	install -D -m 644 -t $(DESTDIR)/usr/share/man/man5 $(DOCUMENTS)/man5/*
	install -D -m 644 $(DOCUMENTS)/completions/ovnkube.bash $(DESTDIR)/usr/share/bash-completion/completions/ovnkube
	install -D -m 644 $(DOCUMENTS)/completions/_ovnkube $(DESTDIR)/usr/share/zsh/vendor-completions/_ovnkube
	install -D -m 644 $(DOCUMENTS)/completions/ovnkube.fish $(DESTDIR)/usr/share/fish/vendor_completions.d/ovnkube.fish
	install -D -m 644 -t $(DESTDIR)/usr/share/ovn-kubernetes/kubernetes conf/kubernetes/*.yaml conf/kubernetes/Kustomization
	install -D -m 644 -t $(DESTDIR)/usr/share/ovn-kubernetes/kubernetes/openshift conf/kubernetes/openshift/*.yaml conf/kubernetes/openshift/Kustomization
	install -d $(DESTDIR)/usr/share/ovn-kubernetes/helm
	cp -R conf/helm/ovn-kubernetes $(DESTDIR)/usr/share/ovn-kubernetes/helm/
	install -D -m 644 -t $(DESTDIR)/usr/share/ovn-kubernetes/monitoring conf/grafana-dashboard.json conf/prometheus-rules.yaml
	# Keep an administrator's own settings.
	test -e $(DESTDIR)/etc/logrotate.d/ovn-kubernetes || install -D -m 644 conf/logrotate.d/ovn-kubernetes $(DESTDIR)/etc/logrotate.d/ovn-kubernetes
	test -e $(DESTDIR)/etc/openvswitch/ovn_k8s.conf || install -D -m 644 conf/ovn_k8s.conf $(DESTDIR)/etc/openvswitch/ovn_k8s.conf

packages: ## Make packages of them, .deb and .rpm, in target/packages
	@integration/prerequisites.sh packages
	@$(MAKE) --no-print-directory stage
	integration/packages/build.sh $(STAGE) $(VERSION_BUILT) $(TARGET_DIR)/packages

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

image: build ## Make the images ovn-kube (with Open vSwitch and OVN) and ovn-kubernetes-node in target/images, without a builder of images (NAME=netdev22:5000/ovn-kube TAG=latest for the first one's name)
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

sbom: ## Write a bill of materials (CycloneDX) of each executable into target/sbom
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
	cargo build --locked -p cni -p ovnkube -p integration --features $(TEST_FEATURES)
	cargo test --locked --quiet --workspace --features $(TEST_FEATURES) --doc
	cargo nextest run --locked --workspace --features $(TEST_FEATURES)

test-compat: ## Run the tests with Open vSwitch and OVN of other Debian releases (SUITES="trixie sid")
	@integration/prerequisites.sh test compat
	cargo build --locked -p cni -p ovnkube -p integration --features $(TEST_FEATURES)
	@TEST_FEATURES=$(TEST_FEATURES) integration/compat.sh test $(SUITES)

test-kernel: ## Run tests of the lab on the kernel's datapath, in a virtual machine (QUICK=1 for five minutes, TESTS="attach limits:a_limited", SUITE=trixie)
	@integration/prerequisites.sh kernel
	cargo build --locked -p cni -p ovnkube -p integration --features $(TEST_FEATURES)
	@SUITE=$(SUITE) QUICK=$(QUICK) integration/kernel/test.sh $(TESTS)

test-uplinks: ## Start a virtual machine again and again whose NIC a real DHCP client configures (SCENARIOS="networkd-refused ifupdown-moved-two", BOOTS=10)
	@integration/prerequisites.sh kernel compat
	cargo build --locked -p ovnkube
	@BOOTS=$(BOOTS) integration/kernel/uplinks.sh $(SCENARIOS)

test-cluster: build kubernetes ## Run the tests with a whole Kubernetes: kubelets, containerd and what `make build` builds (CONTAINERD=2 for version 2 in all of them)
	@integration/prerequisites.sh cluster test
	# The lab has no network from which it could come.
	@ANY_VERSIONS=1 conf/image/image.sh layer ovn-kube >/dev/null
	cargo build --locked -p integration
	OVN_CNI_BIN_DIR=$(abspath $(BIN)) OVN_CLUSTER_CONTAINERD=$(CONTAINERD) cargo nextest run --locked -p integration --test cluster --profile cluster
	# Rows of both matrices that need Kubernetes, with the executables of `make test`.
	cargo build --locked -p cni -p ovnkube -p integration --features $(TEST_FEATURES)
	cargo nextest run --locked -p cni -p ovnkube -p integration --features $(TEST_FEATURES) --test faults --test tenants --profile cluster-faults

conformance: kubernetes ## Run Kubernetes' own specs of networking and the suites of network-policy-api on a cluster (SUITE_OF=kubernetes or network-policy-api, FOCUS='Services should' LANE=ipv4 NODES=3 PROCS=4 GATEWAY=shared, QUICK=1 for ten of them, RECORD=1)
	@integration/prerequisites.sh conformance
	@integration/cluster/conformance.sh $(TARGET_DIR)/conformance-suite >/dev/null
	@integration/cluster/network-policy-api.sh $(TARGET_DIR)/network-policy-api >/dev/null
	cargo build --locked -p cni -p ovnkube -p integration
	# Debian 12's ovs-vswitchd ends under the suite's parallel connections.
	@integration/compat.sh with $(or $(SUITE),sid) $(TARGET_DIR)/debug/integration conformance $(if $(LANE),--lane $(LANE)) $(if $(NODES),--nodes $(NODES)) \
		$(if $(PROCS),--procs $(PROCS)) $(if $(GATEWAY),--gateway-mode $(GATEWAY)) $(if $(filter-out 0 no,$(QUICK)),--quick) $(if $(filter-out 0 no,$(RECORD)),--record) \
		$(if $(SUITE_OF),--suite-of $(SUITE_OF)) $(if $(FOCUS),--focus '$(FOCUS)')

takeover: kubernetes ## Take over a node of upstream's while its connections go on, and hand it back (UPSTREAM=DIR with its two executables, SERVICES=500 GATEWAY=local)
	cargo build --locked -p cni -p ovnkube -p integration
	@integration/compat.sh with $(or $(SUITE),sid) $(TARGET_DIR)/debug/integration takeover --upstream $(UPSTREAM_DIR) $(if $(SERVICES),--services $(SERVICES)) $(if $(GATEWAY),--gateway-mode $(GATEWAY))

node-start: build kubernetes ## Measure a node's start with a gateway against upstream's (UPSTREAM=DIR with its two executables, ROUNDS=5 GATEWAY=local)
	cargo build --locked -p integration
	@OVN_CNI_BIN_DIR=$(abspath $(BIN)) integration/compat.sh with $(or $(SUITE),sid) $(TARGET_DIR)/debug/integration starts --upstream $(UPSTREAM_DIR) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(GATEWAY),--gateway-mode $(GATEWAY))

faults: kubernetes ## Inject every fault of the matrix, and print which of its rows hold (ROWS="16 17" for some, QUICK=1 for the short forms)
	@integration/prerequisites.sh test
	cargo build --locked -p cni -p ovnkube -p integration --features $(TEST_FEATURES)
	@$(TARGET_DIR)/debug/integration faults $(if $(filter-out 0 no,$(QUICK)),--quick) $(ROWS)

tenants: kubernetes ## Try every row of the matrix of tenants beside another tenant, and print which hold, with the figure seen (ROWS="1 7" for some, QUICK=1 for the short forms without Kubernetes, TABLE=1 for the table of SECURITY.md alone)
	@integration/prerequisites.sh test
	cargo build --locked -p cni -p ovnkube -p integration --features $(TEST_FEATURES)
	@$(TARGET_DIR)/debug/integration tenants $(if $(filter-out 0 no,$(QUICK)),--quick) $(if $(filter-out 0 no,$(TABLE)),--table) $(ROWS)

scale: build kubernetes ## Measure the control plane with many nodes and pods (NODES=500 PODS=10000 RATES=10,50,200 COMPARE=1000,50000 SERVICES=10000 BACKENDS=5 POLICIES=4800 EXCEPT=1 TIMES=10 SCALE=--northd), nodes with gateways that join (JOIN=400), or node ports of a node (NODEPORTS=2000)
	cargo build --locked --release -p integration
	# What `make build` builds: its allocator gives memory back.
	@OVN_CNI_BIN_DIR=$(abspath $(BIN)) $(TARGET_DIR)/release/integration scale $(if $(NODES),--nodes $(NODES)) $(if $(PODS),--pods $(PODS)) $(if $(RATES),--rates $(RATES)) $(if $(COMPARE),--compare $(COMPARE)) $(if $(SERVICES),--services $(SERVICES)) $(if $(BACKENDS),--backends $(BACKENDS)) $(if $(POLICIES),--policies $(POLICIES)) $(if $(filter-out 0 no,$(EXCEPT)),--except) $(if $(TIMES),--times $(TIMES)) $(if $(JOIN),--join $(JOIN)) $(if $(NODEPORTS),--node-ports $(NODEPORTS)) $(SCALE)

latency: build kubernetes ## Measure how soon connections follow a change of a Service or a policy, and the floor (OTHERS=5000 POLICIES=2000 ROUNDS=20), or how soon a pod that starts may send, and kube-burner's workload of policies (STARTS=200)
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

bench-record: build # For continuous integration: bench-quick with a debug driver; a slow machine is not a failure.
	@integration/prerequisites.sh bench
	cargo build --locked -p integration
	OVN_CNI_BIN_DIR=$(BIN) $(TARGET_DIR)/debug/integration bench --quick --no-time-gates $(BENCH)

soak: build ## Let 10,000 pods come and go, and fail if anything grows (CYCLES=1000 CHURN=100)
	@integration/prerequisites.sh demo
	cargo build --locked --release -p integration
	OVN_CNI_BIN_DIR=$(BIN) $(TARGET_DIR)/release/integration soak $(if $(CYCLES),--cycles $(CYCLES)) $(if $(CHURN),--churn $(CHURN))

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
