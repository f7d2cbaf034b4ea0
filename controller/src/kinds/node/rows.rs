//! The rows of a node: its switch, its port on the cluster router, its management port, and its
//! pods' way to hosts.

use std::{collections::BTreeMap, net::IpAddr};

use contract::{
    mac::Mac,
    node_annotation::GatewayMode,
    ovn::{self, ObjectId},
};
use ipnet::IpNet;

use crate::{
    config::{ClusterConfig, Multicast},
    kinds::node::{multicast, object::Node},
    rows::{
        Acl, DesiredRow, GatewayChassis, Pairs, RouterPort, RowSet, StaticRoute, SwitchPort, Table,
        Value,
        acl::{ALLOW, Action, Direction, Tier},
        port_group::port_group,
        switch_port::{Kind, port_addresses},
    },
    world::Store,
};

/// A gateway with the same MAC and link-local addresses on every node, so that a virtual machine
/// (`KubeVirt`) keeps it when it migrates. In the option `arp_proxy`, the cluster subnets follow.
const ARP_PROXY: &str = "0a:58:a9:fe:01:01 169.254.1.1 fe80::1";
/// Marks the routes for answers to what hosts forward.
pub(crate) const FORWARDED_ROUTE: &str = "k8s.ovn.org/forwarded-source";
/// The keys of a switch's `other_config` that are this controller's. Those without a value are
/// removed.
const SWITCH_KEYS: [&str; 8] = {
    let [snoop, querier, mac, v4, v6] = multicast::SWITCH_KEYS;
    ["exclude_ips", "ipv6_prefix", "subnet", snoop, querier, mac, v4, v6]
};

/// The rows of node `name`; none while it has no subnet, or if it belongs to another zone.
pub fn node(store: &Store, name: &str) -> RowSet {
    let Some(node) =
        store.node(name).filter(|node| !node.subnets.is_empty() && store.is_local(name))
    else {
        return Vec::new();
    };
    let mut rows = vec![switch(node, store)];
    if store.is_linked(node) {
        rows.push(port_to_router(node, &store.config));
        rows.extend(router_port(node, store));
    }
    rows.extend(management_port(node));
    rows.extend(
        ovn::managements(&node.subnets).iter().map(|net| allow_from_node(node, net.addr())),
    );
    rows.extend(routes_to_hosts(node, store.knows_gateway(node)));
    rows.extend(answers_to_forwarded(node, &store.config));
    rows
}

/// The switch of the node's pods.
fn switch(node: &Node, store: &Store) -> DesiredRow {
    let mut config = multicast::of_switch(store, &node.subnets);
    for subnet in &node.subnets {
        match subnet {
            IpNet::V4(v4) => config.insert("subnet", v4.to_string()),
            IpNet::V6(v6) => config.insert("ipv6_prefix", v6.network().to_string()),
        };
    }
    // The controller assigns addresses, not OVN, so `exclude_ips` has no use. With the management
    // port's address in it, ovn-northd would log that address as a duplicate. The key of a family
    // that the node does not have is removed, too, and so are those of multicast without it.
    let groups = [ovn::CLUSTER_LB_GROUP, ovn::SWITCH_LB_GROUP]
        .map(|group| Table::LoadBalancerGroup.row(group));
    DesiredRow {
        id: Table::LogicalSwitch.row(ovn::node_switch(&node.name)),
        columns: vec![
            ("other_config", Value::pairs(Pairs { without: &SWITCH_KEYS, ..config.into() })),
            ("load_balancer_group", Value::Including(groups.into())),
        ],
        member_of: Vec::new(),
        or_member_of: Vec::new(),
        or_columns: Vec::new(),
        needs: Vec::new(),
    }
}

/// The switch's side of the link to the cluster router.
fn port_to_router(node: &Node, config: &ClusterConfig) -> DesiredRow {
    let arp_proxy = config
        .cluster_subnets
        .iter()
        .fold(ARP_PROXY.to_owned(), |text, subnet| format!("{text} {}", subnet.cidr));
    let kind = Kind::Router { port: ovn::router_to_switch(&node.name) };
    let groups = match config.multicast {
        Multicast::Off => Vec::new(),
        Multicast::On => vec![port_group(ovn::ROUTER_PORT_GROUP)],
    };
    SwitchPort {
        options: [("arp_proxy", arp_proxy)].into(),
        groups,
        ..SwitchPort::new(ovn::node_switch(&node.name), ovn::switch_to_router(&node.name), kind)
    }
    .into()
}

