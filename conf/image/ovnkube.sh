#!/bin/bash
# Entry point of the image ovn-kube: what a container of it runs depends on the argument and the environment.
# conf/kubernetes/openshift has the DaemonSets that use it, docs/how-to/install.md the whole of an installation.
#
#   ovnkube.sh                    start_ovn
#   ovnkube.sh start_ovn          the node: plugin, ovn-controller, ovnkube --init-node. With OVN_MASTER=true, before
#                                 that, the databases, ovn-northd and ovnkube --init-master
#   ovnkube.sh ovs-server         Open vSwitch
#   ovnkube.sh nb-ovsdb           the northbound database alone; where OVN_NORTH has several addresses, a member of a cluster
#   ovnkube.sh sb-ovsdb           the southbound database alone, likewise
#   ovnkube.sh local-nb-ovsdb     the northbound database of a zone that is this node: on its socket alone
#   ovnkube.sh local-sb-ovsdb     its southbound database, likewise
#   ovnkube.sh run-ovn-northd     ovn-northd alone
#   ovnkube.sh ovn-master         ovnkube --init-master alone
#   ovnkube.sh ovn-controller     ovn-controller alone
#   ovnkube.sh ovn-node           the plugin and ovnkube --init-node alone
#   ovnkube.sh install-plugins    puts the plugin and `loopback` where the host's container runtime looks for them
#   ovnkube.sh cleanup-ovn-node   ovnkube --cleanup-node
#   ovnkube.sh ready              ends with 0 if every ovnkube of this node is ready
#   ovnkube.sh display            what runs here, with versions
#   ovnkube.sh display_env        the environment that counts
#   ovnkube.sh ovn_debug          what the databases and the switch hold
#
# It ends when one of the programs that it has started ends; when it is told to end (TERM), it stops them in the
# reverse order. Programs of Open vSwitch and OVN that run in other containers of the node are found by their
# pidfiles in /var/run: that takes `hostPID`.
set -euo pipefail
# Last, so that a program of PATH can take the place of one of these scripts.
PATH="$PATH:/usr/share/openvswitch/scripts:/usr/share/ovn/scripts"

# --- The environment, in the order of docs/how-to/install.md -------------------------------------------------------

north=${OVN_NORTH:-} south=${OVN_SOUTH:-} pods=${OVN_NET_CIDR:-} services=${OVN_SVC_CIDR:-} api_server=${K8S_APISERVER:-}
node=${K8S_NODE:-$(uname -n)}
level=${OVNKUBE_LOGLEVEL:-4}
# Lists of words, as in the variables of Debian's /etc/default.
read -ra northd_options <<<"${OVN_NORTHD_OPTS:-}"
read -ra controller_options <<<"${OVN_CONTROLLER_OPTS:-}"
read -ra gateway_options <<<"${OVN_GATEWAY_OPTS---init-gateways --gateway-localnet}"

# For tests: another root of the paths that a container has.
root=${OVNKUBE_ROOT:-}
run="$root/var/run" data="$root/var/lib/openvswitch" logs="$root/var/log/openvswitch"
plugins="$root/host/opt/cni/bin"

say() { echo "$(date -u '+%FT%TZ') ovnkube.sh: $*"; }
fail() { say "$@" >&2; exit 1; }

