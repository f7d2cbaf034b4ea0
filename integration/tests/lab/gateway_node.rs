//! A node's gateway, with the rows of its gateway router made by hand: pods reach the world.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Pod, eventually, executable};

use crate::support::attached::attach;
use crate::support::managed;
use crate::support::managed::SOON;

const ROUTER: &str = "ovn_cluster_router";
/// A machine on the nodes' wire.
const OUTSIDE: &str = "172.30.0.254";

fn shell(script: &str) -> Result<String> {
    let output = Command::new("sh").args(["-euc", script]).output()?;
    ensure!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// A machine on the wire, to which the nodes' default routes lead.
fn outside(nodes: &[Node]) -> Result<()> {
    shell(&format!(
        "ip netns add outside
         ip link add outside type veth peer name eth0 netns outside
         ip link set outside master fabric up
         ethtool -K outside tx off >/dev/null
         ip -n outside link set lo up; ip -n outside link set eth0 up
         ip netns exec outside ethtool -K eth0 tx off >/dev/null
         ip -n outside addr add {OUTSIDE}/24 dev eth0"
    ))?;
    for node in nodes {
        node.run(["ip", "route", "replace", "default", "via", OUTSIDE])?;
    }
    Ok(())
}

/// The rows that a control plane makes for the node's gateway in shared mode.
fn rows(lab: &Lab) -> Result<()> {
    let router = ROUTER;
    let joined = |switch: &str, port: &str, to: &str| {
        format!(
            "-- lsp-add {switch} {port} -- lsp-set-type {port} router -- lsp-set-addresses {port} router
             -- lsp-set-options {port} router-port={to}"
        )
    };
    let words = [
        format!("ls-add join -- lrp-add {router} rtoj-{router} 0a:58:64:40:00:01 100.64.0.1/16"),
        joined("join", &format!("jtor-{router}"), &format!("rtoj-{router}")),
        "-- lr-add GR_node1 -- set Logical_Router GR_node1 options:chassis=node1 options:snat-ct-zone=0
            options:lb_force_snat_ip=router_ip options:dynamic_neigh_routers=true
            options:always_learn_from_arp_request=false
         -- lrp-add GR_node1 rtoj-GR_node1 0a:58:64:40:00:02 100.64.0.2/16"
            .to_owned(),
        joined("join", "jtor-GR_node1", "rtoj-GR_node1"),
        "-- ls-add ext_node1 -- lrp-add GR_node1 rtoe-GR_node1 0a:00:00:01:00:01 172.30.0.11/24
         -- lsp-add ext_node1 breth0_node1 -- lsp-set-type breth0_node1 localnet
         -- lsp-set-addresses breth0_node1 unknown -- lsp-set-options breth0_node1 network_name=physnet"
            .to_owned(),
        joined("ext_node1", "etor-GR_node1", "rtoe-GR_node1"),
        format!(
            "-- lr-route-add GR_node1 10.244.0.0/16 100.64.0.1
             -- lr-route-add GR_node1 0.0.0.0/0 {OUTSIDE} rtoe-GR_node1
             -- lr-nat-add GR_node1 snat 172.30.0.11 10.244.0.0/16
             -- lr-route-add {router} 100.64.0.2/32 100.64.0.2
             -- --policy=src-ip lr-route-add {router} 10.244.1.0/24 100.64.0.2"
        ),
    ];
    let words = words.join("\n");
    lab.central.nbctl(words.split_whitespace()).map(drop)?;
    // Behind the gateway router the node's address is the router's own.
    let policy = [
        "lr-policy-add",
        router,
        "1004",
        "inport == \"rtos-node1\" && ip4.dst == 172.30.0.11",
        "reroute",
        "10.244.1.2",
    ];
    lab.central.nbctl(policy).map(drop)
}

/// Starts the server with a gateway, and waits until runtimes may use the plugin.
fn start(node: &Node, gateway: &str) -> Result<()> {
    node.configure_server(&node.subnets)?;
    let file = node.path("/etc/openvswitch/ovn_k8s.conf");
    fs::write(&file, fs::read_to_string(&file)? + &format!("[gateway]\n{gateway}\n"))?;
    node.start_server()?;
    managed::ready(node)
}

/// Listens on a machine outside, and has the pod send a text there: the address that the machine
/// sees.
fn source_of(node: &Node, pod: &Pod) -> Result<String> {
    let mut server = Command::new("ip")
        .args(["netns", "exec", "outside", "timeout", "20", "python3", "-uc"])
        .arg("import socket; s=socket.create_server(('', 8080)); print('up'); c,a=s.accept(); c.sendall(b'x'*2000000); c.close(); print(a[0])")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(server.stdout.take().context("piped")?).lines();
    lines.next().context("it listens")??;
    let ask = format!(
        "import socket; s=socket.create_connection(('{OUTSIDE}', 8080), 5); n=0
while b:=s.recv(65536): n+=len(b)
assert n == 2000000, n"
    );
    node.run_in_pod(pod, ["python3", "-c", &ask])?;
    let source = lines.next().context("an address")??;
    server.wait()?;
    Ok(source)
}

/// What the node's server has set up on the host and in the bridge. Ports by name: a patch port
/// that ovn-controller makes again has another number.
fn state(node: &Node) -> Result<String> {
    node.shell(
        "ovs-ofctl -O OpenFlow15 --names --no-stats dump-flows breth0 cookie=0xdeff105/-1 | sort
         ovs-vsctl --if-exists get Open_vSwitch . external_ids:ovn-bridge-mappings
         ip route show dev breth0 | sort; ip neigh show dev breth0 nud permanent | sort",
    )
}

/// The values of the node's address, in the flows and in the route.
fn mentions(node: &Node, what: &str) -> Result<()> {
    eventually(&format!("flows and routes have {what}"), SOON, || {
        let state = state(node)?;
        ensure!(state.contains(what), "{state}\n{}", node.server_log()?);
        Ok(())
    })
}

#[test]
fn a_pod_reaches_the_world_with_the_nodes_address_in_shared_mode() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        outside(&lab.nodes)?;
        rows(lab)?;
        start(node, "mode=shared\nnodeport=true")?;
        let pod = attach(node, lab.new_pod(node)?)?.pod;
        lab.ping(&pod, OUTSIDE.parse()?)?;
        let source = source_of(node, &pod)?;
        ensure!(source == "172.30.0.11", "the world sees {source}");
        // The node itself, on its own address and on the management port's.
        lab.ping_from_node(node, OUTSIDE.parse()?)?;
        lab.ping_from_node(node, pod.address())?;
        lab.ping(&pod, "172.30.0.11".parse()?)?;
        let state = state(node)?;
        ensure!(state.contains("169.254.169.1 proto 88 src 172.30.0.11"), "{state}");
        Ok(())
    });
}

