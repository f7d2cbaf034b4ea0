//! A cluster of 2017 is taken over while its pods exchange packets. Its rows are written here, by
//! `ovn-nbctl`, `ovs-vsctl` and `ip`, as the Python programs wrote them: `docs/how-to/migrate.md`.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Daemon, Datapath, Lab, Node, Pod, central::NORTHBOUND, command, eventually, executable, fabric,
    mounts, peer::Echoes, subnet,
};
use serde_json::json;

use crate::support::api::Api;
use crate::support::managed;

/// Limit for tunnels and flows to follow, on a busy machine.
const SOON: Duration = Duration::from_secs(45);
const CLUSTER: &str = "--cluster-subnets=10.244.0.0/16/24";

fn shell(script: &str) -> Result<String> {
    let script = format!("export OVN_NB_DB={NORTHBOUND}\n{script}");
    command::output(Command::new("sh").args(["-euc", &script]))
}

/// What `ovn-k8s-overlay master-init` and `gateway-init` of 2017 wrote for `node1`.
const CLUSTER_ROWS: &str = r#"
ovn-nbctl lr-add node1 -- set Logical_Router node1 external_ids:k8s-cluster-router=yes
ovn-nbctl create Load_Balancer external_ids:k8s-cluster-lb-tcp=yes
ovn-nbctl create Load_Balancer external_ids:k8s-cluster-lb-udp=yes protocol=udp
ovn-nbctl ls-add join
ovn-nbctl lrp-add node1 rtoj-node1 00:00:00:1C:22:01 100.64.1.1/24 -- \
  set Logical_Router_Port rtoj-node1 external_ids:connect_to_join=yes
ovn-nbctl lsp-add join jtor-node1 -- set Logical_Switch_Port jtor-node1 type=router \
  options:router-port=rtoj-node1 addresses='"00:00:00:1C:22:01"'
"#;

const GATEWAY_ROWS: &str = r#"
ovn-nbctl lr-add GR_node1 -- set Logical_Router GR_node1 options:chassis=node1 \
  external_ids:physical_ip=172.30.0.11 external_ids:first_gateway=yes options:lb_force_snat_ip=100.64.1.2
ovn-nbctl lrp-add GR_node1 rtoj-GR_node1 00:00:00:1C:22:02 100.64.1.2/24 -- \
  set Logical_Router_Port rtoj-GR_node1 external_ids:connect_to_join=yes
ovn-nbctl lsp-add join jtor-GR_node1 -- set Logical_Switch_Port jtor-GR_node1 type=router \
  options:router-port=rtoj-GR_node1 addresses='"00:00:00:1C:22:02"'
ovn-nbctl lr-route-add GR_node1 10.244.0.0/16 100.64.1.1
ovn-nbctl lr-route-add node1 0.0.0.0/0 100.64.1.2
for protocol in TCP UDP; do
  lb=$(ovn-nbctl create Load_Balancer external_ids:${protocol}_lb_gateway_router=GR_node1)
  ovn-nbctl add Logical_Router GR_node1 load_balancer $lb
done
ovn-nbctl ls-add ext_node1
ovn-nbctl lsp-add ext_node1 breth0_node1 -- lsp-set-addresses breth0_node1 unknown
ovn-nbctl lrp-add GR_node1 rtoe-GR_node1 $MAC 172.30.0.11/24 -- \
  set Logical_Router_Port rtoe-GR_node1 external_ids:gateway-physical-ip=yes
ovn-nbctl lsp-add ext_node1 etor-GR_node1 -- set Logical_Switch_Port etor-GR_node1 type=router \
  options:router-port=rtoe-GR_node1 addresses="\"$MAC\""
ovn-nbctl lr-route-add GR_node1 0.0.0.0/0 172.30.0.1 rtoe-GR_node1
ovn-nbctl lr-nat-add GR_node1 snat 172.30.0.11 10.244.0.0/16
"#;

/// The patch ports of `gateway-init`, and the flows of `ovn-k8s-gateway-helper`.
const GATEWAY_OF_NODE: &str = r#"
ovs-vsctl set bridge breth0 other-config:hwaddr=$MAC
ovs-vsctl add-port breth0 k8s-patch-breth0-br-int -- set interface k8s-patch-breth0-br-int \
  type=patch options:peer=k8s-patch-br-int-breth0
ovs-vsctl add-port br-int k8s-patch-br-int-breth0 -- set interface k8s-patch-br-int-breth0 \
  type=patch options:peer=k8s-patch-breth0-br-int external-ids:iface-id=breth0_node1