main() {
    [ $# -le 1 ] || fail "one argument at most, not $#: $*"
    need_architecture
    case ${1:-start_ovn} in
    start_ovn) need_configuration; start_ovn ;;
    ovs-server) ovs_server ;;
    nb-ovsdb) need OVN_NORTH; database nb "$north" ;;
    sb-ovsdb) need OVN_SOUTH; database sb "$south" ;;
    local-nb-ovsdb) local_database nb ;;
    local-sb-ovsdb) local_database sb ;;
    run-ovn-northd) need OVN_NORTH OVN_SOUTH; run_northd ;;
    ovn-master) need_configuration; wait_for_northbound; master; supervise ;;
    ovn-controller) wait_for_switch; controller; supervise ;;
    ovn-node) need_configuration; install_plugins; wait_for_switch; node_server; supervise ;;
    install-plugins) install_plugins ;;
    cleanup-ovn-node) cleanup ;;
    ready) ready ;;
    display) display ;;
    display_env) display_env ;;
    ovn_debug) debug ;;
    *) fail "unknown argument '$1'; one of: start_ovn ovs-server nb-ovsdb sb-ovsdb local-nb-ovsdb local-sb-ovsdb" \
        "run-ovn-northd ovn-master ovn-controller ovn-node install-plugins cleanup-ovn-node ready display display_env ovn_debug" ;;
    esac
}

need_configuration() { need OVN_NORTH OVN_SOUTH K8S_APISERVER OVN_NET_CIDR OVN_SVC_CIDR; }

# All that is missing at once, before anything is touched.
need() {
    local variable missing=()
    local -A keys=([OVN_NORTH]=OvnNorth [OVN_SOUTH]=OvnSouth [K8S_APISERVER]=k8s_apiserver [OVN_NET_CIDR]=net_cidr
        [OVN_SVC_CIDR]=svc_cidr)
    for variable; do
        [ -n "${!variable:-}" ] || missing+=("$variable (key ${keys[$variable]})")
    done
    [ ${#missing[@]} -eq 0 ] || {
        local IFS=,
        fail "not set: ${missing[*]}; the ConfigMap ovn-config of the namespace ovn-kubernetes has these keys"
    }
}

# Executables of another architecture: copied to the host, they would take the place of a plugin that works.
need_architecture() {
    local machine file code
    for file in "$(type -P ovnkube)" "$root/usr/libexec/cni/ovn-k8s-cni-overlay"; do
        [ "$(od -An -tx1 -N4 "$file")" = " 7f 45 4c 46" ] || continue
        # Not uname alone: an emulator (qemu-user) answers for the machine that it plays.
        machine=$(cat "$root/proc/sys/kernel/arch" 2>/dev/null || uname -m)
        # e_machine of elf(5).
        case $machine in x86_64) code=003e ;; aarch64) code=00b7 ;; *) return 0 ;; esac
        [ "$(od -An -tx2 -j18 -N2 "$file")" = " $code" ] ||
            fail "this machine is $machine, and $file is for another architecture: take the image for $machine;" \
                "nothing was changed"
    done
}

# --- Parts -----------------------------------------------------------------------------------------------------------

start_ovn() {
    local databases="" options
    # Not in a process of its own, whose failure would not end this one.
    if [ "${OVN_MASTER:-}" = true ]; then
        databases=$(address_options nb "$north" && address_options sb "$south")
    fi
    install_plugins
    wait_for_switch
    if [ "${OVN_MASTER:-}" = true ]; then
        mapfile -t options <<<"$databases"
        say "starting the databases and ovn-northd"
        before_stop "ovn-ctl stop_northd"
        ovn-ctl start_northd --no-monitor "${options[@]}" "${northd_options[@]}"
        watch_over "northbound database" "$run/ovn/ovnnb_db.pid"
        watch_over "southbound database" "$run/ovn/ovnsb_db.pid"
        watch_over ovn-northd "$run/ovn/ovn-northd.pid"
        wait_for_northbound
        master
    fi
    controller
    node_server
    supervise
}

# The plugin and `loopback` where the host's container runtime looks for them. Runtimes may be calling the old file:
# the new one takes its place at once.
install_plugins() {
    local plugin
    mkdir -p "$plugins"
    for plugin in "$root/usr/libexec/cni/ovn-k8s-cni-overlay" "$root/usr/lib/cni/loopback"; do
        local target="$plugins/${plugin##*/}"
        # The host's own loopback is as good as this one.
        [[ $plugin == */loopback && -e $target ]] && continue
        cmp --silent "$plugin" "$target" && continue
        cp "$plugin" "$target.new" || {
            rm -f "$target.new"
            fail "cannot write $target: is the disk of $plugins full? What was there stays"
        }
        chmod 755 "$target.new"
        mv -f "$target.new" "$target"
        say "installed $target"
    done
}

