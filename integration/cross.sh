#!/usr/bin/env bash
# Executables for another architecture: amd64 on arm64, arm64 on amd64.
#
#   integration/cross.sh cc ARCH             prints a C compiler for static ones: Debian's gcc for ARCH with its musl's
#                                            headers, as `musl-gcc` is for this machine's
#   integration/cross.sh run ARCH COMMAND…   runs it while the kernel runs programs for ARCH by qemu's emulation of a processor,
#                                            as root; at once on a machine of ARCH
#   integration/cross.sh try ARCH BIN IMAGES runs what does without a network, by qemu, with each size of pages that kernels of
#                                            ARCH have, and OVN in the image; BIN has the executables, IMAGES the archives that
#                                            `make image` has made of them
#
# musl-dev of that architecture is unpacked into ~/.cache: apt of this machine is not told of the architecture.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "cross: $*" >&2; }
fail() { say "$@"; exit 1; }

main() {
    case ${2:-} in
    amd64) machine=x86_64 pages=(4096) ;;
    arm64) machine=aarch64 pages=(4096 16384 65536) ;;
    *) fail "'${2:-}' is none of: amd64, arm64" ;;
    esac
    architecture=$2
    case $1-$# in
    cc-2) compiler ;;
    run-*) run "${@:3}" ;;
    try-4) try "$3" "$4" ;;
    *) fail "'$1' with $# arguments is none of: cc ARCH, run ARCH COMMAND…, try ARCH BIN IMAGES" ;;
    esac
}

compiler() {
    local gcc=$machine-linux-gnu-gcc folder="${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes/cross/$architecture"
    command -v "$gcc" >/dev/null || fail "$gcc is missing; install it with: integration/prerequisites.sh $architecture"
    [ -x "$folder/cc" ] || make_compiler "$gcc" "$folder"
    echo "$folder/cc"
}

make_compiler() {
    local gcc=$1 folder=$2 new=$2.partial options
    rm -rf "$new"
    mkdir -p "$new"/{apt/lists/partial,root}
    say "downloading musl's headers for $architecture (once)"
    # Lists of its own, with this machine's sources and keys. As root: _apt could not write here.
    options=(-qq -o "APT::Architecture=$architecture" -o "APT::Architectures::=$architecture" -o "Dir::State::lists=$new/apt/lists" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update >&2
    (cd "$new" && apt-get "${options[@]}" download musl-dev >&2)
    dpkg-deb --extract "$new"/musl-dev_*.deb "$new/root"
    # Its paths are those of an installation.
    sed "s#/usr/\(include\|lib\)/$machine-linux-musl#$folder/root&#g" "$new/root/usr/lib/$machine-linux-musl/musl-gcc.specs" >"$new/specs"
    printf '#!/bin/sh\nexec %s -specs %s "$@"\n' "$gcc" "$folder/specs" >"$new/cc"
    chmod 755 "$new/cc"
    rm -rf "$new/apt" "$new"/musl-dev_*.deb "$folder"
    mv -T "$new" "$folder"
}

run() {
    local formats=/proc/sys/fs/binfmt_misc known=/usr/lib/binfmt.d/qemu-$machine.conf
    if [ "$(uname -m)" != "$machine" ] && { ! command -v arch-test >/dev/null || [ ! -e "$known" ]; }; then
        fail "programs for $architecture cannot be run here; install what runs them with: integration/prerequisites.sh $architecture"
    fi
    # Under systemd the package of qemu has told the kernel of them.
    if [ "$(uname -m)" != "$machine" ] && [ ! -e "$formats/qemu-$machine" ]; then
        [ -e "$formats/register" ] || mount -t binfmt_misc binfmt_misc "$formats" ||
            fail "the kernel cannot be told of programs for $architecture: it has no binfmt_misc, or this is not root"
        # shellcheck disable=SC2064 # the names as they are now
        trap "echo -1 >$formats/qemu-$machine" EXIT
        cat "$known" >"$formats/register" || fail "the kernel takes no programs for $architecture ($formats/register)"
    fi
    "$@"
}

try() {
    local bin=$1 images=$2 image page said qemu=qemu-$machine-static
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    for page in "${pages[@]}"; do
        said=$("$qemu" -p "$page" "$bin/ovnkube" --version)
        [ "$said" = "ovnkube $version" ] || fail "ovnkube --version says: $said"
        said=$("$qemu" -p "$page" "$bin/ovnkube" --print-config --init-node node1 --k8s-apiserver https://192.0.2.1:6443)
        [[ $said == *https://192.0.2.1:6443* ]] || fail "ovnkube --print-config says: $said"
        said=$(echo '{"cniVersion":"1.0.0"}' | CNI_COMMAND=VERSION "$qemu" -p "$page" "$bin/ovn-k8s-cni-overlay")
        [[ $said == *'"1.1.0"'* ]] || fail "the plugin's VERSION says: $said"
        say "$architecture, pages of $page bytes: ovnkube --version, --print-config, the plugin's VERSION"
    done
    for image in ovn-kubernetes-node ovn-kube; do
        said=$(tar --extract --to-stdout --file "$images/$image.tar" --wildcards './blobs/sha256/*' |
            grep --text -o '"architecture":"[a-z0-9]*","os":"linux"' | sort -u)
        [ "$said" = "\"architecture\":\"$architecture\",\"os\":\"linux\"" ] || fail "$images/$image.tar is for: $said"
        say "$images/$image.tar: for $architecture"
    done
    try_ovn "$images/ovn-kube.tar"
}

# A switch in the northbound database becomes a datapath of the southbound one, by the image's programs in its root.
try_ovn() {
    local image=$1 layer said
    # Not local: the trap outlives this function.
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    mkdir "$root/image" "$root/root"
    tar --extract --file "$image" --directory "$root/image"
    while read -r layer; do
        tar --extract --file "$root/image/$layer" --directory "$root/root" --exclude './dev/*'
    done < <(grep -o '"Layers":\[[^]]*' "$root/image/manifest.json" | grep -o 'blobs/sha256/[0-9a-f]*')
    cat >"$root/root/try" <<'SH'
set -e
mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9
mkdir -p /run/ovn /run/openvswitch /tmp
for db in nb sb; do
    ovsdb-tool create /run/$db.db /usr/share/ovn/ovn-$db.ovsschema
    ovsdb-server /run/$db.db --remote=punix:/run/ovn/ovn${db}_db.sock --unixctl=/run/$db.ctl --pidfile=/run/$db.pid --log-file=/run/$db.log --detach --no-chdir
done
ovn-northd --log-file=/run/northd.log --pidfile=/run/northd.pid --detach --no-chdir
ovn-nbctl --timeout=60 --wait=sb ls-add tried
ovn-sbctl --bare --columns=external_ids list Datapath_Binding
for program in ovs-vswitchd ovn-controller ovnkube; do $program --version | head -n 1; done
/root/ovnkube.sh display_env | head -n 1
SH
    said=$(run unshare --mount --net --pid --fork --kill-child --propagation private chroot "$root/root" /bin/bash /try 2>&1) || fail "in the image: $said"
    [[ $said == *name=tried* && $said == *"ovn-controller "* && $said == *"ovnkube $version"* ]] || fail "in the image: $said"
    say "$image: $(grep -E '^ovn-controller' <<<"$said"), with a database, ovn-northd and ovnkube.sh"
}

[ $# -ge 1 ] || fail "cc ARCH, run ARCH COMMAND…, or try ARCH BIN IMAGES"
main "$@"
