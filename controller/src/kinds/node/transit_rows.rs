//! The rows that connect a zone with the others: the nodes' ports on the transit switch, and the
//! ways to nodes of other zones. Upstream's forms (names, keys, ids), so that both read each
//! other's annotations and either takes over the other's database.
//!
//! ```text
//! this zone:   cluster router ── rtots-<own> ── tstor-<own> ─┐
//!                                                      transit_switch   (in each zone's database)
//! other zone:                       tunnel to a chassis ── tstor-<other>, of the type remote
//! ```
//!
//! Of a node of another zone there is nothing else: no switch, no gateway, no ports of pods.

use std::collections::BTreeMap;

use contract::ovn;
use ipnet::IpNet;

use crate::{
    kinds::node::object::Node,
    rows::{
        DesiredRow, Pairs, RouterPort, RowSet, StaticRoute, SwitchPort,
        static_route::Spelling,
        switch_port::{Kind, REQUESTED_CHASSIS, port_networks},
    },
    world::{Place, Store},
};

/// Marks the routes to a node of another zone, by its name.
pub(crate) const ROUTE_OF: &str = "ic-node";
/// The network that such a route is of, and its name for the cluster's own.
pub(crate) const NETWORK: (&str, &str) = ("k8s.ovn.org/network", "default");

const KEY: &str = "requested-tnl-key";
const ROUTER_PORT: &str = "router-port";

/// What a node's rows on the transit switch derive from. All of it is known.
#[derive(Debug)]
pub(crate) struct Transit<'a> {
    node: &'a Node,
    id: u16,
    side: Side<'a>,
}

/// Where the node is.
#[derive(Debug)]
enum Side<'a> {
    ThisZone,
    OtherZone { chassis: &'a str },
}

impl Store {
    /// The node on the transit switch. None while a part is not known: [`Store::kept`] has its rows
    /// stay as they are.
    pub(crate) fn transit<'a>(&self, node: &'a Node) -> Option<Transit<'a>> {
        let id = node.id.filter(|id| self.config.is_connected() && ovn::NODE_IDS.contains(id))?;
        // The address follows from the number, which is one node's alone, and from the length of
        // the cluster's subnet: no two nodes have one address, whatever their annotations say.
        let is_of_length = |net: &IpNet| {
            let of_family = |subnet: &&IpNet| subnet.addr().is_ipv4() == net.addr().is_ipv4();
            let mut subnets = self.config.transit_subnets.iter().filter(of_family);
            subnets.all(|subnet| subnet.prefix_len() == net.prefix_len())
        };
        let is_own = |net: &IpNet| ovn::nth(net, id.into()) == Some(*net) && is_of_length(net);
        let is_numbered = !node.transit.is_empty() && node.transit.iter().all(is_own);
        if !is_numbered || !self.nodes.has_its_join(node) {
            return None;
        }
        // Other nodes reach it as before until it is here.
        if !self.is_linked(node) {
            return None;
        }
        // A route to anything else would draw what is for hosts, Services or the world.
        let is_of_pods = |subnet: &IpNet| {
            self.config.cluster_subnets.iter().any(|range| range.cidr.contains(subnet))
        };
        let side = match self.place(node) {
            Place::Here => Side::ThisZone,
            // Without its subnets, its routes are not known.
            Place::Elsewhere if node.subnets.is_empty() => return None,
            Place::Elsewhere if !node.subnets.iter().all(is_of_pods) => return None,
            Place::Elsewhere => Side::OtherZone { chassis: node.chassis.as_deref()? },
            Place::Unknown => return None,
        };
        Some(Transit { node, id, side })
    }
}

/// The rows of node `name` on the transit switch; none unless zones are connected.
pub fn transit(store: &Store, name: &str) -> RowSet {
    let Some(Transit { node, id, side }) = store.node(name).and_then(|node| store.transit(node))
    else {
        return Vec::new();
    };
    match side {
        Side::ThisZone => of_this_zone(node, id),
        Side::OtherZone { chassis } => {
            let port = remote_port(node, id, chassis);
            port.into_iter().chain(routes(node, store)).collect()
        }
    }
}

/// The link between the cluster router and the transit switch.
fn of_this_zone(node: &Node, id: u16) -> RowSet {
    let Some(mac) = ovn::port_mac(&node.transit) else { return Vec::new() };
    let name = ovn::router_to_transit(&node.name);
    let to_switch = RouterPort {
        router: ovn::CLUSTER_ROUTER.to_owned(),
        name: name.clone(),
        mac,
        networks: node.transit.clone(),
        options: [("mcast_flood", "true".to_owned())].into(),
        external_ids: Pairs::default(),
    };
    let options = Pairs { without: &[REQUESTED_CHASSIS], ..[(KEY, id.to_string())].into() };
    vec![to_switch.into(), port(node, Kind::Router { port: name }, options)]
}

/// The node's port in the database of another zone than its own. OVN sends what it gets to the
/// chassis, which finds the same port there by its key.
fn remote_port(node: &Node, id: u16, chassis: &str) -> Option<DesiredRow> {
    let mac = ovn::port_mac(&node.transit)?;
    let addresses = port_networks(mac, &node.transit);
    let with = [(KEY, id.to_string()), (REQUESTED_CHASSIS, chassis.to_owned())];
    let options = Pairs { without: &[ROUTER_PORT], ..with.into() };
    Some(port(node, Kind::Remote { addresses }, options))
}

fn port(node: &Node, kind: Kind, options: Pairs) -> DesiredRow {
    SwitchPort {
        options,
        external_ids: BTreeMap::from([("node", node.name.to_string())]),
        ..SwitchPort::new(ovn::TRANSIT_SWITCH, ovn::transit_to_router(&node.name), kind)
    }
    .into()
}

/// The cluster router's routes to the node's pods, to its gateway router, and to the source with
/// which its host forwards connections to pods of this zone, if the host has one.
fn routes(node: &Node, store: &Store) -> impl Iterator<Item = DesiredRow> {
    let join_subnets = &store.config.join_subnets;
    let join = node.join_addresses(join_subnets);
    let forwarded = node.forwarded_sources(join_subnets);
    let single = join.iter().map(IpNet::addr).chain(forwarded).map(IpNet::from);
    let networks: Vec<IpNet> = node.subnets.iter().copied().chain(single).collect();
    let (key, network) = NETWORK;
    let ids = BTreeMap::from([(ROUTE_OF, node.name.to_string()), (key, network.to_owned())]);
    networks.into_iter().filter_map(move |to| {
        let mut transit = node.transit.iter().map(IpNet::addr);
        let via = transit.find(|via| via.is_ipv4() == to.addr().is_ipv4())?;
        let route = StaticRoute {
            external_ids: ids.clone(),
            spelling: Spelling::WithLength,
            ..StaticRoute::to(ovn::CLUSTER_ROUTER, to, via)
        };
        Some(route.into())
    })
}

#[cfg(test)]
mod tests;
