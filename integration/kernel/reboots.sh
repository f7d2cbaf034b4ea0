#!/usr/bin/env bash
# Installs the .deb of what `make install` puts into a directory in a virtual machine with systemd, Open vSwitch on the
# kernel's datapath and OVN, enables both units, and starts it again and again while no API server answers; every second
# time its power is cut. Says at each start how long the units took, and whether something failed; prints a table.
#
#   integration/kernel/reboots.sh STAGE
#
#   BOOTS        how often the machine starts (default: 10)
#   VM_TIMEOUT   seconds for all of them (default: 7200)
#
# What it leaves is in target/kernel/reboots. The machine has a disk of its own, and no network to the outside.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

stage=$(realpath "${1:?which directory}")
base="${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes/reboots"
packages=systemd,systemd-sysv,udev,dbus,kmod,iproute2,procps,netbase,openvswitch-switch,ovn-host,ovn-central
boots=${BOOTS:-10}
export VM_TIMEOUT=${VM_TIMEOUT:-7200}

say() { echo "reboots: $*" >&2; }
fail() { say "$@"; exit 1; }
. integration/kernel/machine.sh

main() {
    local began=$SECONDS kept=target/kernel/reboots work top kernel status=0 good bad
    kernel=$(integration/kernel/prepare.sh bookworm)
    [ -e "$base" ] || make_base
    rm -rf "$kept"
    mkdir -p "$kept"
    kept=$(realpath "$kept")
    work=$(mktemp -d)
    # shellcheck disable=SC2064 # as it is now
    trap "rm -rf '$work'" EXIT
    LEVEL=1 integration/packages/build.sh "$stage" 0.0.10 "$work/packages" >/dev/null
    top=$work/top
    make_top
    make_disk "$work/disk" "$top"
    make_initramfs "$work/initrd.gz"
    say "$boots starts"
    run_machine "$kept" "$work/disk" "$work/initrd.gz" -netdev hubport,id=n0,hubid=0 -device virtio-net-pci,netdev=n0,mac=52:54:00:00:00:01 || status=$?
    cat "$kept/results" || true
    [ -e "$kept/status" ] || fail "the machine ended without a result (qemu: $status); see $kept"
    bad=$(grep -c FAILED "$kept/results" || true)
    good=$(grep -c ': ready' "$kept/results" || true)
    # A start without a word is a failed one.
    [ "$good-$bad" = "$boots-0" ] || fail "FAILED after $((SECONDS - began)) s: $good of $boots starts came to an end, with $bad complaints; see $kept"
    say "passed in $((SECONDS - began)) s: $boots starts"
}

# In the folder $top: the kernel's modules, the configuration, and what installing the package and enabling its units changes.
make_top() {
    add_modules
    mkdir -p "$top"/{etc/{reboots,openvswitch,systemd/network,systemd/system/{multi-user.target.wants,network-online.target.wants}},root}
    echo vm >"$top/etc/hostname"
    printf '127.0.0.1 localhost vm\n' >"$top/etc/hosts"
    printf '/dev/vda / ext4 noatime 0 1\n' >"$top/etc/fstab"
    printf '[Match]\nName=eth0\n[Network]\nAddress=10.7.0.100/24\nGateway=10.7.0.1\n' >"$top/etc/systemd/network/10-eth0.network"
    local name
    for name in networkd networkd-wait-online; do
        ln -sf "/lib/systemd/system/systemd-$name.service" "$top/etc/systemd/system/network-online.target.wants/systemd-$name.service"
    done
    for name in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer getty@tty1.service \
        serial-getty@ttyS0.service systemd-pstore.service systemd-timesyncd.service; do
        ln -sf /dev/null "$top/etc/systemd/system/$name"
    done
    install -m 755 integration/kernel/reboots/drive "$top/etc/reboots/drive"
    echo "boots=$boots" >"$top/etc/reboots/scenario"
    unit drive "The test" "After=multi-user.target" "Type=simple
ExecStart=/etc/reboots/drive"
    mkdir -p "$top/etc/systemd/system/graphical.target.wants"
    # After multi-user.target, not in it.
    ln -sf /etc/systemd/system/drive.service "$top/etc/systemd/system/graphical.target.wants/drive.service"
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare --mount --propagation private -- bash -euc '
        mkdir "$1/work"
        mount -t overlay -o "lowerdir=$2,upperdir=$1/top,workdir=$1/work" overlay /mnt
        cp "$1"/packages/ovn-kubernetes_*.deb /mnt/root/
        chroot /mnt sh -ec "
            export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
            dpkg --install /root/ovn-kubernetes_*.deb
            rm /root/*.deb
            systemctl enable ovnkube-node ovnkube-master
        "
    ' sh "$work" "$base" >"$work/installation" 2>&1 || { cat "$work/installation" >&2; fail "the package cannot be installed"; }
    rm -rf "$work/work"
    # The administrator's part. Nothing has this address of an API server.
    cat >"$top/etc/openvswitch/ovn_k8s.conf" <<-END
		[default]
		cluster-subnets=10.244.0.0/16
		[kubernetes]
		apiserver=http://10.7.0.1:6443
		token=of-a-cluster-that-is-away
		[ovnsouth]
		address=unix:/var/run/ovn/ovnsb_db.sock
	END
}

main
