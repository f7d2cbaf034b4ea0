#!/usr/bin/env bash
# Starts a virtual machine with systemd, Open vSwitch on the kernel's datapath, the node's server, and a real
# program that configures its NIC by DHCP, with leases of 120 s, again and again; says whether the node was
# reachable at each start, and prints a table. The status is 0 if it always was, and the server said what it should.
#
#   integration/kernel/uplinks.sh [SCENARIO…]     (default: all that are listed below)
#
#   SCENARIO     MANAGER-WAY[-LAYOUT], for example networkd-refused, NetworkManager-bridge-bond, ifupdown-moved
#                  MANAGER  networkd, NetworkManager or ifupdown (with dhclient)
#                  WAY      refused: nothing is configured for Open vSwitch
#                           bridge: the bridge is configured in the NIC's place, as docs/running.md says
#                           moved: --gateway-move-managed-interface
#                           transient: the same, and Open vSwitch starts with --delete-transient-ports
#                  LAYOUT   plain (default), two (NICs), bond, vlan
#   BOOTS        how often the machine starts (default: 3); the first and the last time it outlives a lease
#   STAY         seconds for that (default: 200)
#   OVNKUBE      the executable (default: target/debug/ovnkube)
#
# The other side of the NICs, with the DHCP server, is a network namespace of the machine. What it leaves is in
# target/kernel/uplinks/SCENARIO. The machine has a disk of its own, and no network to the outside.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

ovnkube=${OVNKUBE:-target/debug/ovnkube}
here=$PWD/integration/kernel/uplinks
base="${XDG_CACHE_HOME:-$HOME/.cache}/ovn-kubernetes/uplinks"
packages=systemd,systemd-sysv,udev,dbus,kmod,iproute2,iputils-ping,procps,netbase,openvswitch-switch
packages+=,network-manager,isc-dhcp-client,ifupdown,dnsmasq-base
all=({networkd,NetworkManager,ifupdown}-{refused,bridge,moved,transient}
    {networkd,NetworkManager,ifupdown}-refused-{two,vlan} {networkd,NetworkManager}-refused-bond)

say() { echo "uplinks: $*" >&2; }
fail() { say "$@"; exit 1; }
. integration/kernel/machine.sh

main() {
    [ $# -gt 0 ] || set -- "${all[@]}"
    [ -x "$ovnkube" ] || fail "$ovnkube is missing: cargo build -p ovnkube"
    kernel=$(integration/kernel/prepare.sh bookworm)
    [ -e "$base" ] || make_base
    local scenario bad=0
    for scenario in "$@"; do run "$scenario" || bad=$((bad + 1)); done
    say "$# scenarios, $bad failed"
    [ "$bad" -eq 0 ]
}

# --- What differs --------------------------------------------------------------------------------------------------------------------

# In the folder $top: the kernel's modules, the server, the manager's configuration.
make_top() {
    add_modules
    mkdir -p "$top"/{usr/bin,etc/{uplinks,openvswitch,default,systemd/system/multi-user.target.wants,systemd/network},var/log/openvswitch,var/lib/misc,etc/pods}
    strip -o "$top/usr/bin/ovnkube" "$ovnkube"
    cp "$here"/{world,drive} "$top/etc/uplinks/"
    chmod 755 "$top"/etc/uplinks/{world,drive}
    printf '%s\n' "layout=$layout" "boots=${BOOTS:-3}" "stay=${STAY:-200}" "way=$way" "expect_word='$expect'" >"$top/etc/uplinks/scenario"
    echo vm >"$top/etc/hostname"
    printf '127.0.0.1 localhost vm\n' >"$top/etc/hosts"
    printf '/dev/vda / ext4 noatime 0 0\n' >"$top/etc/fstab"
    printf 'OVNKUBE_OPTIONS=--pod-manifests /etc/pods\n' >"$top/etc/default/ovnkube-node"
    {
        printf '[default]\nnode-subnets=10.244.0.0/24\ncluster-subnets=10.244.0.0/16\n[gateway]\nmode=shared\n'
        case $way in
        moved | transient) echo move-managed-interface=true ;;
        bridge) echo "interface=br$nic" ;;
        esac
    } >"$top/etc/openvswitch/ovn_k8s.conf"
    [ "$way" != transient ] || echo 'OVS_CTL_OPTS="--delete-transient-ports"' >"$top/etc/default/openvswitch-switch"
    cp conf/ovnkube-node.service "$top/etc/systemd/system/"
    unit world "The other side" "DefaultDependencies=no
After=systemd-remount-fs.service systemd-udev-settle.service systemd-modules-load.service
Wants=systemd-udev-settle.service network-pre.target
Before=network-pre.target" "Type=oneshot
RemainAfterExit=yes
ExecStart=/etc/uplinks/world
KillMode=none"
    # ovn-controller makes it elsewhere.
    unit integration "The integration bridge" "After=ovs-vswitchd.service
