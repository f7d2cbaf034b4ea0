//! The chassis of nodes of other zones in this zone's southbound database, where OVN looks for the
//! ends of tunnels. A pure function, as those of rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use crate::{
    config::GENEVE_PORT,
    key::NodeName,
    kinds::node::object::Node,
    tunnels::{RemoteChassis, ToldChassis, Tunnels},
    world::{Place, Store},
};

impl Store {
    /// The chassis of nodes of other zones, if they are others than at the last call. None before
    /// all nodes are known, and unless zones are connected.
    pub fn take_remote_chassis(&mut self) -> Option<Arc<RemoteChassis>> {
        if !self.config.is_connected() || !self.told_chassis.is_old || !self.is_complete() {
            return None;
        }
        let now = Arc::new(remote_chassis(self));
        let ToldChassis { told, is_old } = &mut self.told_chassis;
        *is_old = false;
        if told.as_ref() == Some(&now) {
            return None;
        }
        *told = Some(Arc::clone(&now));
        Some(now)
    }
}

/// The chassis of all nodes of other zones; nothing unless zones are connected.
pub fn remote_chassis(store: &Store) -> RemoteChassis {
    let mut chassis = RemoteChassis::default();
    if !store.config.is_connected() {
        return chassis;
    }
    chassis.port = Some(store.config.encap_port).filter(|port| *port != GENEVE_PORT);
    // A node that comes to others is one of another zone until it is linked with them: ovn-northd
    // takes its port on the transit switch from a chassis that is not remote.
    let place = |node: &Node| match store.is_linked(node) {
        true => store.place(node),
        false => Place::Elsewhere,
    };
    // A database has one row for an address of tunnels. Those of this zone are ovn-controller's to
    // write: no other zone takes one of them away.
    let here = store.nodes.iter().filter(|node| place(node) == Place::Here);
    let of_this_zone: BTreeSet<IpAddr> =
        here.flat_map(|node| node.encap_ips.iter().copied()).collect();
    let mut nodes: Vec<&Node> = store.nodes.iter().collect();
    nodes.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let mut claimants: BTreeMap<IpAddr, Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        let name = node.chassis.as_deref();
        match (place(node), name) {
            (Place::Here, Some(name)) => drop(chassis.local.insert(name.into())),
            (Place::Elsewhere, Some(name)) => {
                let is_foreign = |ip: &IpAddr| !of_this_zone.contains(ip);
                let addresses: BTreeSet<IpAddr> =
                    node.encap_ips.iter().copied().filter(is_foreign).collect();
                for ip in &addresses {
                    claimants.entry(*ip).or_default().push(node);
                }
                if addresses.is_empty() {
                    chassis.kept.insert(Arc::clone(&node.name));
                } else {
                    let tunnels = Tunnels { node: Arc::clone(&node.name), addresses };
                    chassis.wanted.insert(name.into(), tunnels);
                }
            }
            (Place::Here | Place::Elsewhere, None) | (Place::Unknown, _) => {
                chassis.kept.insert(Arc::clone(&node.name));
            }
        }
    }
    let several = claimants.into_iter().filter(|(_, nodes)| nodes.len() > 1);
    chassis.contested = several.map(|(ip, nodes)| (ip, in_question(&nodes))).collect();
    chassis
}

/// Of the nodes that name an address, those that may have it. One of which Kubernetes hears nothing
/// any more gives way: another machine may have its address.
fn in_question(nodes: &[&Node]) -> Vec<NodeName> {
    let is_any_reachable = nodes.iter().any(|node| !node.is_unreachable);
    let may_have = nodes.iter().filter(|node| !(is_any_reachable && node.is_unreachable));
    may_have.map(|node| Arc::clone(&node.name)).collect()
}
