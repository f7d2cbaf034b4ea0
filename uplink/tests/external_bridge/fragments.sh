#!/bin/sh
# A node with a bridge on the userspace datapath, the world, and a namespace in the place of OVN, all inside of
# namespaces of this script's own. Pings of 4,000 bytes, with the flows of the file: who reached whom.
# Usage: unshare --user --map-root-user --net --mount --pid --fork --kill-child sh fragments.sh DIRECTORY FLOWS
set -eu
dir=$1 flows=$2
mac=02:00:00:00:00:01 world_mac=02:00:00:00:00:99
export OVS_RUNDIR="$dir" OVS_LOGDIR="$dir" OVS_DBDIR="$dir"
# The bridge's own port is a TUN device.
test -w /dev/net/tun || { echo "/dev/net/tun cannot be opened; as root: modprobe tun; chmod 666 /dev/net/tun" >&2; exit 1; }
mount -t tmpfs none /run
# On every way out, and only these two.
trap 'kill $(cat "$dir"/ovs-vswitchd.pid "$dir"/ovsdb-server.pid 2>/dev/null) 2>/dev/null || :' EXIT

ovsdb-tool create "$dir/conf.db" /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" --pidfile --detach --log-file -vconsole:off
vsctl() { ovs-vsctl --db="unix:$dir/db.sock" --timeout=20 "$@"; }
vsctl --no-wait init
ovs-vswitchd "unix:$dir/db.sock" --pidfile --detach --log-file -vconsole:off --disable-system
vsctl add-br breth0 -- set Bridge breth0 datapath_type=netdev other_config:hwaddr=$mac

number=1
for place in world ovn; do
    ip netns add $place
    ip link add p$number type veth peer name eth0 netns $place
    ip link set p$number up
    vsctl add-port breth0 p$number -- set Interface p$number ofport_request=$number
    number=$((number + 1))
done
ip -n world link set eth0 address $world_mac
ip -n ovn link set eth0 address $mac
for place in world ovn; do
    # The userspace datapath does not compute checksums that the kernel left to a NIC.
    ip netns exec $place ethtool -K eth0 tx off gro off gso off tso off >/dev/null
    ip -n $place link set eth0 up
done
ip link set breth0 up
ip -n world addr add 192.0.2.254/24 dev eth0
# The host and OVN have the same address.
ip addr add 192.0.2.1/24 dev breth0
ip -n ovn addr add 192.0.2.1/24 dev eth0
ip -n world neigh add 192.0.2.1 lladdr $mac dev eth0 nud permanent
ip neigh add 192.0.2.254 lladdr $world_mac dev breth0 nud permanent
ip -n ovn neigh add 192.0.2.254 lladdr $world_mac dev eth0 nud permanent
ovs-ofctl -O OpenFlow14 del-flows breth0
ovs-ofctl -O OpenFlow14 add-flows breth0 "$flows"

# answered NAME ADDRESS COMMAND…: pings the address, by way of the command.
answered() {
    name=$1 address=$2
    shift 2
    # 3,972 bytes, and 28 of headers.
    "$@" ping -n -q -c 3 -i 0.2 -W 2 -s 3972 "$address" | sed -n "s/.*transmitted, \([0-9]*\) received.*/$name \1/p"
}
answered ovn-to-world 192.0.2.254 ip netns exec ovn
answered host-to-world 192.0.2.254
answered world-to-host 192.0.2.1 ip netns exec world
