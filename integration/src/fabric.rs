//! The wire between the nodes: a Linux bridge in the lab's root and a veth to each node.
//!
//! The node's end is a port of an Open vSwitch bridge. The bridge carries the address of the node's
//! tunnels: Geneve packets from the userspace datapath do not reach an address on an ordinary
//! interface.

use std::process::Command;

use anyhow::Result;

use crate::{Datapath, command};

/// The bridge in the lab's root.
pub(crate) const BRIDGE: &str = "fabric";
/// The MAC address of the bridge. Unless it is given, the kernel changes it with the ports, and the
/// nodes send to the one before.
const MAC: &str = "0a:00:00:00:00:01";
/// MTU of Ethernet.
pub const MTU: u32 = 1500;

/// The lab's own address on the wire, for servers outside of the nodes, such as the API server.
pub const LAB_ADDRESS: &str = "172.30.0.1";

/// The same in IPv6, for clusters that have this family.
pub const LAB_ADDRESS_V6: &str = "fd00:172:30::1";

/// Tunnel address of node `index` (from 1), in 172.30.0.0/24.
pub fn address(index: u32) -> String {
    format!("172.30.0.{}", 10 + index)
}

/// IPv6 address of node `index`, for clusters that have this family.
pub fn address_v6(index: u32) -> String {
    format!("fd00:172:30::{}", 10 + index)
}

/// Creates the wire for packets of up to `mtu` bytes and connects `eth0` of the nodes, given as
/// `(index, process that holds its namespace)`.
pub fn create(nodes: &[(u32, u32)], mtu: u32) -> Result<()> {
    let mut batch = format!(
        "link add {BRIDGE} address {MAC} mtu {mtu} type bridge\naddr add {LAB_ADDRESS}/24 dev {BRIDGE}\nlink set {BRIDGE} up\n"
    );
    for (index, pid) in nodes {
        batch += &format!(
            "link add fabric{index} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {pid}\n\
             link set fabric{index} master {BRIDGE} up\n"
        );
    }
    command::output_with_input(Command::new("ip").args(["-batch", "-"]), &batch)?;
    if Datapath::of_lab().leaves_checksums() {
        return Ok(());
    }
    // The kernel leaves checksums to the NIC, but packets through the userspace datapath meet no
    // NIC: compute them in software.
    command::output(Command::new("ethtool").args(["-K", BRIDGE, "tx", "off"]))?;
    for (index, _) in nodes {
        command::output(Command::new("ethtool").args([
            "-K",
            &format!("fabric{index}"),
            "tx",
            "off",
        ]))?;
    }
    Ok(())
}

/// Gives the lab its IPv6 address on the wire.
pub fn add_v6() -> Result<()> {
    // `nodad`: without it the address is unusable for about a second.
    let address = format!("addr add {LAB_ADDRESS_V6}/64 dev {BRIDGE} nodad");
    command::output(Command::new("ip").args(address.split_whitespace())).map(drop)
}

/// Unplugs node `index`, or plugs it in again. The node keeps its interface, without a carrier.
pub fn set_link(index: u32, up: Link) -> Result<()> {
    let state = match up {
        Link::Up => "up",
        Link::Down => "down",
    };
    command::output(Command::new("ip").args(["link", "set", &format!("fabric{index}"), state]))
        .map(drop)
}

/// State of a node's link to the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Plugged in.
    Up,
    /// Pulled out.
    Down,
}
