//! Which keys a change of a node concerns.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::ServiceKey;

use crate::{
    key::{Dirty, Key, NodeName, Scope},
    kinds::node::object::Node,
    world::Store,
};

/// What NodePorts depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NodePorts {
    ByNode,
    /// The largest number of addresses of a node, which is another one now, or not.
    Templates {
        more_or_fewer: bool,
    },
}

/// A node before and after a change; none while it does not exist.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) before: Option<&'a Node>,
    pub(crate) after: Option<&'a Node>,
    /// Whether its switch was in this zone's database before, and is now.
    pub(crate) is_local: [bool; 2],
    pub(crate) has_gateway_router: bool,
}

impl<'a> Change<'a> {
    /// The node as Services see it: none while its switch is not in this zone's database.
    fn local(&self) -> [Option<&'a Node>; 2] {
        let [was, is] = self.is_local;
        [self.before.filter(|_| was), self.after.filter(|_| is)]
    }
}

/// Follows a change of the node `name`.
pub(crate) fn node(
    name: &NodeName,
    change: Change<'_>,
    world: &Store,
    node_ports: NodePorts,
    dirty: &mut Dirty<'_>,
) {
    load_balancers(change, world, node_ports, dirty);
    let [was_local, is_local] = change.is_local;
    if was_local != is_local {
        world.keys_on_switches().for_each(|key| dirty(key, Scope::Whole));
    }
    if matches!(node_ports, NodePorts::Templates { .. }) {
        variables(change, dirty);
    }
    let both = change.before.zip(change.after);
    if gateway_differs(change.before, change.after) {
        gateway(name, world, dirty);
    }
    if both.is_some_and(|(before, after)| before.same_rows(after)) {
        return;
    }
    dirty(Key::Node(Arc::clone(name)), Scope::Whole);
    transit(name, world, dirty);
    if both.is_some_and(|(before, after)| before.same_for_pods(after)) {
        return;
    }
    for pod in world.pods.of_node(name) {
        dirty(Key::Pod(pod.clone()), Scope::Whole);
    }
}

/// The rows of the node on the transit switch may have changed.
pub(crate) fn transit(name: &NodeName, world: &Store, dirty: &mut Dirty<'_>) {
    if world.config.is_connected() {
        dirty(Key::Transit(Arc::clone(name)), Scope::Whole);
    }
}

/// The rows of the node's gateway may have changed.
pub(crate) fn gateway(name: &NodeName, world: &Store, dirty: &mut Dirty<'_>) {
    dirty(Key::Gateway(Arc::clone(name)), Scope::Whole);
    let pods = &world.pods;
    let known =
        pods.of_node(name).filter(|_| world.config.snat_per_pod).filter_map(|pod| pods.get(pod));
    for address in
        known.filter_map(|known| known.network.as_ref()).flat_map(|network| &network.addresses)
    {
        dirty(Key::source_nat(Arc::clone(name), address.addr()), Scope::Whole);
    }
}

/// Whether the rows of the node's gateway may have changed. Without a mode, those that exist stay,
/// and there are no others.
fn gateway_differs(before: Option<&Node>, after: Option<&Node>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            let without_mode =
                before.gateway.is_none() && after.gateway.is_none() && before.zone == after.zone;
            !without_mode && !before.same_gateway(after)
        }
        (None, Some(after)) => after.gateway.is_some(),
        (_, None) => true,
    }
}

/// The Services that a change of a node concerns.
fn load_balancers(change: Change<'_>, world: &Store, node_ports: NodePorts, dirty: &mut Dirty<'_>) {
    let services = &world.services;
    let mut concerned: BTreeSet<&ServiceKey> = BTreeSet::new();
    let mut templates = matches!(node_ports, NodePorts::Templates { more_or_fewer: true });
    match change.local() {
        [None, None] => {}
        [Some(before), Some(after)] => {
            if !before.same_addresses(after) {
                concerned.extend(services.at_nodes());
                templates |= matches!(node_ports, NodePorts::ByNode);
                if change.has_gateway_router {
                    let [before, after] = [before, after].map(|node| &node.host_addresses);
                    let gone = before.iter().filter(|address| !after.contains(address));
                    let came = after.iter().filter(|address| !before.contains(address));
                    concerned.extend(
                        gone.chain(came).flat_map(|address| services.with_endpoint(address)),
                    );
                }
            }
            if before.topology_zone != after.topology_zone {
                concerned.extend(services.of_zones());
            }
        }
        // Links of its switch, at the least.
        [Some(_), None] | [None, Some(_)] => {
            concerned.extend(services.per_node());
            templates |= matches!(node_ports, NodePorts::ByNode);
        }
    }
    if templates {
        concerned.extend(services.node_ports());
    }
    concerned.into_iter().for_each(|service| dirty(Key::Service(service.clone()), Scope::Whole));
}

/// The variables that a change of a node concerns.
fn variables(change: Change<'_>, dirty: &mut Dirty<'_>) {
    let [before, after] = change.local();
    let is_same = |(before, after): (&Node, &Node)| {
        before.same_addresses(after) && before.chassis == after.chassis
    };
    if before.zip(after).is_some_and(is_same) {
        return;
    }
    let chassis = [before, after].into_iter().flatten().filter_map(|node| node.chassis.as_deref());
    chassis.for_each(|name| dirty(Key::Chassis(name.into()), Scope::Whole));
}

/// Whether variables may stand for backends one of which is an address that the node has from now
/// on, or no longer.
pub(crate) fn has_variables(change: Change<'_>, world: &Store) -> bool {
    let [before, after] =
        change.local().map(|node| node.map_or(&[][..], |node| &node.host_addresses[..]));
    let gone = before.iter().filter(|address| !after.contains(address));
    let came = after.iter().filter(|address| !before.contains(address));
    gone.chain(came).any(|address| world.services.has_variables_with(address))
}

/// The variables of these chassis.
pub(crate) fn chassis(chassis: BTreeSet<Arc<str>>, dirty: &mut Dirty<'_>) {
    chassis.into_iter().for_each(|name| dirty(Key::Chassis(name), Scope::Whole));
}

/// The gateway routers of these nodes came or went. A node's ways to hosts depend on it, if nothing
/// else says what gateway it has.
pub(crate) fn gateway_routers<'a>(
    nodes: impl Iterator<Item = &'a NodeName>,
    dirty: &mut Dirty<'_>,
) {
    nodes.for_each(|name| dirty(Key::Node(Arc::clone(name)), Scope::Whole));
}
