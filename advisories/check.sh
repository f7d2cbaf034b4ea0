#!/usr/bin/env bash
# Checks the lock files against the snapshot of advisories in this directory, without a network once cargo
# has their crates. Exceptions, with their reasons, are in deny.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
# What cargo-deny calls its copy of the database.
copy=target/advisories/advisory-db-3157b0e258782691
# After that many days a check says little.
oldest=120

locked=$(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.lock fuzz/Cargo.lock | LC_ALL=C sort -u)
left_out=$(LC_ALL=C comm -12 <(echo "$locked") advisories/NAMES | LC_ALL=C comm -23 - <(LC_ALL=C ls advisories/crates))
if [ -n "$left_out" ]; then
    echo "advisories: there are some about ${left_out//$'\n'/ } that the snapshot leaves out; take a new one: make advisories" >&2
    exit 1
fi
date=$(sed -n 's/^date //p' advisories/SNAPSHOT)
age=$((($(date +%s) - $(date -d "$date" +%s)) / 86400))
[ "$age" -le "$oldest" ] || echo "advisories: warning: the snapshot is $age days old ($date); take a new one: make advisories" >&2

rm -rf "$copy"
mkdir -p "$copy/.git"
cp -R advisories/crates "$copy/"
touch -d "$date" "$copy/.git/FETCH_HEAD"
for manifest in Cargo.toml fuzz/Cargo.toml; do
    cargo fetch --locked --offline --quiet --manifest-path "$manifest" 2>/dev/null || cargo fetch --locked --quiet --manifest-path "$manifest"
    cargo deny --locked --offline --manifest-path "$manifest" --config deny.toml check advisories
done
