#!/usr/bin/env bash
# What Open vSwitch's datapath in user space loses by itself while a neighbour's port comes and goes, or while
# a group of OpenFlow is replaced: no program of this project takes part.
#
# Two pods exchange 100 packets a second, through a tunnel between two switches or within one; beside them,
# ovs-vsctl(8) adds and removes a port of a third about twice a second. Or the packets go through a group of
# two buckets, and ovs-ofctl(8) puts another group in its place again and again, in one transaction as
# ovn-controller does it; the former group is deleted, or kept. Everything is in namespaces of its own and
# ends with the script. As root, with Open vSwitch installed:
#
#     integration/packet-loss.sh tunnel|local changing|quiet [PACKETS]
#     integration/packet-loss.sh group replaced|kept [PACKETS]
set -euo pipefail
if [[ ${PACKET_LOSS_INSIDE:-} != 1 ]]; then
    PACKET_LOSS_INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
path=${1:?tunnel, local or group} neighbour=${2:?changing or quiet, replaced or kept} packets=${3:-3000}
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
# Puts a group into the way of all requests, and another one in its place again and again.
replace_groups() {
    local number=1 bucket='weight=100,actions=normal'
    while [[ -e /run/changing ]]; do
        {
            echo "group add group_id=$number,type=select,selection_method=dp_hash,bucket=bucket_id=0,$bucket,bucket=bucket_id=1,$bucket"
            echo "flow add table=0,priority=100,icmp,icmp_type=8,actions=group:$number"
            if ((number > 1)) && [[ $neighbour == replaced ]]; then echo "group delete group_id=$((number - 1))"; fi
        } >/run/bundle
        ovs-ofctl -O OpenFlow15 bundle /run/node1/br-int.mgmt /run/bundle
        number=$((number + 1))
        echo >>/run/changes
    done
}
touch /run/changing /run/changes
if [[ $path == group ]]; then replace_groups & fi
if [[ $neighbour == changing ]]; then come_and_go & fi
# Many flows: the more there are, the longer some lead to the group that is gone.
targets=(10.0.0.2) interval=0.01
if [[ $path == group ]]; then
    interval=0.02
    for last in {101..139}; do
        ip -n pod2 addr add "10.0.0.$last/24" dev eth0
        # Before the first request has an answer, some are lost while the address is resolved.
        ip netns exec pod1 ping -q -c 1 "10.0.0.$last" >/dev/null || true
        targets+=("10.0.0.$last")
    done
fi
pings=()
for target in "${targets[@]}"; do
    ip netns exec pod1 ping -q -c "$packets" -i "$interval" "$target" >"/run/ping-$target" &
    pings+=($!)
done
for ping in "${pings[@]}"; do wait "$ping" || true; done
rm /run/changing
awk '/transmitted/ { sent += $1; received += $4 } END { print sent " packets, " sent - received " lost" }' /run/ping-*
echo "$(wc -l </run/changes) changes"
wait
ovs-appctl -t /run/node1/vswitchd.ctl coverage/show | grep '^drop_action_of_pipeline' || echo 'no drop_action_of_pipeline'
