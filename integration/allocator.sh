#!/usr/bin/env bash
# Measures what the plugin's allocator is worth: builds the plugin with its arena, with the C library's
# allocator and with mimalloc, starts each of them ROUNDS times, in turns, and prints medians. On an idle
# machine; as root, one of the calls is an ADD that succeeds.
#
#   integration/allocator.sh [ROUNDS]      (2000 unless given; PROFILE=dev and STATIC=TARGET, as for make, to try the script)
#
# The plugins are built in a copy of their sources: the product has no switch for its allocator, and
# mimalloc is in no lock file.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-2000}
profile=${PROFILE:-plugin}
mimalloc=0.1.52
plugin=ovn-k8s-cni-overlay
target=${STATIC:-$(uname -m)-unknown-linux-musl}
# As in the Makefile. mimalloc's C takes the machine's own compiler, too.
export "CC_${target//-/_}=gcc"
integration/prerequisites.sh build
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/allocator
copy=$out/source

# The plugin, and the members of the workspace that it needs. Without the dependencies of tests, some of
# which are members, too.
members=(contract ovsdb ovslog podnet cni)
rm -rf "$copy"
mkdir -p "$copy"
cp -p Cargo.lock rust-toolchain.toml "$copy/"
sed "s/^members = .*/members = [$(printf '"%s", ' "${members[@]}")]/" Cargo.toml >"$copy/Cargo.toml"
for member in "${members[@]}"; do
    cp -Rp "$member" "$copy/"
    awk '/^\[/ { tests = /^\[dev-dependencies/ } !tests' "$member/Cargo.toml" >"$copy/$member/Cargo.toml"
done

# build VARIANT: the plugin from the copy as it is now.
build() {
    local built=$out/$target/${profile/#dev/debug}/$plugin
    echo "allocator: building with $1" >&2
    # Newer than what was built of another variant: cargo compares times.
    touch "$copy/cni/src/main.rs"
    (cd "$copy" && CARGO_TARGET_DIR=$out cargo rustc --quiet --profile "$profile" --target "$target" -p cni --bin "$plugin" -- -C relocation-model=static)
    install -m 755 "$built" "$out/$1"
}

# allocator ITEM: makes it the global allocator of the copy, or none.
allocator() {
    awk -v item="$1" '
        /^mod arena;$/ || /^use arena::Arena;$/ { next }
        /^#\[global_allocator\]$/ { replaced = 1; getline; if (item != "") print "#[global_allocator]\n" item; next }
        { print }
        END { exit !replaced }
    ' cni/src/main.rs >"$copy/cni/src/main.rs"
}

build arena
allocator ""
build system
allocator "static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;"
sed -i "/^\[dependencies\]$/a mimalloc = { version = \"=$mimalloc\", default-features = false }" "$copy/cni/Cargo.toml"
build mimalloc

# An ADD that succeeds needs the network namespace of a pod.
netns=()
if [ "$(id -u)" -eq 0 ]; then
    unshare --net sleep infinity &
    pod=$!
    trap 'kill "$pod"' EXIT
    netns=(--netns "/proc/$pod/ns/net")
fi
cargo build --quiet --locked -p integration --example allocator
"${CARGO_TARGET_DIR:-target}/debug/examples/allocator" --rounds "$rounds" "${netns[@]}" "$out/arena" "$out/system" "$out/mimalloc"
