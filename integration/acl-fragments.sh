#!/usr/bin/env bash
# What ACLs with a port do to datagrams in fragments on the userspace datapath: one switch with two ports, and five
# datagrams of each kind from one to the other, with and without `acl_ct_translation` (OVN 26.03 and later).
#
#   integration/compat.sh with sid unshare --net --mount --propagation private integration/acl-fragments.sh
#
# All is inside of the namespaces that this is started in. To be root is enough.
set -euo pipefail
dir=$(mktemp -d)
for place in /run/netns /var/run/openvswitch /var/run/ovn; do
    mkdir -p "$place"
    mount -t tmpfs none "$place"
done
trap 'kill $(cat /var/run/ovn/*.pid /var/run/openvswitch/*.pid) 2>/dev/null || :; rm -rf "$dir"' EXIT
ip link set lo up

serve() { # NAME SCHEMA SOCKET CONTROL
    ovsdb-tool create "$dir/$1.db" "$2"
    ovsdb-server "$dir/$1.db" --remote="punix:$3" --pidfile="$4.pid" --unixctl="$4.ctl" --detach --no-chdir \
        --log-file="$dir/$1.log" -vconsole:off
}
serve conf /usr/share/openvswitch/vswitch.ovsschema /var/run/openvswitch/db.sock /var/run/openvswitch/ovsdb-server
serve nb /usr/share/ovn/ovn-nb.ovsschema /var/run/ovn/ovnnb_db.sock /var/run/ovn/nb
serve sb /usr/share/ovn/ovn-sb.ovsschema /var/run/ovn/ovnsb_db.sock /var/run/ovn/sb
start() { "$@" --pidfile --detach --no-chdir --log-file="$dir/$1.log" -vconsole:off; }
ovs-vsctl --no-wait init
start ovs-vswitchd unix:/var/run/openvswitch/db.sock --disable-system
start ovn-northd --ovnnb-db=unix:/var/run/ovn/ovnnb_db.sock --ovnsb-db=unix:/var/run/ovn/ovnsb_db.sock
ovs-vsctl --timeout=20 set Open_vSwitch . external_ids:system-id=here \
    external_ids:ovn-remote=unix:/var/run/ovn/ovnsb_db.sock \
    external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=127.0.0.1 \
    -- add-br br-int -- set Bridge br-int datapath_type=netdev fail_mode=secure
start ovn-controller unix:/var/run/openvswitch/db.sock
ovn-nbctl --version | head -1
ovs-vswitchd --version | head -1

ovn-nbctl ls-add switch
for pod in a b; do
    number=$([ $pod = a ] && echo 1 || echo 2)
    address="0a:00:00:00:00:0$number 10.0.0.$number"
    ovn-nbctl lsp-add switch $pod -- lsp-set-addresses $pod "$address" -- lsp-set-port-security $pod "$address"
    ip netns add $pod
    ip link add v$pod type veth peer name eth0 netns $pod
    ip -n $pod link set eth0 address "0a:00:00:00:00:0$number" up
    ip -n $pod addr add "10.0.0.$number/24" dev eth0
    ip link set v$pod up
    # The userspace datapath computes no checksums that the kernel leaves to a NIC.
    ip netns exec $pod ethtool -K eth0 tx off >/dev/null
    ovs-vsctl --timeout=20 add-port br-int v$pod -- set Interface v$pod external_ids:iface-id=$pod
done

cat >"$dir/receive.py" <<'PYTHON'
import select, socket, struct, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
link.bind(("eth0", 0))
print("ready", flush=True)
seen = {"whole": 0, "first": 0, "later": 0}
# Until a second without a packet after the sender has ended.
while select.select([link], [], [], 0.2)[0] or not select.select([sys.stdin], [], [], 0)[0]:
    if not select.select([link], [], [], 0)[0]:
        continue
    packet = link.recv(65535)[14:]
    if packet[9] == socket.IPPROTO_UDP:
        fragment = struct.unpack("!H", packet[6:8])[0] & 0x3FFF
        seen["whole" if fragment == 0 else "first" if fragment & 0x1FFF == 0 else "later"] += 1
print(seen)
PYTHON
cat >"$dir/send.py" <<'PYTHON'
import socket, sys
to, size = int(sys.argv[1]), int(sys.argv[2])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IP, 10, 0)  # IP_MTU_DISCOVER, IP_PMTUDISC_DONT
for _ in range(5):
    udp.sendto(b"x" * size, ("10.0.0.2", to))
PYTHON

arrives() { # PORT BYTES
    coproc receiver { ip netns exec b python3 "$dir/receive.py"; }
    # Bash forgets the names when the process ends. The first line is `ready`.
    local seen pid=$! input=${receiver[1]} output=${receiver[0]}
    read -r <&"$output"
    ip netns exec a python3 "$dir/send.py" "$1" "$2"
    exec {input}>&-
    read -r seen <&"$output"
    wait "$pid"
    echo "port $1, $2 bytes: $seen"
}

look() {
    for translation in false true; do
        ovn-nbctl --wait=hv set NB_Global . options:acl_ct_translation=$translation
        echo "$1, acl_ct_translation=$translation"
        # The neighbours know each other, and the first datagram is not lost.
        ip netns exec a ping -c1 -W2 10.0.0.2 >/dev/null || :
        for port in 9999 6081; do
            arrives $port 100
            arrives $port 4000
        done
    done
}

ovn-nbctl --wait=hv acl-add switch from-lport 1000 'inport == "a" && udp.dst == 6081' drop \
    -- acl-add switch from-lport 900 'ip' allow-related
look "6081 denied, all else allowed"
ovn-nbctl --wait=hv acl-del switch \
    -- acl-add switch from-lport 1000 'inport == "a" && udp.dst == 9999' allow-related \
    -- acl-add switch from-lport 1000 'inport == "a" && icmp' allow-related \
    -- acl-add switch from-lport 900 'inport == "a" && ip' drop
look "9999 allowed, all else denied"
