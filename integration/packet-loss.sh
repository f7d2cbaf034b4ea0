#!/usr/bin/env bash
# What Open vSwitch's datapath in user space loses by itself while a neighbour's port comes and goes: no
# program of this project takes part.
#
# Two pods exchange 100 packets a second, through a tunnel between two switches or within one; beside them,
# ovs-vsctl(8) adds and removes a port of a third about twice a second. Everything is in namespaces of its
# own and ends with the script. As root, with Open vSwitch installed:
#
#     integration/packet-loss.sh tunnel|local changing|quiet [PACKETS]
set -euo pipefail
if [[ ${PACKET_LOSS_INSIDE:-} != 1 ]]; then
    PACKET_LOSS_INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
path=${1:?tunnel or local} neighbour=${2:?changing or quiet} packets=${3:-3000}
mount -t tmpfs tmpfs /run
mkdir -p /run/netns
ip link set lo up

vsctl() { ip netns exec "$1" ovs-vsctl --db="unix:/run/$1/db.sock" "${@:2}"; }

# A node: a namespace with Open vSwitch and br-int.
node() {
    local dir=/run/$1
    mkdir "$dir"
    ip netns add "$1"
    ip -n "$1" link set lo up
    ovsdb-tool create "$dir/conf.db" /usr/share/openvswitch/vswitch.ovsschema
    ip netns exec "$1" ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" --unixctl="$dir/db.ctl" --pidfile="$dir/db.pid" \
        --detach --log-file="$dir/db.log" -vconsole:off 2>/dev/null
    vsctl "$1" --no-wait init
    OVS_RUNDIR=$dir ip netns exec "$1" ovs-vswitchd "unix:$dir/db.sock" --disable-system --unixctl="$dir/vswitchd.ctl" \
        --pidfile="$dir/vswitchd.pid" --detach --log-file="$dir/vswitchd.log" -vconsole:off 2>/dev/null
    vsctl "$1" add-br br-int -- set bridge br-int datapath_type=netdev
}

# A pod: node, number.
pod() {
    ip netns add "pod$2"
    ip -n "$1" link add "host$2" type veth peer name eth0 netns "pod$2"
    ip -n "$1" link set "host$2" up
    ip -n "pod$2" link set eth0 up
    ip -n "pod$2" addr add "10.0.0.$2/24" dev eth0
    vsctl "$1" add-port br-int "host$2"
}

# A node's end of the tunnel: node, its own last byte, the other's.
tunnel() {
    vsctl "$1" add-br br-ex -- set bridge br-ex datapath_type=netdev -- add-port br-ex "up$2" \
        -- add-port br-int tunnel -- set interface tunnel type=geneve options:remote_ip="192.0.2.$3" options:key=7
    ip -n "$1" link set "up$2" up
    ip -n "$1" addr add "192.0.2.$2/24" dev br-ex
    ip -n "$1" link set br-ex up
}

node node1
if [[ $path == tunnel ]]; then
    node node2
    ip -n node1 link add up1 type veth peer name up2 netns node2
    tunnel node1 1 2
    tunnel node2 2 1
    pod node2 2
else
    pod node1 2
fi
pod node1 1
ip netns exec pod1 ping -q -c 5 -i 0.2 10.0.0.2 >/dev/null

come_and_go() {
    while [[ -e /run/changing ]]; do
        ip -n node1 link add third type veth peer name fourth
        ip -n node1 link set third up
        vsctl node1 add-port br-int third
        sleep 0.3
        vsctl node1 del-port br-int third
        ip -n node1 link del third
        sleep 0.2
        echo >>/run/changes
    done
}
touch /run/changing /run/changes
if [[ $neighbour == changing ]]; then come_and_go & fi
ip netns exec pod1 ping -q -c "$packets" -i 0.01 10.0.0.2 >/run/ping || true
rm /run/changing
grep transmitted /run/ping
echo "$(wc -l </run/changes) times a neighbour's port came and went"
wait
