//! The annotations that a node should have, as far as it has them not. Entries of networks other than the cluster's stay as they are.

use std::collections::BTreeMap;

use contract::{
    node_annotation::{self, DEFAULT_NETWORK, JOIN_ADDRESSES, LEGACY_SUBNET, NODE_ID, NODE_SUBNETS, PerNetwork, TRANSIT_ADDRESSES},
    ovn,
};
use ipnet::IpNet;

use crate::{config::ClusterConfig, store::Node, trouble::NodeTrouble};

type Annotations = BTreeMap<&'static str, String>;

/// Annotations with entries of several networks, of which one is ours.
pub(super) const SHARED: [&str; 2] = [NODE_SUBNETS, JOIN_ADDRESSES];

/// The missing annotations of a node that has these subnets and this number, and what cannot be said. `readable`: those of [`SHARED`] as they
/// were when they could be read last.
pub(super) fn annotations(
    config: &ClusterConfig,
    node: &Node,
    readable: &Annotations,
    subnets: &[IpNet],
    id: Option<u16>,
    overrules: bool,
) -> (Annotations, Vec<NodeTrouble>) {
    let (mut wish, mut troubles) = (Annotations::new(), Vec::new());
    // What a node claims in vain is not overwritten, unless it came too late: somebody has to decide.
    let undisputed = overrules || node.subnets.iter().all(|subnet| subnets.contains(subnet));
    if undisputed && !subnets.is_empty() {
        if node.subnets != subnets || !node.annotations.contains_key(NODE_SUBNETS) {
            merge(&mut wish, &mut troubles, (node, readable), NODE_SUBNETS, |entries| entries.set_subnets(DEFAULT_NETWORK, subnets));
        }
        let legacy = subnets.iter().find(|subnet| subnet.addr().is_ipv4()).or(subnets.first()).filter(|_| config.legacy_annotations);
        wish.extend(
            legacy.map(|subnet| (LEGACY_SUBNET, subnet.to_string())).filter(|(name, text)| node.annotations.get(*name) != Some(text)),
        );
    }
    let Some(id) = id else { return (wish, troubles) };
    if node.id.is_none() {
        wish.insert(NODE_ID, id.to_string());
    }
    let join = numbered(&config.join_subnets, id, &mut troubles);
    if node.join != join || !node.annotations.contains_key(JOIN_ADDRESSES) {
        merge(&mut wish, &mut troubles, (node, readable), JOIN_ADDRESSES, |entries| {
            entries.set_interface_addresses(DEFAULT_NETWORK, &join)
        });
    }
    let transit = numbered(&config.transit_subnets, id, &mut troubles);
    if node.transit != transit {
        wish.insert(TRANSIT_ADDRESSES, node_annotation::interface_addresses_text(&transit));
    }
    (wish, troubles)
}

/// The address with this number in each subnet, IPv4 first.
fn numbered(subnets: &[IpNet], id: u16, troubles: &mut Vec<NodeTrouble>) -> Vec<IpNet> {
    let mut addresses = Vec::new();
    for subnet in subnets {
        match ovn::nth(subnet, id.into()) {
            Some(address) => addresses.push(address),
            None => troubles.push(NodeTrouble::SubnetTooSmall { id, subnet: *subnet }),
        }
    }
    addresses.sort_by_key(|address| !address.addr().is_ipv4());
    addresses
}

/// Sets one network's entry. Others' entries may be in a text that cannot be read: it is overwritten only with what could be read before.
fn merge(
    wish: &mut Annotations,
    troubles: &mut Vec<NodeTrouble>,
    (node, readable): (&Node, &Annotations),
    annotation: &'static str,
    set: impl FnOnce(&mut PerNetwork),
) {
    let now = node.annotations.get(annotation).map_or_else(|| Ok(PerNetwork::default()), |text| PerNetwork::parse(text));
    let before = readable.get(annotation).and_then(|text| PerNetwork::parse(text).ok());
    match now.or_else(|error| before.ok_or(error)) {
        Ok(mut entries) => {
            set(&mut entries);
            wish.insert(annotation, entries.to_string());
        }
        Err(error) => troubles.push(NodeTrouble::UnreadableAnnotation { annotation, why: error.to_string() }),
    }
}
