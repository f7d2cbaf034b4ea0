//! Hosts as pods see them: addresses of both families, and the rows that a control plane would
//! write.

use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
};

use anyhow::{Context as _, Result};
use integration::{Lab, Node, command, fabric};

/// A Service's address of each family.
pub(crate) const VIPS: [&str; 2] = ["10.96.0.10", "fd00:10:96::a"];

/// Addresses of the second family on the wire between the nodes.
const WIRE: &str = "2001:db8:30";

/// The addresses of a machine beside the nodes.
pub(crate) fn lab_addresses() -> [IpAddr; 2] {
    [fabric::LAB_ADDRESS, &format!("{WIRE}::1")].map(|text| text.parse().expect("an address"))
}

/// The addresses of a node on the wire.
pub(crate) fn node_addresses(node: &Node) -> [IpAddr; 2] {
    [fabric::address(node.index), format!("{WIRE}::{}", 10 + node.index)]
        .map(|text| text.parse().expect("an address"))
}

/// Gives every machine of the wire an IPv6 address.
pub(crate) fn give_second_family(lab: &Lab) -> Result<()> {
    command::output(Command::new("ip").args([
        "addr",
        "add",
        &format!("{WIRE}::1/64"),
        "nodad",
        "dev",
        "fabric",
    ]))?;
    lab.nodes.iter().try_for_each(|node| {
        node.shell(&format!("ip addr add {WIRE}::{}/64 nodad dev breth0", 10 + node.index))
            .map(drop)
    })
}

/// Makes the load balancer of a Service's port on all nodes, or changes its endpoints. Returns the
/// Service's address and port.
pub(crate) fn balance(
    lab: &Lab,
    protocol: &str,
    vip: &str,
    port: u16,
    endpoints: &[SocketAddr],
) -> Result<SocketAddr> {
    let at = SocketAddr::new(vip.parse().context("an address")?, port);
    let name = format!("{protocol}-{at}");
    let endpoints = endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let nbctl = |words: &[&str]| lab.central.nbctl(words.iter().copied());
    if nbctl(&["--bare", "--columns=_uuid", "find", "Load_Balancer", &format!("name=\"{name}\"")])?
        .trim()
        .is_empty()
    {
        nbctl(&[
            "create",
            "Load_Balancer",
            &format!("name=\"{name}\""),
            &format!("protocol={protocol}"),
            "options:reject=true",
        ])?;
        for node in &lab.nodes {
            nbctl(&["ls-lb-add", &node.name, &name])?;
        }
    }
    nbctl(&[
        "--wait=hv",
        "set",
        "Load_Balancer",
        &name,
        &format!("vips:\"{at}\"=\"{endpoints}\""),
    ])?;
    Ok(at)
}
