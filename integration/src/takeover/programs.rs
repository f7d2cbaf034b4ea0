//! A node with a kubelet and without a network, and the programs of either side that give it one.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result};
use integration::{
    Cluster, Node,
    cluster::{Containerd, GatewayMode, Zone, access, zone},
    command, eventually, executable, fabric,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Port of the API server, and the node's table of routes that leads there.
const API_SERVER: u16 = 6443;
const TABLE: u16 = 100;

/// A cluster of one node, which the API server knows and which has no network yet.
pub(super) fn bare_node(gateway: GatewayMode, say: &(dyn Fn(&str) + Sync)) -> Result<Cluster> {
    let cluster = Cluster::of_nodes(1)
        .gateway(gateway)
        // Upstream's configuration is of a version that the other does not know.
        .containerd(Containerd::Two)
        .without_network()
        .build(say)?;
    let node = &cluster.lab.nodes[0];
    give_way_to_api_server(node)?;
    cluster.workers[0].kubelet.spawn()?;
    zone::give_databases(node)?;
    // Upstream's programs end where the node is not known.
    eventually("the kubelet has made its node", PATIENCE, || {
        cluster.api.read(&format!("/api/v1/nodes/{}", node.name)).map(drop)
    })?;
    Ok(cluster)
}

/// Upstream's programs in `directory`, for the cluster's node, with further options.
pub(super) fn upstream(cluster: &Cluster, directory: &Path, more: &[&str]) -> Result<Zone> {
    let node = &cluster.lab.nodes[0];
    zone::prepare_for_upstream(node, directory)?;
    // It does not start without one, although it uses the kubeconfig.
    let token = fs::read_to_string(cluster.credentials.token(access::NODE))?;
    let mut options = vec![format!("--k8s-token={}", token.trim())];
    options.extend(more.iter().map(|option| (*option).to_owned()));
    let ready = "Default node network controller initialized and ready";
    Zone::of(cluster, node, directory, "upstream", ready, &options)
}

/// This project's, for the cluster's node.
pub(super) fn ours(cluster: &Cluster) -> Result<Zone> {
    let directory = executable::under_test(executable::SERVER)?;
    let directory = directory.parent().context("the executable is in a directory")?;
    Zone::of(cluster, &cluster.lab.nodes[0], directory, "ours", "|ready ", &[])
}

/// Upstream leaves the checksums of the node's own packets to pods to a NIC, which the userspace
/// datapath has not.
pub(super) fn send_checksums(node: &Node) -> Result<()> {
    node.run(["ethtool", "-K", "ovn-k8s-mp0", "tx", "off"]).map(drop)
}

/// Gives the node a link of its own to the API server. The lists that a program reads at its start
/// come faster than a userspace switch reads the NIC, whose socket would drop other packets for
/// them.
fn give_way_to_api_server(node: &Node) -> Result<()> {
    let (server, pid) = (fabric::LAB_ADDRESS, node.pid());
    let here = format!(
        "ip link add api type veth peer name api netns {pid}
         ip addr add 172.31.0.1/24 dev api
         ip link set api up"
    );
    command::output(Command::new("sh").args(["-euc", &here]))?;
    // For what the node itself asks the API server. What it forwards of pods, and what the API
    // server asks the kubelet, goes by the NIC. With `rp_filter` 1 the server's packets would be
    // dropped on either: the kernel looks up the way back without the port.
    node.shell(&format!(
        "ip addr add 172.31.0.2/24 dev api; ip link set api up
         ip rule add iif lo to {server} ipproto tcp dport {API_SERVER} lookup {TABLE}
         ip route add {server} via 172.31.0.1 src 172.31.0.2 table {TABLE}
         for nic in api breth0; do echo 2 > /proc/sys/net/ipv4/conf/$nic/rp_filter; done"
    ))?;
    Ok(())
}