Requires=ovs-vswitchd.service" "Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/ovs-vsctl --may-exist add-br br-int"
    unit drive "The test" "After=multi-user.target" "Type=simple
ExecStart=/etc/uplinks/drive"
    local name
    for name in ovnkube-node world integration; do enable "$name"; done
    mkdir -p "$top/etc/systemd/system/graphical.target.wants"
    # After multi-user.target, not in it.
    rm -f "$top/etc/systemd/system/multi-user.target.wants/drive.service"
    ln -sf /etc/systemd/system/drive.service "$top/etc/systemd/system/graphical.target.wants/drive.service"
    for name in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer getty@tty1.service \
        serial-getty@ttyS0.service ModemManager.service wpa_supplicant.service systemd-networkd.service systemd-networkd.socket NetworkManager.service \
        networking.service systemd-pstore.service systemd-timesyncd.service systemd-networkd-wait-online.service NetworkManager-wait-online.service; do
        ln -sf /dev/null "$top/etc/systemd/system/$name"
    done
    "manage_$manager"
    [ "$way" != bridge ] || make_bridge
}

# A unit of the packages that was masked above.
unmask() { rm -f "$top/etc/systemd/system/$1"; }

# The bridge in place of the NIC, made once: by docs/running.md.
make_bridge() {
    cat >"$top/etc/uplinks/bridge" <<-END
		#!/bin/sh -e
		ovs-vsctl --no-wait br-exists br$nic && exit
		exec ovs-vsctl --no-wait add-br br$nic -- set Bridge br$nic fail_mode=standalone 'other_config:hwaddr="52:54:00:00:00:01"' \\
		    -- add-port br$nic $nic -- br-set-external-id br$nic bridge-uplink $nic
	END
    chmod 755 "$top/etc/uplinks/bridge"
    unit bridge "The bridge in place of the NIC" "DefaultDependencies=no
After=ovsdb-server.service
Requires=ovsdb-server.service
Before=ovs-vswitchd.service" "Type=oneshot
RemainAfterExit=yes
ExecStart=/etc/uplinks/bridge"
    enable bridge
}

network() { printf '%s\n' "$2" >"$top/etc/systemd/network/$1"; }
manage_networkd() {
    unmask systemd-networkd.service
    unmask systemd-networkd.socket
    unmask systemd-networkd-wait-online.service
    # As `systemctl enable` makes them.
    ln -sf /lib/systemd/system/systemd-networkd.service "$top/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
    mkdir -p "$top/etc/systemd/system/network-online.target.wants"
    local dhcp=$'[Network]\nDHCP=ipv4'
    case $layout in
    bond)
        network 10-bond0.netdev $'[NetDev]\nName=bond0\nKind=bond\nMACAddress=52:54:00:00:00:01\n[Bond]\nMode=active-backup\nMIIMonitorSec=1'
        network 10-members.network $'[Match]\nName=eth0 eth2\n[Network]\nBond=bond0' ;;
    vlan)
        network 10-vlan.netdev $'[NetDev]\nName=eth0.7\nKind=vlan\n[VLAN]\nId=7'
        network 10-eth0.network $'[Match]\nName=eth0\n[Network]\nVLAN=eth0.7\nLinkLocalAddressing=no' ;;
    two) network 20-eth2.network $'[Match]\nName=eth2\n'"$dhcp"$'\n[DHCPv4]\nRouteMetric=2000' ;;
    esac
    if [ "$way" = bridge ]; then
        # It sets the NIC up, and gives it no address.
        network "05-$nic.network" $'[Match]\nName='"$nic"$'\n[Link]\nRequiredForOnline=no\n[Network]\nLinkLocalAddressing=no'
        network "05-br$nic.network" $'[Match]\nName=br'"$nic"$'\n'"$dhcp"
    else
        network "10-$nic.network" $'[Match]\nName='"$nic"$'\n'"$dhcp"
    fi
}

