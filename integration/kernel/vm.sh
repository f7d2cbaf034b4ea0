#!/usr/bin/env bash
# Runs a shell command in a virtual machine with the kernel of a Debian release, on this machine's root file
# system: read-only below a tmpfs; /run, /tmp and /mnt are empty. The command's output comes as it is written,
# and its status is this one's; 124 if it has none after VM_TIMEOUT seconds.
#
#   integration/kernel/vm.sh SUITE COMMAND
#
#   VM_TIMEOUT   seconds (default: 900)
#   VM_MEMORY    MiB (default: 3072)
#   VM_CPUS      processors (default: 2)
#   VM_PASS      names of the variables that the command gets
#   VM_KEEP      a directory for what the command leaves in /run/job/keep
#
# qemu emulates the processor, without KVM: everything takes 25 to 40 times as long as outside. The machine
# has no NIC and no disk, and so touches nothing but its own job's directory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 2 ] || { echo "vm.sh: SUITE COMMAND" >&2; exit 2; }
folder=$("$here/prepare.sh" "$1")

# A directory for each run: two machines on one would mix their output.
job=$(mktemp -d)
mkdir "$job/keep"
: >"$job/output"
printf '%s\n' "$2" >"$job/command"
cp "$here/guest" "$job/guest"
{
    for name in ${VM_PASS:-}; do [ -z "${!name+set}" ] || printf 'export %s=%q\n' "$name" "${!name}"; done
    printf 'cd %q\n' "$PWD"
} >"$job/environment"

drive() { echo -fsdev "local,id=$1,path=$2,security_model=none$3" -device "virtio-9p-pci,fsdev=$1,mount_tag=$1"; }
# `-la57`: five levels of page tables are slow to emulate. `nice`: whatever else runs here comes first.
# shellcheck disable=SC2046 # lists of words
nice -n 5 timeout "${VM_TIMEOUT:-900}" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi,tb-size=512 -cpu max,-la57 \
    -smp "${VM_CPUS:-2}" -m "${VM_MEMORY:-3072}" -nodefaults -no-user-config -display none -no-reboot -serial "file:$job/console" \
    -kernel "$folder/vmlinuz" -initrd "$folder/initrd.gz" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off nowatchdog tsc=reliable vm.modules=$folder/root/lib/modules" \
    -device virtio-rng-pci $(drive root / ,readonly=on,multidevs=remap) $(drive job "$job" "") &
qemu=$!
tail -n +1 -F --pid="$qemu" -s .2 "$job/output" 2>/dev/null &
tail=$!
trap 'kill "$qemu" "$tail" 2>/dev/null || true' EXIT
status=0
wait "$qemu" || status=$?
# tail ends by itself, once it has read the rest.
wait "$tail" 2>/dev/null || true
trap - EXIT
if [ -n "${VM_KEEP:-}" ] && [ -n "$(ls -A "$job/keep")" ]; then
    mkdir -p "$VM_KEEP"
    cp -R "$job/keep/." "$VM_KEEP/"
fi
if [ -s "$job/status" ]; then
    echo "kernel: $(<"$folder/release") booted in $(<"$job/booted") s, ended after $(<"$job/ended") s, $(<"$job/memory") MiB in use" >&2
    status=$(<"$job/status")
    rm -rf "$job"
    exit "$status"
fi
echo "kernel: the machine ended without a status (qemu: $status); its files are in $job; its console:" >&2
tail -n 20 "$job/console" >&2
exit 124
