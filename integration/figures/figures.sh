#!/usr/bin/env bash
# Measures what docs/figures/README.md describes, one command after the other, and writes the page of this release.
#
#   integration/figures/figures.sh PAGE [bench bench-cluster services scale policies join latency starts soak]      (no name: all)
#
# With SHORT=1 the plugin is measured in fewer rounds. A missed goal is on the page and does not end the run; a command without figures does.
set -euo pipefail
cd "$(dirname "$0")/../.."
tables=integration/figures
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
page=$1
shift
[ $# -gt 0 ] || set -- bench bench-cluster services scale policies join latency starts soak

fail() { echo "figures: $*" >&2; exit 1; }

# measure JSON COMMAND…: the command writes these figures anew.
measure() {
    local json=$target/$1
    shift
    rm -f "$json"
    echo "figures: $*"
    # Exit status 1 is a missed goal, which the page says; what did not end well has no figures.
    "$@" || echo "figures: $* has the exit status $?"
    [ -s "$json" ] || fail "$* left no ${json#"$target"/}"
}

# section TITLE TABLE JSON COMMAND…
section() {
    local title=$1 table=$2 json=$3
    shift 3
    local command="$*"
    measure "$json" "$@"
    {
        printf '\n## %s\n\n\140%s\140. ' "$title" "${command/ --no-print-directory/}"
        jq -r -L "$tables" "include \"common\"; .environment | environment" "$target/$json"
        echo
        jq -r -L "$tables" -f "$tables/$table.jq" "$target/$json"
    } >>"$written"
}

written=$(mktemp)
trap 'rm -f "$written"' EXIT
for name; do
    case $name in
    bench) section 'The plugin' bench bench/bench.json make --no-print-directory "bench${SHORT:+-quick}" BENCH=--no-time-gates ;;
    bench-cluster) section 'Bursts of pods on a whole Kubernetes' bench-cluster bench/bench-cluster.json make --no-print-directory bench-cluster ROUNDS=1 ;;
    services) section "Services beside kube-proxy's" services services/services.json make --no-print-directory bench-services ;;
    scale) section 'The control plane' scale scale/scale.json make --no-print-directory scale RATES=50,200 ;;
    policies) section 'The control plane with policies and Services' scale scale/scale.json make --no-print-directory scale POLICIES=4800 SERVICES=10000 RATES=50 ;;
    join) section 'Nodes that join' join scale/join.json make --no-print-directory scale JOIN=400 ;;
    latency) section 'From a change to the first connection' latency latency/latency.json make --no-print-directory latency ;;
    starts) section 'Pods and policies that start' starts latency/network-policy.json make --no-print-directory latency STARTS=200 ;;
    soak) section 'Ten thousand pods' soak soak/soak.json make --no-print-directory soak ;;
    *) fail "there is no measurement '$name'" ;;
    esac
done

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
mkdir -p "$(dirname "$page")"
{
    echo "# Figures of $version"
    echo
    echo "Measured by \`make figures\` on $(date -u +%F), from the commit $(git rev-parse --short HEAD). [What each figure is](README.md)."
    echo "Other machines give other figures: a comparison needs one machine and one hour."
    echo
    sizes=$(stat -c '%s' "$target/bin/ovn-k8s-cni-overlay" "$target/bin/ovnkube" | tr '\n' ' ')
    read -r plugin ovnkube <<<"$sizes"
    echo "Executables of \`make build\`: \`ovn-k8s-cni-overlay\` $plugin bytes, \`ovnkube\` $ovnkube bytes."
    missed=$(grep -c '\*\*missed\*\*' "$written" || true)
    echo "Missed goals: $missed."
    cat "$written"
} >"$page"
echo "figures: $page has them; $missed goals are missed"
