//! Gateways with a NIC of their own, for the pods of some subnets, and beside a database with TLS.
//! Nodes and subnets are the lab's, so that its pods fit.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Pod, by_hand, eventually, fabric, threads, traffic::End};

use crate::walkthrough::{
    MASTER_INIT, SOON, gateway_init, minion_init, nbctl, northbound, pki, prepare, refuse, shell,
    succeed,
};

/// An address that is behind the default gateway.
const BEYOND: &str = "198.51.100.7";

/// The node's switch, of the master or of a minion.
fn init(node: &Node, role: &str) -> String {
    let (name, subnet) = (&node.name, node.subnets[0].trunc());
    format!(
        "ovn-k8s-overlay {role}-init --cluster-ip-subnet=\"10.244.0.0/16\" \
         --{role}-switch-subnet=\"{subnet}\" --node-name=\"{name}\""
    )
}

/// The gateway's address on the wire.
fn outside(node: &Node) -> String {
    format!("172.30.0.{}", 100 + node.index)
}

/// A gateway with the second NIC.
fn gateway(node: &Node) -> String {
    format!(
        "ovn-k8s-overlay gateway-init --cluster-ip-subnet=\"10.244.0.0/16\" \
         --physical-interface eth1 --physical-ip \"{}/24\" --node-name=\"{}\" --default-gw \"{}\"",
        outside(node),
        node.name,
        fabric::LAB_ADDRESS
    )
}

/// Plugs a second NIC into the wire.
fn add_nic(node: &Node) -> Result<()> {
    let (link, pid) = (format!("second{}", node.index), node.pid());
    shell(&format!(
        "ip link add {link} type veth peer name eth1 netns {pid}
         ip link set {link} master fabric up; ethtool -K {link} tx off"
    ))?;
    node.shell("ip link set eth1 up; ethtool -K eth1 tx off").map(drop)
}

fn attach(lab: &Lab, node: &Node) -> Result<Pod> {
    let pod = lab.new_pod(node)?;
    by_hand::attach(node, &pod)?;
    Ok(pod)
}

/// What is beside the gateways, and behind the default gateway, sees the pod with this address.
fn leaves_as(lab: &Lab, pod: &Pod, source: &str) -> Result<()> {
    let source: IpAddr = source.parse()?;
    for address in [fabric::LAB_ADDRESS, BEYOND] {
        let server = SocketAddr::new(address.parse()?, 8080);
        let _server = lab.mirroring(&End::Lab, &[server])?;
        let what = format!("{address} sees {pod} as {source}");
        lab.answers(&what, &End::Pod(pod), &[(server, source)], SOON)?;
    }
    Ok(())
}

#[test]
fn a_gateway_with_a_nic_of_its_own_takes_the_nic_from_the_host_and_leads_pods_out_by_it() {
    Lab::of_nodes(1).empty().test(|lab| {
        prepare(lab)?;
        shell(&format!("ip addr add {BEYOND}/32 dev lo"))?;
        let node = &lab.nodes[0];
        succeed(node, &init(node, "master"))?;
        let absent = gateway(node).replace("eth1", "eth7");
        refuse(node, &absent, 1, "eth7")?;
        add_nic(node)?;
        node.shell(&format!("ip addr add {}/24 dev eth1", outside(node)))?;
        succeed(node, &gateway(node))?;

        let addresses = node.shell("ip -o addr show dev eth1 scope global")?;
        ensure!(addresses.is_empty(), "the host keeps {addresses}");
        let id = node.vsctl(["get", "Interface", "eth1", "external_ids:iface-id"])?;
        let bridge = node.vsctl(["port-to-br", "eth1"])?;
        ensure!((id.trim(), bridge.trim()) == ("eth1_node1", "br-int"), "{id} on {bridge}");
        ensure!(nbctl("lsp-list ext_node1")?.contains("(eth1_node1)"), "no port of the NIC");
        leaves_as(lab, &attach(lab, node)?, &outside(node))?;

        // The NIC has no address any more.
        let rows = northbound()?;
        succeed(node, &gateway(node))?;
        ensure!(northbound()? == rows, "before:\n{rows}\nafter:\n{}", northbound()?);
        Ok(())
    });
}

#[test]
fn sources_leave_by_the_gateway_that_names_them_and_all_others_by_the_first_one() {
    Lab::of_nodes(2).empty().test(|lab| {
        prepare(lab)?;
        shell(&format!("ip addr add {BEYOND}/32 dev lo"))?;
        let [first, second] = &lab.nodes[..] else { unreachable!("two nodes") };
        for (node, role) in [(first, "master"), (second, "minion")] {
            succeed(node, &init(node, role))?;
            add_nic(node)?;
        }
        succeed(first, &gateway(first))?;
        let (here, there) = (attach(lab, first)?, attach(lab, second)?);
        for pod in [&here, &there] {
            leaves_as(lab, pod, &outside(first)).context("with one gateway")?;
        }
        let sources = format!("--rampout-ip-subnets=\"{}\"", second.subnets[0].trunc());
        succeed(second, &format!("{} {sources}", gateway(second)))?;
        leaves_as(lab, &here, &outside(first)).context("with two gateways")?;
        leaves_as(lab, &there, &outside(second)).context("with two gateways")
    });
}

/// The node's key and certificate for the northbound database.
fn files(certificate: &str, authority: &str) -> String {
    format!(
        "--nb-privkey={} --nb-cert={} --nb-cacert={}",
        pki::file(&format!("{certificate}.key")),
        pki::file(&format!("{certificate}.crt")),
        pki::file(&format!("{authority}.crt"))
    )
}

#[test]
fn a_database_with_tls_takes_rows_from_a_node_with_a_certificate_and_from_no_other() {
    Lab::of_nodes(2).empty().test(|lab| {
        prepare(lab)?;
        ["ca", "elsewhere"].into_iter().try_for_each(pki::authority)?;
        for (authority, name) in [("ca", "server"), ("ca", "node"), ("elsewhere", "stranger")] {
            pki::sign(authority, name)?;
        }
        shell(&format!(
            "ovn-nbctl set-ssl {} {} {} -- set-connection pssl:6641",
            pki::file("server.key"),
            pki::file("server.crt"),
            pki::file("ca.crt")
        ))?;
        for node in &lab.nodes {
            let remote = format!("external_ids:ovn-nb=\"ssl:{}:6641\"", fabric::LAB_ADDRESS);
            node.vsctl(["set", "Open_vSwitch", ".", &remote])?;
        }
        let [master, node] = &lab.nodes[..] else { unreachable!("two nodes") };
        refuse(master, MASTER_INIT, 2, "--nb-client-privkey")?;
        // Each of them tries for 20 s.
        let strangers = [files("stranger", "ca"), files("node", "elsewhere")];
        threads::at_once(strangers, |files| {
            refuse(master, &format!("{MASTER_INIT} {files}"), 1, "ssl:")
        })?;

        let with = files("node", "ca");
        succeed(master, &format!("{MASTER_INIT} {with}"))?;
        succeed(node, &format!("{} {with}", minion_init(1)))?;
        let gateway = gateway_init(&fabric::address(1));
        refuse(master, &gateway, 2, "--nb-client-privkey")?;
        succeed(master, &format!("{gateway} {with}"))?;
        ensure!(nbctl("show")?.contains("(GR_kube-master)"), "no gateway router");
        eventually("the other node's address answers", SOON, || {
            master.run(["ping", "-n", "-c", "1", "-W", "1", "192.168.2.2"]).map(drop)
        })
    });
}