P=$(ovs-vsctl wait-until interface k8s-patch-breth0-br-int 'ofport>0' -- get interface k8s-patch-breth0-br-int ofport)
I=$(ovs-vsctl get interface eth0 ofport)
ovs-ofctl add-flow breth0 "priority=100,in_port=$P,ip,actions=ct(commit,zone=64000),output:$I"
ovs-ofctl add-flow breth0 "priority=50,in_port=$I,ip,actions=ct(zone=64000,table=1)"
ovs-ofctl add-flow breth0 "table=1,priority=100,ct_state=+trk+est,actions=output:$P"
ovs-ofctl add-flow breth0 "table=1,priority=100,ct_state=+trk+rel,actions=output:$P"
ovs-ofctl add-flow breth0 "table=1,priority=0,actions=LOCAL"
"#;

/// What an administrator does before the node's server takes its gateway over.
const END_OF_HELPER: &str = "
ovs-ofctl del-flows breth0 ip
ovs-ofctl del-flows breth0 table=1
ovs-vsctl --if-exists del-port k8s-patch-breth0-br-int -- --if-exists del-port k8s-patch-br-int-breth0";

/// What `minion-init` wrote for a node: its switch, and the port of the node itself.
fn add_node(node: &Node) -> Result<()> {
    let (name, index) = (&node.name, node.index);
    let mac = node.shell(&format!(
        "ovs-vsctl add-port br-int k8s-{name} -- set interface k8s-{name} type=internal mtu_request={} \
         external-ids:iface-id=k8s-{name}
         ovs-vsctl wait-until interface k8s-{name} 'mac_in_use!=[]' -- get interface k8s-{name} mac_in_use
         ip link set k8s-{name} up >&2
         ip addr add 10.244.{index}.2/24 dev k8s-{name} >&2
         ip route add 10.244.0.0/16 via 10.244.{index}.1 >&2",
        node.mtu
    ))?;
    let (mac, of_router) = (mac.trim().trim_matches('"'), format!("00:00:00:5A:00:0{index}"));
    shell(&format!(
        "ovn-nbctl lrp-add node1 rtos-{name} {of_router} 10.244.{index}.1/24
         ovn-nbctl ls-add {name} -- set Logical_Switch {name} other-config:subnet=10.244.{index}.0/24 \
           external-ids:gateway_ip=10.244.{index}.1/24
         ovn-nbctl lsp-add {name} stor-{name} -- set Logical_Switch_Port stor-{name} type=router \
           options:router-port=rtos-{name} 'addresses=\"{of_router}\"'
         ovn-nbctl lsp-add {name} k8s-{name} -- lsp-set-addresses k8s-{name} '{mac} 10.244.{index}.2'
         for mark in k8s-cluster-lb-tcp k8s-cluster-lb-udp; do
           ovn-nbctl add Logical_Switch {name} load_balancer \
             $(ovn-nbctl --bare --columns=_uuid find Load_Balancer external_ids:$mark=yes)
         done"
    ))
    .map(drop)
}

/// What the watcher and the plugin of 2017 made of a pod.
fn add_pod(lab: &Lab, api: &Api, node: &Node) -> Result<Pod> {
    let mut pod = lab.plan_pod(node);
    let port = pod.port();
    let dynamic = shell(&format!(
        "ovn-nbctl --wait=sb -- --may-exist lsp-add {0} {port} -- lsp-set-addresses {port} dynamic -- \
           set logical_switch_port {port} external-ids:namespace={1} external-ids:pod=true
         ovn-nbctl get logical_switch_port {port} dynamic_addresses",
        node.name, pod.namespace
    ))?;
    let (mac, ip) = dynamic.trim().trim_matches('"').split_once(' ').context("two addresses")?;
    ensure!(ip == pod.address().to_string(), "{dynamic}");
    pod.mac = mac.to_owned();
    let network = json!({
        "gateway_ip": pod.gateways[0].to_string(), "ip_address": pod.addresses[0].to_string(),
        "mac_address": mac,
    });
    api.put(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": pod.namespace, "name": pod.name, "uid": pod.uid,
            "annotations": {"ovn": network.to_string()},
        },
        "spec": {"nodeName": node.name, "containers": [{"name": "main", "image": "none"}]},
        "status": {"podIP": ip, "podIPs": [{"ip": ip}], "phase": "Running"},
    }));
    node.add_namespaces(std::slice::from_ref(&pod))?;
    let (link, netns, mtu) = (pod.host_interface(), pod.netns_name(), node.mtu);
    node.shell(&format!(
        "ip link add {link} mtu {mtu} type veth peer name eth0 mtu {mtu} address {mac} netns {netns}
         ip link set {link} up"
    ))?;
    let checksums = match Datapath::of_lab().leaves_checksums() {
        true => "",
        false => "ethtool -K eth0 tx off >/dev/null",
    };
    let inside = format!(
        "ip link set lo up; ip link set eth0 up; {checksums}
         ip addr add {} dev eth0; ip route add default via {}",
        pod.addresses[0], pod.gateways[0]
    );
    node.run_in_pod(&pod, ["sh", "-euc", &inside])?;
    node.shell(&format!(
        "ovs-vsctl add-port br-int {link} -- set interface {link} external_ids:attached_mac=\"{mac}\" \
         external_ids:iface-id={port} external_ids:ip_address={}
         ovs-vsctl wait-until Interface {link} external_ids:ovn-installed=true",
        pod.addresses[0]
    ))?;
    Ok(pod)
}