/// The router's side of that link, pinned to the node; none while the node's chassis is unknown.
///
/// Without the pin, every ovn-controller would compute the flows of every node's switch.
///
/// Packets are lost for some milliseconds when it is pinned: other nodes redirect to it before it
/// takes them. The pods of a cluster of 2018, whose router ports are not, are spared that.
fn router_port(node: &Node, store: &Store) -> Vec<DesiredRow> {
    let networks = ovn::gateways(&node.subnets);
    let mac = node.router_mac.or_else(|| ovn::port_mac(&networks));
    let (Some(chassis), Some(mac)) = (&node.chassis, mac) else {
        return Vec::new();
    };
    let name = ovn::router_to_switch(&node.name);
    let port = RouterPort {
        router: ovn::CLUSTER_ROUTER.to_owned(),
        name: name.clone(),
        mac,
        networks,
        options: Pairs::default(),
        external_ids: Pairs::default(),
    };
    let mut rows = vec![port.into()];
    if node.router_mac.is_none() || !store.has_pods_of_2018(&node.name) {
        rows.push(GatewayChassis { router_port: name, chassis: chassis.clone() }.into());
    }
    rows
}

/// The node's management port on its switch.
fn management_port(node: &Node) -> Option<DesiredRow> {
    let addresses = ovn::managements(&node.subnets);
    // Derived from the first subnet's address, whatever its family. The node side computes the same
    // MAC.
    let mac =
        node.management_mac.or_else(|| addresses.first().map(|net| Mac::from_ip(net.addr())))?;
    let kind = Kind::Interface { addresses: port_addresses(mac, &addresses) };
    let port = SwitchPort {
        groups: vec![port_group(ovn::CLUSTER_PORT_GROUP)],
        ..SwitchPort::new(ovn::node_switch(&node.name), ovn::management_port(&node.name), kind)
    };
    Some(port.into())
}

/// Allows traffic from the node to its pods: network policies must not block a kubelet's probes.
fn allow_from_node(node: &Node, management: IpAddr) -> DesiredRow {
    let family = if management.is_ipv4() { "ip4" } else { "ip6" };
    Acl {
        id: ObjectId::allow_from_node(&node.name, management),
        of: Table::LogicalSwitch.row(ovn::node_switch(&node.name)),
        direction: Direction::ToPort,
        tier: Tier::NetworkPolicy,
        priority: ALLOW,
        matching: format!("{family}.src=={management}"),
        action: Action::AllowRelated,
        log: None,
        needs: Vec::new(),
    }
    .into()
}

/// Routes for what the node's pods send to addresses outside of the overlay, such as the API
/// server's, which is a host: to the management port, from where the host forwards it.
///
/// With a shared gateway such packets leave through the node's gateway router, by a route of the
/// same source. A second one would take half of them. A disabled gateway has none on purpose.
fn routes_to_hosts(node: &Node, knows_gateway: bool) -> Vec<DesiredRow> {
    let over_management_port = match node.gateway {
        // A node that is taken over from 2018 has its gateway, or another node's, until its server
        // comes.
        None => knows_gateway && (node.chassis.is_some() || node.router_mac.is_none()),
        Some(GatewayMode::Local) => true,
        Some(GatewayMode::Shared | GatewayMode::Disabled) => false,
    };
    let subnets = node.subnets.iter().filter(|_| over_management_port);
    let route = |subnet: &IpNet| {
        let via = ovn::management(subnet)?.addr();
        Some(StaticRoute::from(ovn::CLUSTER_ROUTER, *subnet, via).into())
    };
    subnets.filter_map(route).collect()
}

/// Routes for the answers of pods to what the node's host has forwarded, back to the host.
///
/// The host has another source for these connections than for its own, which [`allow_from_node`]
/// lets past all policies. The routes are there only if the host asks for them: upstream's does
/// not.
fn answers_to_forwarded(node: &Node, config: &ClusterConfig) -> Vec<DesiredRow> {
    let sources = node.forwarded_sources(&config.join_subnets);
    let route = |source: IpAddr| {
        let mut managements = ovn::managements(&node.subnets).into_iter().map(|net| net.addr());
        let via = managements.find(|management| management.is_ipv4() == source.is_ipv4())?;
        let mark = BTreeMap::from([(FORWARDED_ROUTE, String::new())]);
        Some(StaticRoute {
            external_ids: mark,
            ..StaticRoute::to(ovn::CLUSTER_ROUTER, source.into(), via)
        })
    };
    sources.into_iter().filter_map(route).map(DesiredRow::from).collect()
}