ovs_server() {
    if ovs-appctl --timeout=5 --target=ovs-vswitchd version >/dev/null 2>&1; then
        fail "Open vSwitch runs on this host already, from $run/openvswitch: stop it (systemctl disable --now" \
            "openvswitch-switch), or do not run sdn-ovs.yaml here; nothing was changed"
    fi
    mkdir -p "$run/openvswitch" "$data" "$logs"
    # Not in /etc/openvswitch, which belongs to the container: a node keeps its chassis when the pod is replaced.
    local identity="$data/system-id.conf"
    [ -s "$identity" ] || { uuidgen >"$identity.new" && mv -f "$identity.new" "$identity"; }
    before_stop "ovs-ctl stop"
    ovs-ctl start --no-ovs-vswitchd --no-monitor --system-id="$(<"$identity")"
    watch_over ovsdb-server "$run/openvswitch/ovsdb-server.pid"
    # The kernel loads its module when it is first asked.
    if ovs-dpctl dump-dps >/dev/null 2>&1; then
        ovs-vsctl --no-wait remove Open_vSwitch . external_ids ovn-bridge-datapath-type
    else
        say "the kernel has no Open vSwitch: packets are forwarded in user space"
        ovs-vsctl --no-wait set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev
        before_stop give_nics_back
    fi
    # Not by ovs-ctl, which does not start it without the kernel's module.
    ovs-vswitchd "unix:$run/openvswitch/db.sock" -vconsole:emer -vsyslog:off -vfile:info --no-chdir --detach \
        --pidfile="$run/openvswitch/ovs-vswitchd.pid" --log-file="$logs/ovs-vswitchd.log"
    watch_over ovs-vswitchd "$run/openvswitch/ovs-vswitchd.pid"
    supervise
}

# In user space a bridge ends with ovs-vswitchd, and a node whose addresses are on it would be off the net for good: its
# kubelet could not hear of the next pod. Until that one runs, the NIC has them; then ovnkube makes the bridge again.
give_nics_back() {
    local bridge nic
    for bridge in $(ovs-vsctl --timeout=10 list-br); do
        nic=$(ovs-vsctl --timeout=10 br-get-external-id "$bridge" bridge-uplink)
        [ -z "$nic" ] || ovnkube bridges-to-nic "$bridge"
    done
}

# nb or sb.
database() {
    local text options log="$root/var/log/ovn/ovsdb-server-$1.log"
    stop_at_the_end "$1"
    if [[ $2 == *,* ]]; then
        member "$1" "$2"
    else
        text=$(address_options "$1" "$2")
        mapfile -t options <<<"$text"
        alone "$data/ovn${1}_db.db"
        ovn-ctl "start_$1_ovsdb" --no-monitor "${options[@]}"
    fi
    supervise_database "$1"
}

