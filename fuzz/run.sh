#!/usr/bin/env bash
# Fuzzes the parsers of outside input, as many targets at a time as there are processors, and prints a line
# for each.
#
#   fuzz/run.sh SECONDS [TARGET…]      (no target: all of them)
#
# Inputs that a run has found stay in fuzz/corpus for the next one, inputs that broke a target in
# fuzz/artifacts. The exit status is 1 if a target broke.
#
# Without a sanitizer: the fuzzed code is safe Rust, in which a wrong index panics. So everything builds twice
# as fast, with the project's own compiler instead of a nightly one.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?for how many seconds}
shift
host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-../target}")/fuzz

mapfile -t all < <(cargo fuzz list)
[ $# -gt 0 ] || set -- "${all[@]}"
for name; do
    [[ " ${all[*]} " = *" $name "* ]] || { echo "fuzz: no target '$name' (${all[*]})" >&2; exit 2; }
done
if [ $# -eq ${#all[@]} ]; then
    cargo fuzz build --sanitizer none --target-dir "$target_dir"
else
    for name; do cargo fuzz build --sanitizer none --target-dir "$target_dir" "$name"; done
fi

# Runs one target to its end. Prints one line, or the end of its log if it broke.
fuzz() {
    local name=$1 log=$target_dir/$1.log dictionary=dictionaries/$1.dict status=0
    mkdir -p "corpus/$name" "artifacts/$name"
    local options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=4096 -print_final_stats=1 -artifact_prefix="artifacts/$name/")
    [ ! -e "$dictionary" ] || options+=(-dict="$dictionary")
    "$target_dir/$host/release/$name" "${options[@]}" "corpus/$name" "corpus-seeds/$name" >"$log" 2>&1 || status=$?
    if [ $status -eq 0 ]; then
        printf '%-18s %10s runs, %6s edges\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
            "$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)"
        return
    fi
    echo "$name is broken (exit status $status); the end of $log:"
    grep -v '^ *[0-9]*: \|^ *at ' "$log" | tail -n 20
    echo "again: cd fuzz && cargo fuzz run --sanitizer none --target-dir $target_dir $name artifacts/$name/FILE"
    return 1
}
export -f fuzz
export seconds host target_dir
printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' bash -c 'fuzz {}'
