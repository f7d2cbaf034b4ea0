//! The rows of a node's gateway: its gateway router, the switch that stands for the physical
//! network, and the ways between the cluster router, the gateway router and the node itself.
//!
//! ```text
//! cluster router ── join switch ── GR_<node> ── ext_<node> ── <bridge>_<node>: the node's bridge
//! ```

use std::{collections::BTreeMap, net::IpAddr};

use contract::{mac::Mac, node_annotation::GatewayMode, ovn};
use ipnet::IpNet;

use crate::{
    config::{ClusterConfig, Masquerade},
    kinds::node::object::Gateway,
    rows::{
        DesiredRow, Pairs, RouterPolicy, RouterPort, RowSet, SourceNat, StaticMacBinding,
        StaticRoute, SwitchPort, Table, Value, port_group::bare, switch_port::Kind,
    },
    world::Store,
};

/// Seconds after which a MAC address that a gateway router has learned is asked for again:
/// upstream's value. Without it, each address that ever answered stays in the southbound database.
const MAC_AGE: u32 = 300;
/// Priority of the policies for a node's own addresses, as upstream's: before those of egress
/// addresses.
pub(crate) const TO_OWN_NODE: i64 = 1004;
/// Marks the route that leads answers back to the node's masquerade addresses.
pub(crate) const MASQUERADE_ROUTE: &str = "k8s.ovn.org/node-masquerade-subnet";
const MARK_OF_EXTERNAL_PORT: (&str, &str) = ("gateway-physical-ip", "yes");

/// The option of a router that does not know its neighbours beforehand.
const DYNAMIC_NEIGHBOURS: &str = "dynamic_neigh_routers";

/// The rows of the gateway of node `name`; none while the node has none, or while what they derive
/// from is not known. [`Store::kept`] tells these two apart.
pub fn gateway(store: &Store, name: &str) -> RowSet {
    let Some(gateway) = store.gateway(name) else { return Vec::new() };
    let config = &store.config;
    let mut rows = vec![router(&gateway)];
    rows.extend(to_join_switch(&gateway, config));
    rows.extend(to_physical_network(&gateway));
    rows.extend(routes(&gateway, config));
    rows.extend(masquerade_neighbours(&gateway, config));
    rows.extend(translations(&gateway, config));
    rows.extend(ways_from_cluster(&gateway));
    rows.extend(ways_to_node(&gateway));
    rows
}

/// The gateway router, on the node's chassis.
fn router(gateway: &Gateway<'_>) -> DesiredRow {
    let addresses: Vec<String> =
        gateway.external.addresses.iter().map(|net| net.addr().to_string()).collect();
    let first = addresses.first().cloned().unwrap_or_default();
    let groups = [ovn::CLUSTER_LB_GROUP]
        .into_iter()
        .chain(gateway.node.node_ports.then_some(ovn::ROUTER_LB_GROUP));
    let options = [
        // As for the cluster router: nothing is learned from a question.
        ("always_learn_from_arp_request", "false".to_owned()),
        // Neighbours on the join switch are asked for when they are needed. Otherwise each pair of
        // gateway routers has a flow. Upstream's, with one node on each join switch, has no use for
        // it since 2026.
        (DYNAMIC_NEIGHBOURS, "true".to_owned()),
        ("chassis", gateway.chassis.to_owned()),
        // Answers of an endpoint on another node have to come back through this router.
        ("lb_force_snat_ip", "router_ip".to_owned()),
        ("mac_binding_age_threshold", MAC_AGE.to_string()),
        // The zone of the host: a connection is translated once, whoever began it.
        ("snat-ct-zone", "0".to_owned()),
    ];
    let alike = [(DYNAMIC_NEIGHBOURS, "false".to_owned())].into();
    DesiredRow {
        columns: vec![
            ("options", Value::pairs(Pairs { alike, ..options.into() })),
            (
                "external_ids",
                Value::pairs([("physical_ip", first), ("physical_ips", addresses.join(","))]),
            ),
            ("copp", Value::References(vec![Table::Copp.row(ovn::COPP)])),
            (
                "load_balancer_group",
                Value::References(
                    groups.map(|group| Table::LoadBalancerGroup.row(group)).collect(),
                ),
            ),
        ],
        ..bare(Table::LogicalRouter.row(&*gateway.router))
    }
}