# The same of a zone that is this node. Its rows are made anew from the objects of the cluster: a file that is lost or cannot
# be read is no loss. It is not that of a database of the whole cluster, which may have run here.
#
# ovn-controller takes an empty database for a network without pods, and ovn-northd makes such a database of it. So a new one
# listens beside its socket, at SOCKET.filling, where ovnkube and, of the southbound one, ovn-northd look, too. It opens its
# socket once they have filled it; until then, ovn-controller keeps the flows that it has.
local_database() {
    local file="$data/zone/ovn${1}_db.db" log="$root/var/log/ovn/ovsdb-server-$1.log" options=()
    local socket="$run/ovn/ovn${1}_db.sock"
    stop_at_the_end "$1"
    mkdir -p "${file%/*}"
    if [ -s "$file" ] && ! ovsdb-tool db-name "$file" >/dev/null; then
        say "$file cannot be read; it is kept as $file.unreadable, and a new one begins"
        mv -f "$file" "$file.unreadable"
    fi
    # The mark outlives a database that ends before it is filled.
    [ -s "$file" ] || touch "$file.filling"
    if [ -e "$file.filling" ]; then
        # Of a server that was killed.
        rm -f "$socket"
        options=("--db-$1-sock=$socket.filling")
    fi
    ovn-ctl "start_$1_ovsdb" --no-monitor "--db-$1-file=$file" "${options[@]}"
    [ "$1" = sb ] || name_zone "unix:$socket${options:+.filling}" "${options:+filling}"
    if [ ${#options[@]} -gt 0 ]; then
        open_when_filled "$1" &
    fi
    supervise_database "$1"
}

# ovnkube writes nothing into the database of another zone. A new one has the mark that ovnkube removes with the last row.
name_zone() {
    local known
    known=$(ovn-nbctl --timeout=30 --db="$1" init -- get NB_Global . name)
    known=${known//\"/}
    case $known in
    "$node") ;;
    "") ovn-nbctl --timeout=30 --db="$1" set NB_Global . "name=\"$node\"" "options:name=\"$node\"" \
        ${2:+external_ids:filling=true} ;;
    *) fail "the database in $data/zone is of the zone $known, and this node is $node: move that directory away, and a new one begins" ;;
    esac
}

# In the background.
open_when_filled() {
    local socket="$run/ovn/ovn${1}_db.sock" control="$run/ovn/ovn${1}_db.ctl" second=0 without_chassis=0
    say "the $1 database is new: it listens at $socket.filling until it is filled"
    until "filled_$1"; do
        second=$((second + 1))
        [ $((second % 30)) -ne 0 ] || say "waiting for the rows of the $1 database, $second s: ovnkube of this node writes them"
        sleep 1
    done
    until ovs-appctl --timeout=10 --target="$control" ovsdb-server/add-remote "punix:$socket"; do sleep 1; done
    rm -f "$data/zone/ovn${1}_db.db.filling"
    say "the $1 database is filled, and listens at $socket"
}

filled_nb() {
    local mark
    mark=$(ovn-nbctl --timeout=10 --db="unix:$run/ovn/ovnnb_db.sock.filling" --if-exists get NB_Global . external_ids:filling) &&
        [ "${mark//\"/}" != true ]
}

# ovn-northd has made it of a filled northbound database, and each node of another zone has its chassis, without which there
# is no tunnel to it. One that has no address for tunnels gets none, and is not waited for.
filled_sb() {
    local ports database="unix:$run/ovn/ovnsb_db.sock.filling"
    ovn-nbctl --timeout=10 --db="unix:$run/ovn/ovnnb_db.sock" --wait=sb sync 2>/dev/null || return
    ports=$(ovn-sbctl --timeout=10 --db="$database" --bare --columns=logical_port find Port_Binding type=remote 'chassis=[]') || return
    [ -n "$ports" ] || return 0
    without_chassis=$((without_chassis + 1))
    [ "$without_chassis" -gt 30 ] && say "nodes without a chassis: ${ports//$'\n'/ }"
}

stop_at_the_end() { before_stop "ovs-appctl --timeout=10 --target=$run/ovn/ovn${1}_db.ctl exit"; }

supervise_database() {
    watch_over "the $1 database" "$run/ovn/ovn${1}_db.pid"
    # For `kubectl logs`.
    tail --lines=0 --retry --follow=name "$log" 2>/dev/null &
    supervise
}

