//! Addresses that follow from a subnet alone.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use ipnet::IpNet;

use crate::mac::Mac;

/// The address at `offset` from the first one of the subnet, with the subnet's prefix length;
/// `None` if it is outside.
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

/// The address of the subnet whose host part is `number`. The subnet has room for it: that is not
/// checked.
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

/// The highest number of a node that a cluster manager assigns, as upstream has it. It limits the
/// number of nodes; more need join and transit subnets with as many addresses. Annotations may
/// claim higher ones.
pub const HIGHEST_NODE_ID: u16 = 5000;

/// The numbers that nodes may have: 0 is the network's address, 1 the cluster router's on the join
/// switch.
pub const NODE_IDS: RangeInclusive<u16> = 2..=HIGHEST_NODE_ID;

/// The address with which a node's host appears where it forwards a connection to a pod: counted
/// from the end of the join subnet, as the address of the node's gateway router is from its
/// beginning. `None` where the subnet has no room for both of each node.
pub fn forwarded_source(join: &IpNet) -> Option<IpAddr> {
    let mirrored = |own: u128, first: u128, last: u128| {
        let (number, highest) = (own - first, u128::from(HIGHEST_NODE_ID));
        ((1..=highest).contains(&number) && last - first > 2 * highest).then(|| last - number)
    };
    match (join.addr(), join.network(), join.broadcast()) {
        (IpAddr::V4(own), IpAddr::V4(first), IpAddr::V4(last)) => {
            let [own, first, last] =
                [own, first, last].map(|address| u128::from(u32::from(address)));
            Some(Ipv4Addr::from(u32::try_from(mirrored(own, first, last)?).ok()?).into())
        }
        (IpAddr::V6(own), IpAddr::V6(first), IpAddr::V6(last)) => {
            let [own, first, last] = [own, first, last].map(u128::from);
            Some(Ipv6Addr::from(mirrored(own, first, last)?).into())
        }
        (IpAddr::V4(_) | IpAddr::V6(_), ..) => None,
    }
}

/// [`forwarded_source`] of each family.
pub fn forwarded_sources(join: &[IpNet]) -> Vec<IpAddr> {
    join.iter().filter_map(forwarded_source).collect()
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
    is_broadcast
        || (0..3).any(|offset| nth(subnet, offset).is_some_and(|net| net.addr() == address))
}

/// The MAC address of a port with these addresses. It is derived from the IPv4 address, if there is
/// one.
pub fn port_mac(addresses: &[IpNet]) -> Option<Mac> {
    let chosen = addresses.iter().find(|net| net.addr().is_ipv4()).or(addresses.first())?;
    Some(Mac::from_ip(chosen.addr()))
}
