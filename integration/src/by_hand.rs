//! Attaches a pod with `ip`, `ethtool` and `ovs-vsctl`, as an administrator would: proof that the
//! lab works without our plugin.

use anyhow::Result;

use crate::{Datapath, Node, Pod};

/// Attaches `pod`, whose namespace and logical port exist, and waits until OVN has installed its
/// flows.
pub fn attach(node: &Node, pod: &Pod) -> Result<()> {
    let Pod { uid, mac, .. } = pod;
    let (link, port, netns, mtu) = (pod.host_interface(), pod.port(), pod.netns_name(), node.mtu);
    node.shell(&format!(
        "ip link add {link} mtu {mtu} type veth peer name eth0 mtu {mtu} address {mac} netns {netns}
         ip link set {link} up"
    ))?;
    // tx off: the userspace datapath does not complete the checksums that the kernel leaves to the
    // NIC.
    let checksums = if Datapath::of_lab().leaves_checksums() {
        ""
    } else {
        "; ethtool -K eth0 tx off >/dev/null"
    };
    let mut inside = format!("ip link set lo up; ip link set eth0 up{checksums}");
    for (address, gateway) in pod.addresses.iter().zip(&pod.gateways) {
        // nodad: without it an IPv6 address is unusable for about a second.
        inside +=
            &format!("; ip addr add {address} dev eth0 nodad; ip route add default via {gateway}");
    }
    node.run_in_pod(pod, ["sh", "-euc", &inside])?;
    let rows = format!(
        "add-port br-int {link} -- set Interface {link} external_ids:iface-id={port} \
         external_ids:iface-id-ver={uid} external_ids:attached_mac=\"{mac}\" external_ids:sandbox={}",
        pod.sandbox
    );
    node.vsctl(rows.split_whitespace())?;
    // ovn-controller sets it once the flows of the port are installed.
    node.vsctl(["wait-until", "Interface", &link, "external_ids:ovn-installed=true"]).map(drop)
}

/// Detaches it again.
pub fn detach(node: &Node, pod: &Pod) -> Result<()> {
    let link = pod.host_interface();
    node.vsctl(["--if-exists", "del-port", "br-int", &link])?;
    node.run(["ip", "link", "del", &link]).map(drop)
}