# Where a database listens, and its file: /var/lib/openvswitch is a directory of the host.
address_options() {
    local database=$1 address port
    [[ $2 =~ ^tcp:(\[.*\]|[^:]+):([0-9]+)$ ]] ||
        fail "the address of the $database database, '$2', is not tcp:IP:PORT, the only form that this container opens"
    address=${BASH_REMATCH[1]} port=${BASH_REMATCH[2]}
    printf '%s\n' "--db-$database-addr=$address" "--db-$database-port=$port" "--db-$database-create-insecure-remote=yes" \
        "--db-$database-file=$data/ovn${database}_db.db"
}

# --- A member of a cluster of databases (raft) -----------------------------------------------------------------------

# member nb|sb ADDRESSES: those of all members; this one's has K8S_NODE_IP.
member() {
    local database=$1 listed=$2 name table port refusal raft_port own="" host file schema address others=() remotes=()
    case $database in
    # Of the functions below, too: $name, $file, $own and $others are this one's.
    nb) name=OVN_Northbound table=NB_Global raft_port=6643 ;;
    sb) name=OVN_Southbound table=SB_Global raft_port=6644 ;;
    esac
    file="$data/ovn${database}_db.db" schema="$root/usr/share/ovn/ovn-$database.ovsschema"
    for address in ${listed//,/ }; do
        [[ $address =~ ^tcp:(\[.*\]|[^:]+):([0-9]+)$ ]] ||
            fail "the address of the $database database, '$address', is not tcp:IP:PORT, the only form that this container opens"
        host=${BASH_REMATCH[1]}
        if [ "${host//[\[\]]/}" = "${K8S_NODE_IP:-}" ]; then
            own="tcp:$host:$raft_port" port=${BASH_REMATCH[2]}
        else
            others+=("$address") remotes+=("tcp:$host:$raft_port")
        fi
    done
    [ -n "$own" ] || fail "the address of this node, '${K8S_NODE_IP:-}' (K8S_NODE_IP), is none of the $database database's: $listed"
    host=${own#tcp:} host=${host%:*}
    mkdir -p "$data" "$run/ovn" "$root/var/log/ovn"
    if [ -s "$file" ]; then
        same_cluster
    else
        new_member
    fi
    serve "$port" || {
        # The rows are at the others.
        [[ $refusal == *"error reading record"* ]] || fail "ovsdb-server does not start: $refusal"
        say "$refusal: as after a disk was full; the file is kept as $file.unreadable, and this member joins its cluster again"
        mv -f "$file" "$file.unreadable"
        new_member
        serve "$port" || fail "ovsdb-server does not start: $refusal"
    }
    tend "$database" "$schema" &
}

# Not by ovn-ctl, which knows one other member, and waits for it before it can be told to end.
serve() {
    ovsdb-server --detach --no-chdir --pidfile="$run/ovn/ovn${database}_db.pid" --unixctl="$run/ovn/ovn${database}_db.ctl" \
        -vconsole:off -vsyslog:off -vfile:info --log-file="$log" --remote="punix:$run/ovn/ovn${database}_db.sock" \
        --remote="ptcp:$1:$host" --remote="db:$name,$table,connections" --private-key="db:$name,SSL,private_key" \
        --certificate="db:$name,SSL,certificate" --ca-cert="db:$name,SSL,ca_cert" "$file" 2>"$run/ovn/ovn${database}_db.err" ||
        { refusal=$(<"$run/ovn/ovn${database}_db.err"); return 1; }
}

# The file of this member is of the cluster that the others are of, or nobody would notice that its rows are another cluster's.
same_cluster() {
    local cluster address known
    ! ovsdb-tool db-is-standalone "$file" 2>/dev/null || fail "$file is of a database without a cluster; to make the first member of" \
        "a cluster of it: mv $file $file.standalone && ovsdb-tool create-cluster $file $file.standalone $own"
    address=$(ovsdb-tool db-local-address "$file") || fail "$file cannot be read; move it away, and this member joins its cluster again"
    [ "$address" = "$own" ] || fail "$file is of the member at $address, and this node is at $own; move it away, and this member" \
        "joins its cluster again"
    # A member that has not joined yet knows no cluster.
    cluster=$(ovsdb-tool db-cid "$file" 2>/dev/null) || return 0
    for address in "${others[@]}"; do
        known=$(cluster_of "$address") || continue
        [ -z "$known" ] || [ "$known" = "$cluster" ] || fail "$file is of the cluster $cluster, and the member at $address is of $known;" \
            "move it away, and this member joins that cluster"
    done
}

# The first of the list founds the cluster, and only when all others say that they know of none: if it has lost its disk, the
# others have the rows.
new_member() {
    local address known silent second=0
    if [ "${listed%%,*}" != "tcp:$host:$port" ]; then
        join
        return
    fi
    while :; do
        silent=()
        for address in "${others[@]}"; do
            known=$(cluster_of "$address") || { silent+=("$address"); continue; }
            [ -z "$known" ] || { join; return; }
        done
        [ ${#silent[@]} -gt 0 ] || break
        [ $((second % 10)) -ne 0 ] || say "waiting for ${silent[*]}, to ask whether there is a cluster of $name already"
        sleep 1 &
        # A trap would wait for the end of a command, but not for this.
        wait $!
        second=$((second + 1))
    done
    say "founding the cluster of $name at $own"
    rm -f "$file.new"
    ovsdb-tool create-cluster "$file.new" "$schema" "$own" && mv "$file.new" "$file"
}

join() {
    say "joining the cluster of $name at ${remotes[*]}, as $own"
    rm -f "$file.new"
    ovsdb-tool join-cluster "$file.new" "$name" "$own" "${remotes[@]}" && mv "$file.new" "$file"
}

# The cluster that the member at an address is of; nothing, if it has not joined any. Fails without an answer.
cluster_of() {
    local answer query='["_Server",{"op":"select","table":"Database","where":[["name","==","'$name'"]],"columns":["cid"]}]'
    answer=$(ovsdb-client --timeout=5 query "$1" "$query" 2>/dev/null) || return
    [[ $answer =~ \"cid\":\[\"uuid\",\"([0-9a-f-]+)\"\] ]] || return 0
    [ "${BASH_REMATCH[1]}" = 00000000-0000-0000-0000-000000000000 ] || echo "${BASH_REMATCH[1]}"
}

# What a member does beside answering, in the background: it brings the schema up to this image's, and has those taken out of
# the cluster whose address another has now. A member that has lost its disk comes back as a new one.
tend() {
    local socket="unix:$run/ovn/ovn${1}_db.sock" control="$run/ovn/ovn${1}_db.ctl" gone
    until ovsdb-client --timeout=30 wait "$socket" "$name" connected 2>/dev/null; do sleep 1; done
    say "$name is connected to its cluster"
    # shellcheck source=/dev/null
    (set +eu && . /usr/share/openvswitch/scripts/ovs-lib && upgrade_cluster "$2" "$socket") ||
        say "the schema of $name was not upgraded"
    while sleep 5; do
        for gone in $(ovs-appctl --timeout=5 --target="$control" cluster/status "$name" 2>/dev/null | replaced_members); do
            say "taking the member $gone out of the cluster of $name: another one has its address"
            ovs-appctl --timeout=5 --target="$control" cluster/kick "$name" "$gone" || true
        done
    done
}

# From what the leader says of its cluster: the members that were not heard of for 5 s, while another one of the same address
# was.
replaced_members() {
    awk '
        /^Role: leader/ { leads = 1 }
        $3 == "at" && match($0, /^ +[0-9a-f]+ \(/) {
            address = $4; sub(/\)$/, "", address)
            heard = /\(self\)/ || (match($0, /last msg [0-9]+ ms/) && substr($0, RSTART + 9) + 0 < 5000)
            if (heard) alive[address] = 1; else silent[$1] = address
        }
        END { if (leads) for (member in silent) if (silent[member] in alive) print member }'
}

# A member of a cluster does not answer without the others.
alone() {
    [ ! -s "$1" ] || ! ovsdb-tool db-is-clustered "$1" || fail "$1 is of a member of a cluster, and this database has one address;" \
        "to go on with its rows alone: mv $1 $1.cluster && ovsdb-tool cluster-to-standalone $1 $1.cluster"
}

run_northd() {
    wait_for_northbound
    before_stop "ovn-ctl --no-ovn-manage-ovsdb stop_northd"
    # One of this node's zone may be new (local_database).
    [[ $south != unix:* || $south == *,* ]] || south="$south,$south.filling"
    ovn-ctl start_northd --no-monitor --no-ovn-manage-ovsdb --ovn-northd-nb-db="$north" --ovn-northd-sb-db="$south" \
        "${northd_options[@]}"
    watch_over ovn-northd "$run/ovn/ovn-northd.pid"
    supervise
}

controller() {
    say "starting ovn-controller"
    # It leaves its chassis and flows for the next one: running pods go on.
    before_stop "ovn-ctl --restart stop_controller"
    ovn-ctl --no-monitor start_controller "${controller_options[@]}"
    watch_over ovn-controller "$run/ovn/ovn-controller.pid"
}

master() {
    ovnkube_process ovnkube-master --init-master "$node" --cluster-subnets "$pods" --k8s-service-cidrs "$services" \
        --k8s-apiserver "$api_server" --nb-address "$north" --sb-address "$south" \
        --metrics-bind-address :9409 --healthz-bind-address 127.0.0.1:9408
}

node_server() {
    # Requests that a server of before has begun are in $run/ovn-kubernetes/cni: what is there stays.
    ovnkube_process ovnkube --init-node "$node" --cluster-subnets "$pods" --k8s-service-cidrs "$services" \
        --k8s-apiserver "$api_server" --sb-address "$south" --cni-bin-dir "$plugins" "${gateway_options[@]}" \
        --metrics-bind-address :9410 --healthz-bind-address 127.0.0.1:9411
}

# ovnkube_process NAME ARGUMENT…, in the background. A token stays in the environment (K8S_TOKEN), where other users do
# not see it.
ovnkube_process() {
    local name=$1 log="$logs/$1.log"
    shift
    [ -z "${K8S_CACERT:-}" ] || set -- "$@" --k8s-cacert "$K8S_CACERT"
    mkdir -p "$logs" "$run/openvswitch"
    say "starting ovnkube $1 $2; its log: $log"
    ovnkube "$@" --loglevel "$level" --pidfile "$run/openvswitch/$name.pid" --logfile "$log" &
    watch_over "$name" $!
    before_stop "stop_process $!"
    # For `kubectl logs`.
    tail --pid=$! --lines=0 --retry --follow=name "$log" 2>/dev/null &
}

cleanup() {
    [ -z "${K8S_CACERT:-}" ] || set -- --k8s-cacert "$K8S_CACERT"
    [ -z "$api_server" ] || set -- --k8s-apiserver "$api_server" "$@"
    exec ovnkube --cleanup-node "$node" --cni-bin-dir "$plugins" "$@"
}

# --- Waiting -----------------------------------------------------------------------------------------------------------

wait_for_switch() { wait_for "Open vSwitch (sdn-ovs.yaml, or the host's own)" ovs-ctl status; }
wait_for_northbound() { wait_for "the northbound database at $north" ovn-nbctl --timeout=5 --db="$north" show; }

# wait_for WHAT COMMAND…: 40 times 10 s. It is there a second after COMMAND succeeds.
wait_for() {
    local what=$1 try second
    shift
    for ((try = 0; try < 40; try++)); do
        for ((second = 0; second < 10; second++)); do
            "$@" >/dev/null 2>&1 && return
            [ $((try + second)) -gt 0 ] || say "waiting for $what"
            sleep 1
        done
        say "waiting for $what: $((10 * (try + 1))) s of 400 s"
    done
    fail "$what was not there within 400 s; asked by: $*"
}

# --- Processes ---------------------------------------------------------------------------------------------------------

names=() identities=() stops=()

# watch_over NAME PIDFILE|PID
watch_over() { names+=("$1"); identities+=("$2"); }
# The last one is called first.
before_stop() { stops=("$1" "${stops[@]}"); trap 'say "told to end"; stop_all; exit 0' TERM INT; }

supervise() {
    local index joined
    printf -v joined '%s, ' "${names[@]}"
    say "running: ${joined%, }"
    while :; do
        for index in "${!names[@]}"; do
            runs "${identities[index]}" || {
                say "${names[index]} has ended; stopping the others"
                stop_all
                exit 1
            }
        done
        sleep 1
    done
}

runs() {
    local pid=$1
    [[ $pid =~ ^[0-9]+$ ]] || pid=$(cat "$pid" 2>/dev/null) || return 1
    kill -0 "$pid" 2>/dev/null
}

stop_all() {
    local stop
    trap '' TERM INT
    for stop in "${stops[@]}"; do
        say "stopping: $stop"
        $stop || say "'$stop' ended with $?"
    done
}

# Called by stop_all.
# shellcheck disable=SC2317
stop_process() {
    kill "$1" 2>/dev/null || return 0
    wait "$1" || true
}

# --- Looking -------------------------------------------------------------------------------------------------------------

ready() {
    local name port answer asked=()
    for name in ovnkube-master ovnkube; do
        if runs "$run/openvswitch/$name.pid"; then
            asked+=("$name")
        elif [ "${OVN_MASTER:-}" = true ]; then
            # The one that starts first must not speak for both.
            fail "$name does not run yet"
        fi
    done
    [ ${#asked[@]} -gt 0 ] || fail "no ovnkube runs here"
    for name in "${asked[@]}"; do
        case $name in ovnkube-master) port=9408 ;; *) port=9411 ;; esac
        answer=$(answer_of "$port" /readyz) || fail "$name does not answer on port $port"
        [[ $answer == HTTP/1.1\ 200* ]] || fail "$name is not ready: ${answer##*$'\r\n\r\n'}"
        say "$name is ready"
    done
}

answer_of() {
    local connection
    exec {connection}<>"/dev/tcp/127.0.0.1/$1" || return
    printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&"$connection"
    timeout 5 cat <&"$connection"
}

display() {
    show ovnkube --version
    show ovs-vsctl --version
    show ovn-controller --version
    show ovs-ctl status
    show ovn-ctl status_northd
    show ovn-ctl status_controller
    show ovs-vsctl show
    [ -z "$north" ] || show ovn-nbctl --timeout=5 --db="$north" show
    show ready
}

display_env() {
    local name
    for name in OVN_NORTH OVN_SOUTH OVN_NET_CIDR OVN_SVC_CIDR K8S_APISERVER K8S_NODE K8S_NODE_IP K8S_CACERT OVN_MASTER OVNKUBE_LOGLEVEL \
        OVN_NORTHD_OPTS OVN_CONTROLLER_OPTS OVN_GATEWAY_OPTS; do
        echo "$name=${!name:-}"
    done
    echo "K8S_TOKEN=${K8S_TOKEN:+(${#K8S_TOKEN} characters)}"
}

debug() {
    display_env
    display
    [ -z "$south" ] || show ovn-sbctl --timeout=5 --db="$south" show
    [ -z "$south" ] || show ovn-sbctl --timeout=30 --db="$south" lflow-list
    show ovs-ofctl dump-flows br-int
    local log
    for log in "$logs"/*.log "$root"/var/log/ovn/*.log; do
        [ ! -f "$log" ] || show tail --lines=50 "$log"
    done
}

# Goes on where something does not answer.
show() {
    echo "=== $*"
    ("$@") 2>&1 || echo "(ended with $?)"
}

main "$@"
