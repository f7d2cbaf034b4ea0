//! Words of OVN's expression language, ovn-sb(5) "Logical_Flow TABLE".

use std::{collections::BTreeSet, net::IpAddr};

use contract::ovn::ObjectId;
use ipnet::IpNet;
use kubeapi::services::{Family, Protocol};

use crate::{
    config::ClusterSubnet,
    key::SetId,
    kinds::network_policy::object::block::Block,
    rows::acl,
    select::{peer::Direction, set_rows::set_name},
    world::Store,
};

/// `(a || b)`, or the only one.
pub(crate) fn either(matches: Vec<String>) -> String {
    match &matches[..] {
        [one] => one.clone(),
        all => format!("({})", all.join(" || ")),
    }
}

pub(crate) fn ip(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip4",
        Family::V6 => "ip6",
    }
}

pub(crate) fn spelled(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// The matches of the families of pods' addresses.
pub(crate) fn any_family(store: &Store, of_family: impl Fn(Family) -> Option<String>) -> String {
    either(store.config.families().filter_map(of_family).collect())
}

pub(crate) fn side(direction: Direction) -> acl::Direction {
    match direction {
        Direction::Ingress => acl::Direction::ToPort,
        Direction::Egress => acl::Direction::FromPort,
    }
}

/// Matches packets to or from the ports of the group.
pub(crate) fn port_match(direction: Direction, group: &ObjectId) -> String {
    let port = match direction {
        Direction::Ingress => "outport",
        Direction::Egress => "inport",
    };
    format!("{port} == @{}", group.hashed())
}

/// The field with the address of the peer.
fn peer_side(direction: Direction, family: Family) -> String {
    let side = match direction {
        Direction::Ingress => "src",
        Direction::Egress => "dst",
    };
    format!("{}.{side}", ip(family))
}

/// Matches peers in any of the sets.
pub(crate) fn in_sets(store: &Store, direction: Direction, sets: &BTreeSet<SetId>) -> String {
    any_family(store, |family| {
        let mut names: Vec<String> =
            sets.iter().map(|set| format!("${}", set_name(set, family).name)).collect();
        names.sort_unstable();
        Some(format!("{} == {{{}}}", peer_side(direction, family), names.join(", ")))
    })
}

/// Matches peers in any of the blocks, and in none of the exceptions of that block. All comparisons
/// are of the same field: ovn-controller makes them one dimension of a conjunction.
pub(crate) fn in_blocks(direction: Direction, blocks: &[&Block]) -> String {
    let (plain, with_except): (Vec<&Block>, Vec<&Block>) =
        blocks.iter().copied().partition(|block| block.except.is_empty());
    let nets: Vec<IpNet> = plain.iter().map(|block| block.net).collect();
    let with_except = with_except.into_iter().map(|Block { net, except }| {
        let side = peer_side(direction, Family::of(&net.addr()));
        let except = except.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ");
        let within = format!("{side} == {net} && {side} != {{{except}}}");
        // OVN wants to be told what `&&` and `||` in one expression belong to.
        if blocks.len() == 1 { within } else { format!("({within})") }
    });
    let plain = (!nets.is_empty()).then(|| in_nets(direction, &nets));
    either(plain.into_iter().chain(with_except).collect())
}

/// Matches what comes from anywhere but the management ports of nodes, which have the same address
/// in each node's subnet: `10.244.0.2/255.255.0.255`.
pub(crate) fn but_hosts(store: &Store, family: Family) -> String {
    let of_family = |subnet: &&ClusterSubnet| Family::of(&subnet.cidr.addr()) == family;
    let subnets = store.config.cluster_subnets.iter().filter(of_family);
    let hosts: Vec<String> = subnets
        .filter_map(|ClusterSubnet { cidr, host_length }| {
            let first = IpNet::new(cidr.network(), *host_length).ok()?;
            let management = contract::ovn::management(&first)?.addr();
            let mask: IpAddr = match (cidr.netmask(), first.hostmask()) {
                (IpAddr::V4(net), IpAddr::V4(host)) => (net | host).into(),
                (IpAddr::V6(net), IpAddr::V6(host)) => (net | host).into(),
                _ => return None,
            };
            Some(format!("{management}/{mask}"))
        })
        .collect();
    match &hosts[..] {
        [] => ip(family).to_owned(),
        [one] => format!("{} != {one}", peer_side(Direction::Ingress, family)),
        all => format!("{} != {{{}}}", peer_side(Direction::Ingress, family), all.join(", ")),
    }
}

/// Matches peers in any of the networks.
pub(crate) fn in_nets(direction: Direction, nets: &[IpNet]) -> String {
    if let [net] = nets {
        return format!("{} == {net}", peer_side(direction, Family::of(&net.addr())));
    }
    let of_family = |family| {
        let nets = nets.iter().filter(|net| Family::of(&net.addr()) == family);
        let nets: Vec<String> = nets.map(IpNet::to_string).collect();
        (!nets.is_empty())
            .then(|| format!("{} == {{{}}}", peer_side(direction, family), nets.join(", ")))
    };
    either([Family::V4, Family::V6].into_iter().filter_map(of_family).collect())
}