connection() { # NAME TEXT
    mkdir -p "$top/etc/NetworkManager/system-connections"
    printf '[connection]\nid=%s\nuuid=%s\n%s\n' "$1" "$(cat /proc/sys/kernel/random/uuid)" "$2" >"$top/etc/NetworkManager/system-connections/$1.nmconnection"
    chmod 600 "$top/etc/NetworkManager/system-connections/$1.nmconnection"
}
manage_NetworkManager() {
    unmask NetworkManager.service
    ln -sf /lib/systemd/system/NetworkManager.service "$top/etc/systemd/system/multi-user.target.wants/NetworkManager.service"
    mkdir -p "$top/etc/NetworkManager/conf.d"
    printf '[main]\nno-auto-default=*\n' >"$top/etc/NetworkManager/conf.d/10-plain.conf"
    local auto=$'[ipv4]\nmethod=auto\n[ipv6]\nmethod=disabled'
    case $layout in
    bond)
        connection bond0 $'type=bond\ninterface-name=bond0\n[bond]\nmode=active-backup\nmiimon=100\n[ethernet]\ncloned-mac-address=52:54:00:00:00:01\n'"$auto"
        connection eth0 $'type=ethernet\ninterface-name=eth0\nmaster=bond0\nslave-type=bond'
        connection eth2 $'type=ethernet\ninterface-name=eth2\nmaster=bond0\nslave-type=bond'
        return ;;
    vlan)
        connection eth0 $'type=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled'
        connection vlan $'type=vlan\ninterface-name=eth0.7\n[vlan]\nid=7\nparent=eth0\n'"$auto"
        return ;;
    two) connection eth2 $'type=ethernet\ninterface-name=eth2\n[ipv4]\nmethod=auto\nroute-metric=2000\n[ipv6]\nmethod=disabled' ;;
    esac
    if [ "$way" = bridge ]; then
        # Debian's has no plugin for Open vSwitch: networkd configures the bridge.
        printf '[keyfile]\nunmanaged-devices=interface-name:%s;interface-name:br%s\n' "$nic" "$nic" >"$top/etc/NetworkManager/conf.d/20-uplink.conf"
        manage_networkd
    else
        connection "$nic" $'type=ethernet\ninterface-name='"$nic"$'\n'"$auto"
    fi
}

manage_ifupdown() {
    unmask networking.service
    ln -sf /lib/systemd/system/networking.service "$top/etc/systemd/system/multi-user.target.wants/networking.service"
    mkdir -p "$top/etc/network"
    local link=$nic
    [ "$way" != bridge ] || link=br$nic
    {
        # Nobody else sets it up.
        [ "$way" != bridge ] || printf 'auto %s\niface %s inet manual\n    up ip link set %s up\n' "$nic" "$nic" "$nic"
        printf 'auto lo\niface lo inet loopback\nauto %s\niface %s inet dhcp\n' "$link" "$link"
        [ "$layout" != two ] || printf 'auto eth2\niface eth2 inet dhcp\n    metric 2000\n'
    } >"$top/etc/network/interfaces"
    [ "$layout" != bond ] || fail "ifupdown has no bonds of its own"
}

# --- The machine ---------------------------------------------------------------------------------------------------------------------

run() {
    local scenario=$1 nic=eth0 top work kept expect began=$SECONDS status=0
    IFS=- read -r manager way layout <<<"$scenario-plain"
    layout=${layout%%-*}
    case $layout in bond) nic=bond0 ;; vlan) nic=eth0.7 ;; esac
    declare -F "manage_$manager" >/dev/null || fail "'$manager' is no manager of this test"
    # What the server has to say at each start.
    case $way in
    refused) expect="$nic is not made the uplink of a bridge" ;;
    bridge) expect="ovn-bridge-mappings=physnet:br$nic|ovn-controller has not made patch" ;;
    moved | transient) expect="is now the uplink of bridge|was the uplink of|gets its address again" ;;
    *) fail "'$way' is no way of this test" ;;
    esac
    kept=target/kernel/uplinks/$scenario
    rm -rf "$kept"
    mkdir -p "$kept"
    kept=$(realpath "$kept")
    work=$(mktemp -d)
    top=$work/top
    make_top
    make_disk "$work/disk" "$top" -O ^has_journal || fail "the disk of $scenario cannot be made"
    rm -rf "$top"
    make_initramfs "$work/initrd.gz"
    say "$scenario, ${BOOTS:-3} starts"
    local nics=() number
    for number in 0 1 2 3; do
        nics+=(-netdev "hubport,id=n$number,hubid=$((number / 2))" -device "virtio-net-pci,netdev=n$number,mac=52:54:00:00:00:0$((number + 1))")
    done
    run_machine "$kept" "$work/disk" "$work/initrd.gz" "${nics[@]}" || status=$?
    rm -rf "$work"
    [ ! -e "$kept/results" ] || sed "s/^/$scenario: /" "$kept/results"
    if [ ! -e "$kept/status" ]; then
        say "$scenario: the machine ended without a result (qemu: $status); see $kept"
        return 1
    fi
    # Each start has to end reachable, and with a word of the server.
    if grep -q FAILED "$kept/results" || [ "$(grep -cE "server: .*($expect)" "$kept/results")" -lt "${BOOTS:-3}" ]; then
        say "$scenario: FAILED after $((SECONDS - began)) s; see $kept"
        return 1
    fi
    say "$scenario: passed in $((SECONDS - began)) s"
}

main "$@"
