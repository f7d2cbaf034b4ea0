#!/usr/bin/env bash
# Measures ways of packets on the kernel's own datapath, in turn with the plugin `bridge` and kube-proxy, in a
# virtual machine with a Debian release's kernel (vm.sh). Both sides are on its emulated processor: what it
# prints are ratios.
#
#   integration/kernel/bench.sh INTEGRATION         (the program, a release build)
#
#   SUITE        the release whose kernel it is (default: bookworm; trixie, sid)
#   TURNS, TURN  how often each way is measured, and for how many seconds (default: 8, 3)
#   NODEPORT=1   the gateway routers serve node ports
#   VM_TIMEOUT   seconds for everything (default: 3600)
#
# Figures, and logs if it fails, are in target/kernel/bench-SUITE.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -eq 1 ] || { echo "bench.sh: INTEGRATION" >&2; exit 2; }

program=$1 suite=${SUITE:-bookworm}
case ${NODEPORT:-} in '' | 0 | no) nodeport= ;; *) nodeport=--nodeport ;; esac
folder=target/kernel/bench-$suite
rm -rf "$folder"
status=0
# The API server and kube-proxy are programs in Go: they take memory.
LAB_DATAPATH=system VM_PASS="LAB_DATAPATH OVN_CNI_BIN_DIR RUST_BACKTRACE" VM_KEEP=$folder \
    VM_MEMORY=${VM_MEMORY:-4096} VM_TIMEOUT=${VM_TIMEOUT:-3600} integration/kernel/vm.sh "$suite" \
    "$program services --without-kubelets --turns ${TURNS:-8} --turn ${TURN:-3} $nodeport
    status=\$?
    cp -R '${program%/*/*}'/{services,lab-logs} /run/job/keep/ 2>/dev/null
    exit \$status" || status=$?
[ ! -d "$folder" ] || echo "kept: $folder" >&2
exit "$status"
