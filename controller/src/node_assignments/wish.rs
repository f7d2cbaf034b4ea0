//! The desired annotations of a node that it lacks. Entries of other networks than the cluster's
//! stay as they are.

use std::collections::BTreeMap;

use contract::{
    node_annotation::{
        self, DEFAULT_NETWORK, JOIN_ADDRESSES, LEGACY_SUBNET, NODE_ID, NODE_SUBNETS, PerNetwork,
        TRANSIT_ADDRESSES,
    },
    ovn,
};
use ipnet::IpNet;

use crate::{
    config::ClusterConfig,
    kinds::node::{object::Node, problem::NodeProblem},
    node_assignments::Overruled,
};

type AnnotationTexts = BTreeMap<&'static str, String>;

/// Annotations with entries of several networks, one of which is the cluster's own.
pub(super) const SHARED: [&str; 2] = [NODE_SUBNETS, JOIN_ADDRESSES];

/// The missing annotations of a node with these subnets and this id, and the problems of those that
/// cannot be written. `readable`: the last readable texts of [`SHARED`].
pub(super) fn annotations(
    config: &ClusterConfig,
    node: &Node,
    readable: &AnnotationTexts,
    subnets: &[IpNet],
    id: Option<u16>,
    overruled: Overruled,
) -> (AnnotationTexts, Vec<NodeProblem>) {
    let (mut wish, mut troubles) = (AnnotationTexts::new(), Vec::new());
    // A claim that cannot be granted is not overwritten, because an administrator has to decide;
    // unless it is a late request of a former leader.
    let undisputed =
        overruled.subnets || node.subnets.iter().all(|subnet| subnets.contains(subnet));
    if undisputed && !subnets.is_empty() {
        // The node's subnets may come from the legacy annotation alone, so both are checked.
        if node.subnets != subnets || !node.annotations.contains_key(NODE_SUBNETS) {
            merge(&mut wish, &mut troubles, (node, readable), NODE_SUBNETS, |entries| {
                entries.set_subnets(DEFAULT_NETWORK, subnets)
            });
        }
        // The legacy annotation has room for one subnet.
        let legacy = subnets
            .iter()
            .find(|subnet| subnet.addr().is_ipv4())
            .or(subnets.first())
            .filter(|_| config.legacy_annotations);
        wish.extend(
            legacy
                .map(|subnet| (LEGACY_SUBNET, subnet.to_string()))
                .filter(|(name, text)| node.annotations.get(*name) != Some(text)),
        );
    }
    let Some(id) = id else { return (wish, troubles) };
    if node.id.is_none_or(|shown| overruled.id && shown != id) {
        wish.insert(NODE_ID, id.to_string());
    }
    let join = numbered(&config.join_subnets, id, &mut troubles);
    if let Some(address) = former(&node.join, &config.join_subnets, id) {
        troubles.push(NodeProblem::OutsideOfSubnets { annotation: JOIN_ADDRESSES, address });
    } else if node.join != join || !node.annotations.contains_key(JOIN_ADDRESSES) {
        merge(&mut wish, &mut troubles, (node, readable), JOIN_ADDRESSES, |entries| {
            entries.set_interface_addresses(DEFAULT_NETWORK, &join)
        });
    }
    let transit = numbered(&config.transit_subnets, id, &mut troubles);
    if let Some(address) = former(&node.transit, &config.transit_subnets, id) {
        troubles.push(NodeProblem::OutsideOfSubnets { annotation: TRANSIT_ADDRESSES, address });
    } else if node.transit != transit {
        wish.insert(TRANSIT_ADDRESSES, node_annotation::interface_addresses_text(&transit));
    }
    (wish, troubles)
}

/// The address at offset `id` of each subnet, IPv4 first.
fn numbered(subnets: &[IpNet], id: u16, troubles: &mut Vec<NodeProblem>) -> Vec<IpNet> {
    let mut addresses = Vec::new();
    for subnet in subnets {
        match ovn::nth(subnet, id.into()) {
            Some(address) => addresses.push(address),
            None => troubles.push(NodeProblem::SubnetTooSmall { id, subnet: *subnet }),
        }
    }
    addresses.sort_by_key(|address| !address.addr().is_ipv4());
    addresses
}

/// An address that the node was given when the options named another subnet. It stays until an
/// administrator deletes the annotation: all nodes would change at once otherwise, and their
/// gateways with them.
fn former(now: &[IpNet], subnets: &[IpNet], id: u16) -> Option<IpNet> {
    let is_outside =
        |address: &&IpNet| !subnets.iter().any(|subnet| subnet.contains(&address.addr()));
    // Anything else at this place is not from an earlier start, and is overwritten.
    let is_numbered = |address: &&IpNet| ovn::nth(&address.trunc(), id.into()) == Some(**address);
    now.iter().filter(is_outside).find(is_numbered).copied()
}

/// Sets the entry of the cluster's network. A text that cannot be read may have entries of other
/// networks: it is overwritten only with the last readable text.
fn merge(
    wish: &mut AnnotationTexts,
    troubles: &mut Vec<NodeProblem>,
    (node, readable): (&Node, &AnnotationTexts),
    annotation: &'static str,
    set: impl FnOnce(&mut PerNetwork),
) {
    let now = node
        .annotations
        .get(annotation)
        .map_or_else(|| Ok(PerNetwork::default()), |text| PerNetwork::parse(text));
    let before = readable.get(annotation).and_then(|text| PerNetwork::parse(text).ok());
    match now.or_else(|error| before.ok_or(error)) {
        Ok(mut entries) => {
            set(&mut entries);
            wish.insert(annotation, entries.to_string());
        }
        Err(error) => {
            troubles.push(NodeProblem::UnreadableAnnotation { annotation, why: error.to_string() })
        }
    }
}