/// The link between the join switch and the gateway router.
fn to_join_switch(gateway: &Gateway<'_>, config: &ClusterConfig) -> Vec<DesiredRow> {
    let Some(mac) = ovn::port_mac(&gateway.join) else { return Vec::new() };
    let (to_join, to_router) =
        (ovn::router_to_join(&gateway.router), ovn::join_to_router(&gateway.router));
    // What is larger than the overlay can carry is answered (ICMP "fragmentation needed", "packet
    // too big").
    let mtu =
        gateway.node.answers_large_packets.then(|| ("gateway_mtu", config.mtu.bytes().to_string()));
    let without: &[_] = if mtu.is_none() { &["gateway_mtu"] } else { &[] };
    let options = Pairs { with: mtu.into_iter().collect(), without, ..Pairs::default() };
    vec![
        RouterPort {
            router: gateway.router.clone(),
            name: to_join.clone(),
            mac,
            networks: gateway.join.clone(),
            options,
            external_ids: Pairs::default(),
        }
        .into(),
        SwitchPort::new(ovn::JOIN_SWITCH, to_router, Kind::Router { port: to_join }).into(),
    ]
}

/// The switch that stands for the physical network, with the gateway router and the node's bridge
/// on it.
fn to_physical_network(gateway: &Gateway<'_>) -> Vec<DesiredRow> {
    let external = gateway.external;
    let switch = ovn::external_switch(&gateway.node.name);
    let port = ovn::router_to_external(&gateway.router);
    let bridge = Kind::Localnet { network: ovn::PHYSICAL_NETWORK, vlan: external.vlan };
    let to_router = Kind::Gateway { port: port.clone(), mac: external.mac };
    let (key, value) = MARK_OF_EXTERNAL_PORT;
    vec![
        RouterPort {
            router: gateway.router.clone(),
            name: port,
            mac: external.mac,
            networks: external.addresses.clone(),
            options: Pairs::default(),
            external_ids: [(key, value.to_owned())].into(),
        }
        .into(),
        bare(Table::LogicalSwitch.row(&*switch)),
        SwitchPort::new(&*switch, &*external.interface, bridge).into(),
        SwitchPort::new(&*switch, ovn::external_to_router(&gateway.router), to_router).into(),
    ]
}

/// The gateway router's routes: to pods, to the node's masquerade addresses, and to everything
/// else.
fn routes(gateway: &Gateway<'_>, config: &ClusterConfig) -> Vec<DesiredRow> {
    let port = ovn::router_to_external(&gateway.router);
    let to = |prefix, via| StaticRoute::to(&*gateway.router, prefix, via);
    let mut routes = Vec::new();
    for join in &gateway.join {
        let Some(cluster_router) = ovn::gateway(join) else { continue };
        let of_family = config
            .cluster_subnets
            .iter()
            .map(|subnet| subnet.cidr)
            .filter(|net| alike(net.addr(), join.addr()));
        routes.extend(of_family.map(|subnet| to(subnet, cluster_router.addr())));
    }
    for (subnet, next_hop) in config.masquerade.iter().zip(config.masquerade(Masquerade::NextHop)) {
        if gateway.has_family(next_hop) {
            routes.push(StaticRoute {
                port: Some(port.clone()),
                external_ids: BTreeMap::from([(MASQUERADE_ROUTE, String::new())]),
                ..to(*subnet, next_hop)
            });
        }
    }
    routes.extend(
        gateway
            .external
            .next_hops
            .iter()
            .filter(|hop| gateway.has_family(**hop))
            .map(|hop| StaticRoute { port: Some(port.clone()), ..to(everything(*hop), *hop) }),
    );
    routes.into_iter().map(DesiredRow::from).collect()
}

/// The MAC address of the next hop towards the node. No program answers ARP for that address.
fn masquerade_neighbours(gateway: &Gateway<'_>, config: &ClusterConfig) -> Vec<DesiredRow> {
    let neighbours =
        config.masquerade(Masquerade::NextHop).into_iter().filter(|hop| gateway.has_family(*hop));
    let binding = |neighbour| StaticMacBinding {
        router_port: ovn::router_to_external(&gateway.router),
        neighbour,
        mac: Mac::from_ip(neighbour),
    };
    neighbours.map(|neighbour| binding(neighbour).into()).collect()
}

