#!/usr/bin/env bash
# Runs tests of the lab on the kernel's own datapath, in a virtual machine with a Debian release's kernel, Open
# vSwitch and OVN, and prints a table. The status is 0 if each of them passed.
#
#   integration/kernel/test.sh [MODULE | MODULE:TEST]…      (TEST is a test's whole name, or a part of several names)
#
#   SUITE        the release (default: bookworm with this machine's own Open vSwitch and OVN; trixie, sid)
#   QUICK=1      the tests of `quick`, which take five minutes
#   VM_TIMEOUT   seconds for all of them (default: 7200)
#
# What a failed test left is in target/kernel/SUITE.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$HOME/.cargo/bin:$PATH"

# What the datapath decides: packets, checksums, limits in the kernel, geneve, bridges over a NIC. The rest of
# the lab's tests are about databases and processes, which are the same here and 30 times slower.
quick=(
    attach:the_pods_end_is_what_the_annotation_says
    traffic:pods_of_one_node_exchange_packets_in_both_families
    limits:limits_are_of_the_interface_that_asks_for_them_and_of_no_other
    limits:a_limited_pod_sends_no_faster_than_it_may
    networks:a_second_interface_has_its_own_names_and_packets
)
all=(
    attach
    traffic
    networks
    limits
    detach:del_lets_the_switch_remove_a_port_before_its_link_goes
    world
    gateways
    gateway_node
    gateway_changes
    upgrade
    management_port:a_node_and_the_pods_of_every_node_reach_each_other_in_both_families
    management_port:whatever_is_taken_from_the_port_is_put_back
    management_port:a_switch_that_starts_again_or_a_bridge_that_is_made_again_gets_its_port_back
    bridges:everything_a_nic_has_goes_to_the_bridge_and_comes_back
)
# Seconds for one test. The slowest takes 20 s outside; no test is left to hold all others up.
each=1200

say() { echo "kernel: $*" >&2; }
fail() { say "$@"; exit 1; }

main() {
    local suite=${SUITE:-bookworm} selected=("$@") list programs=
    if [ $# -eq 0 ]; then
        case ${QUICK:-} in '' | 0 | no) selected=("${all[@]}") ;; *) selected=("${quick[@]}") ;; esac
    fi
    list=$(mktemp)
    # shellcheck disable=SC2064 # as it is now
    trap "rm -f '$list'" EXIT
    executables_and_tests "${selected[@]}" >"$list"
    rm -rf "target/kernel/$suite"
    # Downloaded here: the machine has no NIC.
    [ "$suite" = bookworm ] || { integration/compat.sh path "$suite" >/dev/null; programs="integration/compat.sh with $suite"; }
    say "$(wc -l <"$list") tests with the kernel of Debian's $suite"
    LAB_DATAPATH=system VM_PASS="LAB_DATAPATH OVN_CNI_BIN_DIR OVN_TRACE_QUESTIONS OVN_TRACE_SEED OVN_TRACE_WORLD RUST_BACKTRACE" VM_KEEP="target/kernel/$suite" VM_TIMEOUT=${VM_TIMEOUT:-7200} \
        integration/kernel/vm.sh "$suite" "$programs integration/kernel/test.sh inside <<'END'
$(<"$list")
END"
}

# Lines of the executable and the name of one test in it. A selection that matches nothing is an error.
executables_and_tests() {
    local selection executable tests module wanted
    cargo test --locked --no-run --workspace --features cni/failpoints,ovnkube/failpoints --test lab >&2 2>"$list.log" || { cat "$list.log" >&2; fail "the tests do not build"; }
    executable=$(sed -n 's|^ *Executable tests/lab/main.rs (\(.*\))$|\1|p' "$list.log")
    [ -n "$executable" ] || fail "cargo names no executable of tests/lab/main.rs"
    for selection in "$@"; do
        module=${selection%%:*} wanted=${selection#"${selection%%:*}"}
        tests=$("$executable" --list --format terse | sed -n "s/^\($module::.*\): test$/\1/p")
        # A whole name means that test alone, also where it begins another one's.
        tests=$(grep -Fx -- "$module::${wanted#:}" <<<"$tests" || grep -F -- "${wanted#:}" <<<"$tests") || fail "there is no test $selection"
        # shellcheck disable=SC2086 # a list of words
        printf "$executable %s\n" $tests
    done
    rm -f "$list.log"
}

# --- In the machine -------------------------------------------------------------------------------------------------------------

inside() {
    local executable test name began status rows=() failed=0
    while read -r executable test; do
        name=${executable##*/}
        name=${name%-*}::$test
        began=$SECONDS status=passed
        # What the tests write is kept in the machine; its output is only of interest if one fails.
        timeout --kill-after=10 "$each" "$executable" --exact "$test" --nocapture --test-threads=1 </dev/null >/run/output 2>&1 || status=FAILED
        # A filter that matches nothing passes, too.
        grep -q '^test result: ok. 1 passed' /run/output || status=FAILED
        rows+=("$(printf '%-6s %4d s  %s' "$status" $((SECONDS - began)) "$name")")
        echo "${rows[-1]}"
        [ "$status" = passed ] && continue
        failed=$((failed + 1))
        tail -n 40 /run/output | sed 's/^/    /'
        mkdir -p "/run/job/keep/$name"
        cp /run/output "/run/job/keep/$name/output"
        cp -R "${executable%/debug/deps/*}/lab-logs/${name//::/.}" "/run/job/keep/$name/" 2>/dev/null || true
    done
    printf '%s\n' "=== $(uname -r), $(ovs-vswitchd --version | sed -n 1p), datapath $LAB_DATAPATH" "${rows[@]}" \
        "=== ${#rows[@]} tests, $failed failed"
    [ "$failed" -eq 0 ] && [ ${#rows[@]} -gt 0 ]
}

case ${1:-} in
inside) inside ;;
*) main "$@" ;;
esac
