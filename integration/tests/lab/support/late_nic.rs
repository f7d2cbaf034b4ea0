//! A node with a second NIC, for the bridge of its gateway.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use integration::{Node, eventually};

/// Without an event the server looks at its gateway after five minutes.
const SOON: Duration = Duration::from_secs(10);

/// A second NIC of the node, wired to a machine of its own.
const LATE: &str = "
    ip netns add beyond
    ip link add late0 type veth peer name far address 0a:00:00:01:00:66 netns beyond
    ip -n beyond addr add 172.31.0.1/24 dev far
    ip -n beyond addr add fd00:172:31::1/64 dev far nodad
    ip -n beyond link set lo up
    ip -n beyond link set far up
    ethtool -K late0 tx off
    ip netns exec beyond ethtool -K far tx off
    ip link set late0 up
    ip addr add 172.31.0.2/24 dev late0
    ip addr add fd00:172:31::2/64 dev late0 nodad
";

/// Gives the node that NIC, and configures it for the gateway.
pub(crate) fn prepare(node: &Node) -> Result<()> {
    node.shell(LATE)?;
    node.configure_server(&node.subnets)?;
    let file = node.path("/etc/openvswitch/ovn_k8s.conf");
    let gateway = "[gateway]\nmode=shared\ninterface=late0\n";
    Ok(fs::write(&file, fs::read_to_string(&file)? + gateway)?)
}

/// Starts the server with that NIC for its gateway, and waits until the NIC is the uplink of its
/// bridge.
pub(crate) fn start_with_nic(node: &Node) -> Result<()> {
    prepare(node)?;
    node.start_server()?;
    has_bridge(node)
}

/// Plugs another NIC in, after the first one was unplugged. It comes under another name first, as
/// with udev.
pub(crate) fn replug(node: &Node) -> Result<()> {
    node.shell(
        "ip link add new0 type veth peer name far address 0a:00:00:01:00:66 netns beyond
         ip -n beyond addr add 172.31.0.1/24 dev far
         ip -n beyond addr add fd00:172:31::1/64 dev far nodad
         ip -n beyond link set far up
         ip netns exec beyond ethtool -K far tx off
         ethtool -K new0 tx off
         ip link set new0 name late0
         ip link set late0 up",
    )
    .map(drop)
}

/// The bridge has its mark, and the node reaches what is behind it.
pub(crate) fn has_bridge(node: &Node) -> Result<()> {
    eventually("the bridge is the gateway's", SOON, || {
        let bridges =
            node.vsctl(["get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"])?;
        ensure!(bridges.contains("physnet:brlate0"), "{bridges}\n{}", node.server_log()?);
        let said = pings(node)?;
        ensure!(!said.contains("DUP!"), "{said}");
        Ok(())
    })
}

/// The node reaches what is behind the NIC, whatever has its addresses.
pub(crate) fn reaches_beyond(node: &Node) -> Result<()> {
    eventually("the node reaches what is behind its NIC", SOON, || pings(node).map(drop))
}

/// What `ping` says of each address beyond, if both answer.
fn pings(node: &Node) -> Result<String> {
    let ping = |address| node.run(["ping", "-n", "-c", "2", "-i", "0.2", "-W", "1", address]);
    Ok(ping("172.31.0.1")? + &ping("fd00:172:31::1")?)
}