fn put_node(api: &Api, node: &Node) {
    let addresses = json!([{"type": "InternalIP", "address": fabric::address(node.index)}]);
    // The Go programs of 2018 annotated the subnet; those in Python did not.
    let annotations = match node.index {
        1 => json!({}),
        _ => json!({"ovn_host_subnet": node.subnets[0].to_string()}),
    };
    let metadata = json!({"name": node.name, "uid": node.name, "annotations": annotations});
    api.put(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": addresses}}),
    );
}

fn control_plane(api: &Api) -> Daemon {
    let log = Path::new(mounts::LOGS).join("central/ovnkube.out");
    let program = || Ok(Command::new(executable::under_test(executable::SERVER)?));
    Daemon::new("the control plane", log, program, options(api, "--init-master=lab"))
}

fn options(api: &Api, role: &str) -> Vec<String> {
    vec![
        role.to_owned(),
        format!("--k8s-apiserver={}", api.url()),
        format!("--nb-address={NORTHBOUND}"),
        "--logfile=/run/lab/ovnkube.log".to_owned(),
        "--metrics-bind-address=127.0.0.1:9409".to_owned(),
        CLUSTER.to_owned(),
    ]
}

/// The whole database, without the columns that ovn-northd writes.
fn northbound() -> Result<String> {
    let tables = [
        "Logical_Switch",
        "Logical_Switch_Port",
        "Logical_Router",
        "Logical_Router_Port",
        "NAT",
        "ACL",
        "Load_Balancer",
        "Logical_Router_Static_Route",
        "Logical_Router_Policy",
        "Gateway_Chassis",
        "Port_Group",
        "Address_Set",
        "Copp",
        "Meter",
    ];
    let list = |table: &str| {
        shell(&format!(
            "ovn-nbctl --format=csv list {table} | sed 's/,\\(true\\|false\\),/,,/' | sort"
        ))
    };
    tables.into_iter().map(list).collect()
}

fn ready() -> Result<String> {
    shell("curl -s http://127.0.0.1:9409/readyz?verbose")
}

/// Without an answer at most, while rows and Open vSwitch change; one echo is sent every 5 ms.
const GAP: Duration = Duration::from_millis(100);

fn held(what: &str, echoes: &Echoes) -> Result<()> {
    ensure!(
        echoes.sent > 100 && (echoes.lost.is_empty() || echoes.silence() <= GAP),
        "{what}: packets were lost: {echoes:?}"
    );
    Ok(())
}