/// The translation of one pod's address, where each pod has its own
/// (`--disable-snat-multiple-gws`): a pod that leaves by another gateway than its node's can do
/// without.
pub fn of_pod(store: &Store, node: &str, inside: IpAddr) -> RowSet {
    let Some(gateway) = store.gateway(node).filter(|_| store.is_translated(node, inside)) else {
        return Vec::new();
    };
    let outside =
        gateway.external.addresses.iter().map(IpNet::addr).find(|outside| alike(*outside, inside));
    let nat =
        |outside| SourceNat { router: gateway.router.clone(), inside: inside.into(), outside };
    outside.map(|outside| nat(outside).into()).into_iter().collect()
}

/// Pods, and the gateway router itself, leave with the node's address. The router's own address
/// matters for its ICMP answers to what a pod has sent.
fn translations(gateway: &Gateway<'_>, config: &ClusterConfig) -> Vec<DesiredRow> {
    let mut rows = Vec::new();
    for outside in gateway.external.addresses.iter().map(IpNet::addr) {
        let own = gateway.join.iter().map(|join| IpNet::from(join.addr()));
        let pods = config
            .cluster_subnets
            .iter()
            .filter(|_| !config.snat_per_pod)
            .map(|subnet| subnet.cidr);
        rows.extend(own.chain(pods).filter(|inside| alike(inside.addr(), outside)).map(|inside| {
            DesiredRow::from(SourceNat { router: gateway.router.clone(), inside, outside })
        }));
    }
    rows
}

/// The cluster router's routes to the gateway router; in shared mode, also those of the node's
/// pods.
fn ways_from_cluster(gateway: &Gateway<'_>) -> Vec<DesiredRow> {
    let mut routes = Vec::new();
    for join in gateway.join.iter().map(IpNet::addr) {
        routes.push(StaticRoute::to(ovn::CLUSTER_ROUTER, join.into(), join));
        let subnets = gateway.node.subnets.iter().filter(|subnet| alike(subnet.addr(), join));
        match gateway.mode {
            GatewayMode::Shared => {
                routes.extend(
                    subnets.map(|subnet| StaticRoute::from(ovn::CLUSTER_ROUTER, *subnet, join)),
                );
            }
            // In local mode they leave through the management port (`node::routes_to_hosts`).
            GatewayMode::Local | GatewayMode::Disabled => {}
        }
    }
    routes.into_iter().map(DesiredRow::from).collect()
}

/// The node's pods reach the node's own addresses through its management port. Behind the gateway
/// router, the node's address is the router's own.
fn ways_to_node(gateway: &Gateway<'_>) -> Vec<DesiredRow> {
    let node = gateway.node;
    let own = gateway.external.addresses.iter().map(IpNet::addr);
    let others: &[IpAddr] = match gateway.mode {
        // Whatever is not the cluster's goes through the management port.
        GatewayMode::Local => &[],
        GatewayMode::Shared | GatewayMode::Disabled => &node.host_addresses,
    };
    let mut addresses: Vec<IpAddr> = others.iter().copied().chain(own).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let managements = ovn::managements(&node.subnets);
    let policy = |address: IpAddr| {
        let via =
            managements.iter().map(IpNet::addr).find(|management| alike(*management, address))?;
        Some(RouterPolicy {
            router: ovn::CLUSTER_ROUTER,
            priority: TO_OWN_NODE,
            matching: to_own_node(&node.name, address),
            via,
        })
    };
    addresses.into_iter().filter_map(policy).map(DesiredRow::from).collect()
}

/// The match of a policy for one of the node's addresses.
pub(crate) fn to_own_node(node: &str, address: IpAddr) -> String {
    let family = if address.is_ipv4() { "ip4" } else { "ip6" };
    format!(
        "inport == \"{}\" && {family}.dst == {address} /* {node} */",
        ovn::router_to_switch(node)
    )
}

fn alike(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

/// All addresses of the family.
fn everything(address: IpAddr) -> IpNet {
    IpNet::new(address, 0).map_or_else(|_| address.into(), |net| net.trunc())
}
