//! Addresses that follow from a subnet alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::mac::Mac;

/// The address at `offset` from the first one of the subnet, with the subnet's prefix length; `None` if it is
/// outside.
pub fn nth(subnet: &IpNet, offset: u128) -> Option<IpNet> {
    let address = match subnet.network() {
        IpAddr::V4(base) => {
            IpAddr::V4(Ipv4Addr::from(u32::from(base).checked_add(u32::try_from(offset).ok()?)?))
        }
        IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from(u128::from(base).checked_add(offset)?)),
    };
    if !subnet.contains(&address) {
        return None;
    }
    IpNet::new(address, subnet.prefix_len()).ok()
}

/// The address of the subnet whose host part is `number`. The subnet has room for it: that is not checked.
pub fn numbered(subnet: &IpNet, number: u8) -> IpAddr {
    match subnet.network() {
        IpAddr::V4(base) => Ipv4Addr::from(u32::from(base) | u32::from(number)).into(),
        IpAddr::V6(base) => Ipv6Addr::from(u128::from(base) | u128::from(number)).into(),
    }
}

/// The cluster router's address in a node's subnet: the first one after the network's (`.1`).
pub fn gateway(subnet: &IpNet) -> Option<IpNet> {
    nth(subnet, 1)
}

/// The node's own address in its subnet (`.2`).
pub fn management(subnet: &IpNet) -> Option<IpNet> {
    nth(subnet, 2)
}

/// [`gateway`] of each subnet.
pub fn gateways(subnets: &[IpNet]) -> Vec<IpNet> {
    subnets.iter().filter_map(gateway).collect()
}

/// [`management`] of each subnet.
pub fn managements(subnets: &[IpNet]) -> Vec<IpNet> {
    subnets.iter().filter_map(management).collect()
}

/// Whether this address of the subnet is reserved: network, router, node, broadcast.
pub fn reserved(subnet: &IpNet, address: IpAddr) -> bool {
    let is_broadcast = address.is_ipv4() && address == subnet.broadcast();
    is_broadcast || (0..3).any(|offset| nth(subnet, offset).is_some_and(|net| net.addr() == address))
}

/// The MAC address of a port with these addresses. It is derived from the IPv4 address, if there is one.
pub fn port_mac(addresses: &[IpNet]) -> Option<Mac> {
    let chosen = addresses.iter().find(|net| net.addr().is_ipv4()).or(addresses.first())?;
    Some(Mac::from_ip(chosen.addr()))
}
