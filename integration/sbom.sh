#!/usr/bin/env bash
# Writes a software bill of materials (CycloneDX 1.5, JSON) for each executable, and fails if one leaves out
# a crate that is linked into it.
#
#   integration/sbom.sh DIRECTORY [TARGET]      (TARGET: that of rustc; the static one by default)
#
# The same source gives the same bytes: the time in it is that of the last commit, or SOURCE_DATE_EPOCH, and
# no path of this machine is in it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?where to}")
target=${2:-$(uname -m)-unknown-linux-musl}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# describe EXECUTABLE PACKAGE: the package within the members of the workspace that it needs.
#
# In a copy, without the dependencies of tests: cargo would unite the features that they ask for with those
# that are linked, and the tool writes beside every manifest.
describe() {
    local executable=$1 package=$2 member members
    mapfile -t members < <(cargo tree --quiet --offline --locked -p "$package" --target "$target" --edges normal --prefix none |
        sed -n "s|.* ($(pwd -P)/\([^)]*\)).*|\1|p" | LC_ALL=C sort -u)
    set -- "${members[@]}"
    rm -rf "${copy:?}"/*
    cp Cargo.lock "$copy/"
    sed "s/^members = .*/members = [$(printf '"%s", ' "$@")]/" Cargo.toml >"$copy/Cargo.toml"
    for member; do
        mkdir -p "$copy/$member/src"
        awk '/^\[/ { tests = /^\[dev-dependencies/ || /^\[\[(test|bench|example)\]\]/ } !tests' "$member/Cargo.toml" >"$copy/$member/Cargo.toml"
        cp "$member"/src/*.rs "$copy/$member/src/"
    done
    # Of this platform only: after a build alone, the crates of others are not on this machine.
    cargo metadata --offline --filter-platform "$target" --format-version 1 --manifest-path "$copy/Cargo.toml" >/dev/null
    cargo cyclonedx --quiet --manifest-path "$copy/$package/Cargo.toml" --format json --spec-version 1.5 --target "$target" \
        --override-filename bom
    mkdir -p "$out"
    sed "s|$copy|/ovn-kubernetes|g" "$copy/$package/bom.json" >"$out/$executable.cdx.json"
    names_all_linked "$executable" "$package"
}

names_all_linked() {
    local name version missing=0 linked=0
    while read -r name version _; do
        linked=$((linked + 1))
        grep -q "pkg:cargo/$name@${version#v}[\"?]" "$out/$1.cdx.json" && continue
        echo "sbom: $name $version is linked into $1, and $out/$1.cdx.json does not name it" >&2
        missing=1
    done < <(cargo tree --quiet --offline --locked -p "$2" --target "$target" --edges normal,no-proc-macro --prefix none --no-dedupe | LC_ALL=C sort -u)
    [ $missing -eq 0 ] || exit 1
    echo "$out/$1.cdx.json: $linked crates"
}

describe ovn-k8s-cni-overlay cni
describe ovnkube ovnkube