#[test]
fn what_is_taken_away_is_back_within_a_second_and_changes_are_followed() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        outside(&lab.nodes)?;
        rows(lab)?;
        start(node, "mode=shared\nnodeport=true")?;
        let before = state(node)?;
        for damage in [
            "ovs-ofctl del-flows breth0 cookie=0xdeff105/-1",
            "ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge-mappings=other:breth0",
            "ip neigh del 169.254.169.1 dev breth0",
            "ip route del 169.254.169.1 dev breth0",
        ] {
            node.shell(damage)?;
            eventually(&format!("the gateway is as before ({damage})"), SOON, || {
                let now = state(node)?.replace("other:breth0,", "");
                ensure!(now == before, "{now}\nbefore:\n{before}\n{}", node.server_log()?);
                Ok(())
            })?;
            node.shell(
                "ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge-mappings=physnet:breth0",
            )?;
        }
        // The node's address.
        node.shell("ip addr add 172.30.0.99/24 dev breth0; ip addr del 172.30.0.11/24 dev breth0")?;
        node.shell(&format!(
            "ip addr replace 172.30.0.99/24 dev breth0; ip route replace default via {OUTSIDE}"
        ))?;
        mentions(node, "172.30.0.99")?;
        // Its MAC address.
        node.vsctl(["set", "Bridge", "breth0", "other_config:hwaddr=0a:00:00:01:00:77"])?;
        mentions(node, "0a:00:00:01:00:77")
    });
}

#[test]
fn a_gateway_that_is_cleaned_up_leaves_a_plain_switch_and_the_node_reachable() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        outside(&lab.nodes)?;
        rows(lab)?;
        node.vsctl(["set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=storage:br9"])?;
        start(node, "mode=shared")?;
        lab.ping_from_node(node, OUTSIDE.parse()?)?;
        node.server.stop()?;
        let server = executable::under_test(executable::SERVER)?;
        let clean = || node.run([server.as_os_str(), "--cleanup-node".as_ref(), "node1".as_ref()]);
        let said = clean()?;
        for line in [
            "removed bridge breth0 from ovn-bridge-mappings, and its patch ports",
            "removed the gateway's flows from bridge breth0",
            "left the NIC in bridge breth0",
        ] {
            ensure!(said.contains(line), "{line}: {said}");
        }
        let left = state(node)?;
        ensure!(!left.contains("169.254.169.1") && left.contains("storage:br9\""), "{left}");
        ensure!(!left.contains("cookie") && !left.contains("physnet"), "{left}");
        ensure!(!node.shell("ovs-vsctl show")?.contains("patch-"), "patch ports are left");
        lab.ping_from_node(node, OUTSIDE.parse()?)?;
        let again = clean()?;
        ensure!(
            again.contains("there is no gateway in") && !again.contains("removed the gateway"),
            "{again}"
        );
        Ok(())
    });
}

#[test]
fn a_nic_that_is_plugged_in_later_is_the_gateways_at_once() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.configure_server(&node.subnets)?;
        let file = node.path("/etc/openvswitch/ovn_k8s.conf");
        let gateway = "[gateway]\nmode=shared\ninterface=late0\n";
        fs::write(&file, fs::read_to_string(&file)? + gateway)?;
        node.start_server()?;
        eventually("the server waits for the NIC", SOON, || {
            let log = node.server_log()?;
            ensure!(log.contains("interface late0 does not exist yet"), "{log}");
            Ok(())
        })?;
        // Without an event the server looks again after 30 s.
        node.shell(
            "ip link add late0 type veth peer name late1
             ip addr add 172.31.0.2/24 dev late0; ip link set late1 up; ip link set late0 up",
        )?;
        eventually("the NIC is in a bridge that ovn-controller knows", SOON, || {
            let bridges =
                node.vsctl(["get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"])?;
            let addresses = node.shell("ip -o addr show brlate0")?;
            ensure!(
                bridges.contains("physnet:brlate0") && addresses.contains("172.31.0.2/24"),
                "{addresses}"
            );
            Ok(())
        })
    });
}
