#!/usr/bin/env bash
# Takes a new snapshot of the RustSec advisories that are about crates in the lock files: facts (see
# facts.awk), nobody's text.
#
#   advisories/refresh.sh [CLONE]      (a git directory of the advisory database; without one, it is fetched over the network)
set -euo pipefail
cd "$(dirname "$0")"
clone=${1:-}
if [ -z "$clone" ]; then
    clone=$(mktemp -d)
    trap 'rm -rf "$clone"' EXIT
    git clone --quiet --depth 1 --bare https://github.com/RustSec/advisory-db "$clone"
fi

# The names alone of the rest: whether a crate that comes later has any is known without a network, too.
git -C "$clone" ls-tree -d --name-only HEAD crates/ | sed 's|crates/||' | LC_ALL=C sort >NAMES
rm -rf crates
# Also those that are about none of today's versions: another version may come.
mapfile -t present < <(sed -n 's/^name = "\(.*\)"$/\1/p' ../Cargo.lock ../fuzz/Cargo.lock | LC_ALL=C sort -u | LC_ALL=C comm -12 - NAMES)
git -C "$clone" ls-tree -r --name-only HEAD "${present[@]/#/crates/}" | grep '\.md$' | while read -r advisory; do
    mkdir -p "$(dirname "$advisory")"
    git -C "$clone" show "HEAD:$advisory" | awk -f facts.awk >"$advisory"
done
git -C "$clone" log -1 --format='commit %H%ndate %cI' HEAD >SNAPSHOT
echo "advisories: $(find crates -name '*.md' | wc -l) about ${#present[@]} crates, of $(wc -l <NAMES) in the database, as of $(sed -n 's/^date //p' SNAPSHOT)"
