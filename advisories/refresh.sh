#!/usr/bin/env bash
# Takes a new snapshot of the RustSec advisories that are about crates in the lock files.
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

# Also those that are about none of today's versions: another version may come.
sed -n 's/^name = "\(.*\)"$/\1/p' ../Cargo.lock ../fuzz/Cargo.lock | LC_ALL=C sort -u >covered
rm -rf crates
mapfile -t present < <(git -C "$clone" ls-tree -d --name-only HEAD crates/ | sed 's|crates/||' | LC_ALL=C sort | LC_ALL=C comm -12 - covered)
git -C "$clone" archive HEAD "${present[@]/#/crates/}" LICENSES | tar -x
git -C "$clone" log -1 --format='commit %H%ndate %cI' HEAD >SNAPSHOT
echo "advisories: $(find crates -name '*.md' | wc -l) about ${#present[@]} of $(wc -l <covered) crates, as of $(sed -n 's/^date //p' SNAPSHOT)"
