#!/usr/bin/env bash
# Gets the kernel of a Debian release for vm.sh, once: its packages are downloaded and unpacked into a folder
# outside of the checkout, and none of them is installed. Prints the folder.
#
#   integration/kernel/prepare.sh [SUITE]         (default: bookworm)
#
# In the folder: vmlinuz, initrd.gz (busybox, `init`, and the modules that find the host's root), root/ with
# all modules, and release.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

suite=${1:-bookworm}
folder="${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes/kernel/$suite"
new=$folder.partial

say() { echo "kernel: $*" >&2; }
fail() { say "$@"; exit 1; }

main() {
    [[ $suite =~ ^[a-z]+$ ]] || fail "'$suite' is no suite of Debian (like bookworm, trixie, sid)"
    mkdir -p "${folder%/*}"
    local lock
    exec {lock}>"$folder.lock"
    # Another run may be making it.
    flock "$lock"
    [ -e "$folder" ] || make_folder
    # Made each time: `init` is of this checkout.
    make_initramfs
    exec {lock}>&-
    echo "$folder"
}

# Under another name until it is complete: an interrupted run is simply repeated.
make_folder() {
    local began=$SECONDS package
    rm -rf "$new"
    mkdir -p "$new"/{root,apt/lists/partial,apt/archives/partial}
    say "downloading the kernel of Debian's $suite"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(integration/compat.sh mirror) $suite main" >"$new/apt/sources.list"
    debian apt-get update -qq
    # The package of that name only depends on the newest kernel, which newer releases divide into several.
    mapfile -t packages < <(debian apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
        linux-image-amd64 | grep -E '^linux-(image|binary|modules|base)-[0-9]' | sort -u)
    [ ${#packages[@]} -gt 0 ] || fail "linux-image-amd64 of $suite depends on no kernel"
    (cd "$new/apt" && debian apt-get download -qq "${packages[@]}")
    for package in "$new"/apt/*.deb; do dpkg-deb --extract "$package" "$new/root"; done
    # Since Debian 13 modules are below /usr, where kmod of an older one does not look.
    [ -e "$new/root/lib/modules" ] || { mkdir -p "$new/root/lib"; mv "$new/root/usr/lib/modules" "$new/root/lib/modules"; }
    ls "$new/root/lib/modules" >"$new/release"
    depmod -b "$new/root" "$(<"$new/release")"
    # In /boot, or since Debian 14 beside the modules.
    find "$new/root" -name 'vmlinuz*' -type f -exec cp {} "$new/vmlinuz" \;
    rm -rf "$new/apt"
    mv -T "$new" "$folder"
    say "$(<"$folder/release") is ready after $((SECONDS - began)) s, $(du -sh "$folder" | cut -f 1) (remove $folder to have it made again)"
}

# apt with lists, archives and sources of its own: the machine's are not touched.
debian() {
    "$1" -o "Dir::State::Lists=$new/apt/lists" -o "Dir::Cache=$new/apt" -o "Dir::Cache::Archives=$new/apt/archives" \
        -o "Dir::Etc::SourceList=$new/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root "${@:2}"
}

make_initramfs() {
    local initrd release file
    initrd=$(mktemp -d)
    release=$(<"$folder/release")
    mkdir -p "$initrd"/{bin,modules}
    cp "$(command -v busybox)" "$initrd/bin/busybox"
    cp integration/kernel/init "$initrd/init"
    chmod 755 "$initrd/init"
    for file in virtio_pci 9pnet_virtio 9p overlay virtio_rng; do
        # In the order in which they have to be loaded; what is built in says so.
        modprobe -d "$folder/root" -S "$release" --show-depends "$file"
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r file; do
        # busybox's insmod reads no compressed modules.
        case $file in
        *.xz) xz -dc "$file" >"$initrd/modules/$(basename "$file" .xz)"; basename "$file" .xz ;;
        *) cp "$file" "$initrd/modules/"; basename "$file" ;;
        esac
    done >"$initrd/modules/order"
    (cd "$initrd" && find . | cpio -o -H newc --quiet | gzip -1) >"$folder/initrd.$$"
    mv "$folder/initrd.$$" "$folder/initrd.gz"
    rm -rf "$initrd"
}

main