#[test]
fn a_cluster_of_2017_is_taken_over_while_its_pods_talk() {
    Lab::of_nodes(2).empty().test(|lab| {
        let api = Api::start()?;
        let [first, second] = &lab.nodes[..] else { unreachable!("two nodes") };
        let mac = first.vsctl(["get", "Interface", "breth0", "mac_in_use"])?;
        let mac = format!("MAC={}\n", mac.trim());
        shell(CLUSTER_ROWS)?;
        lab.nodes.iter().try_for_each(add_node)?;
        shell(&(mac.clone() + GATEWAY_ROWS))?;
        first.shell(&(mac + GATEWAY_OF_NODE))?;
        lab.nodes.iter().for_each(|node| put_node(&api, node));
        let pods: Vec<Pod> = [first, first, second]
            .into_iter()
            .map(|node| add_pod(lab, &api, node))
            .collect::<Result<_>>()?;
        let [here, beside, there] = &pods[..] else { unreachable!("three pods") };
        let outside = fabric::LAB_ADDRESS.parse()?;
        lab.ping(here, there.address())?;
        lab.ping(here, beside.address())?;
        for pod in [here, there] {
            lab.ping(pod, outside).context("through the gateway of 2017")?;
        }

        // Nothing is written, and what would be is said.
        let before = northbound()?;
        let ovnkube = executable::under_test(executable::SERVER)?;
        let adopt = options(&api, "--adopt").into_iter().filter(|word| !word.contains("metrics"));
        let said = command::output(Command::new(&ovnkube).args(adopt).arg("--dry-run"))?;
        for line in [
            "Logical_Router node1: name=\"ovn_cluster_router\"",
            "Logical_Router_Port rtoj-node1: name=\"rtoj-ovn_cluster_router\"",
            "[100.64.0.1/16, 100.64.1.1/24]",
            "Logical_Switch_Port jtor-node1: name=\"jtor-ovn_cluster_router\"",
            "Node node1: k8s.ovn.org/node-id=258",
            "k8s.ovn.org/node-router-mac=00:00:00:5a:00:01 k8s.ovn.org/node-subnets={\"default\":[\"10.244.1.0/24\"]}",
            &format!("Logical_Switch_Port {}: addresses=\"{} {}\"", there.port(), there.mac, there.address()),
        ] {
            ensure!(said.contains(line), "{line:?} is not in:\n{said}");
        }
        ensure!(northbound()? == before, "a dry run has changed rows");

        // The control plane, while packets flow between nodes and on one.
        let flows = [lab.flow(here, there)?, lab.flow(here, beside)?];
        let master = control_plane(&api);
        master.spawn()?;
        eventually("the control plane is ready", SOON, || {
            let page = ready()?;
            ensure!(page.contains("[+]rows"), "{page}\n{}", fs::read_to_string("/run/lab/ovnkube.log")?);
            Ok(())
        })?;
        lab.central.sync()?;
        integration::let_pass(Duration::from_secs(2));
        for (flow, what) in flows.into_iter().zip(["between nodes", "on a node"]) {
            held(&format!("control plane, {what}"), &flow.stop()?)?;
        }
        for pod in [here, there] {
            lab.ping(pod, outside).context("through the gateway of 2017, under today's control plane")?;
        }

        // The nodes, one by one.
        for node in &lab.nodes {
            let flows = [lab.flow(here, there)?, lab.flow(here, beside)?];
            let own = [format!("--init-node={}", node.name), format!("--k8s-apiserver={}", api.url())];
            let gateway = ["--gateway-mode=shared", "--gateway-interface=breth0", "--gateway-nexthop=172.30.0.1"];
            let all = own.into_iter().chain(gateway.map(str::to_owned));
            if node.index == 1 {
                node.shell(END_OF_HELPER)?;
            }
            node.server.set_arguments(all.chain([format!("--mtu={}", node.mtu), CLUSTER.to_owned()]));
            node.start_server()?;
            managed::ready(node)?;
            lab.central.sync()?;
            integration::let_pass(Duration::from_secs(2));
            for (flow, what) in flows.into_iter().zip(["between nodes", "on a node"]) {
                held(&format!("server of {}, {what}", node.name), &flow.stop()?)?;
            }
            let ports = node.shell("ovs-vsctl list-ports br-int")?;
            ensure!(
                !ports.contains(&format!("k8s-{}\n", node.name)) && ports.contains(managed::INTERFACE),
                "{ports}"
            );
        }
        for pod in [here, there] {
            lab.ping(pod, outside).context("through today's gateway")?;
            for node in &lab.nodes {
                lab.ping(pod, subnet::host(&node.subnets[0], 2).addr())?;
                lab.ping_from_node(node, pod.address())?;
            }
        }

        // Nothing is left of 2017, and a second start writes nothing.
        let said = shell("ovn-nbctl show; ovn-nbctl list Load_Balancer; ovn-nbctl list Logical_Router_Static_Route")?;
        for old in ["(node1)\n    port rtoj", "rtoj-node1", "k8s-cluster-lb", "_lb_gateway_router"] {
            ensure!(!said.contains(old), "{old:?} is left:\n{said}");
        }
        let before = northbound()?;
        master.stop()?;
        let transactions = lab_transactions()?;
        master.spawn()?;
        eventually("the control plane is ready again", SOON, || {
            let page = ready()?;
            ensure!(page.contains("[+]rows"), "{page}");
            Ok(())
        })?;
        integration::let_pass(Duration::from_secs(2));
        ensure!(lab_transactions()? == transactions, "the second start wrote");
        ensure!(northbound()? == before, "before:\n{before}\nafter:\n{}", northbound()?);

        // Pods come and go as ever: the plugin finds what that of 2017 has attached.
        let runtime = first.configured_runtime()?;
        runtime.del(beside)?.success()?;
        let ports = first.shell("ovs-vsctl list-ports br-int; ip -o link")?;
        ensure!(!ports.contains(&beside.host_interface()), "{ports}");
        let new = lab.plan_pod(first);
        first.add_namespaces(std::slice::from_ref(&new))?;
        api.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": new.namespace, "name": new.name, "uid": new.uid},
            "spec": {"nodeName": first.name, "containers": [{"name": "main", "image": "none"}]},
        }));
        runtime.add(&new)?.success()?;
        lab.ping(&new, there.address())
    });
}

fn lab_transactions() -> Result<u64> {
    integration::central::Central::northbound_transactions()
}
