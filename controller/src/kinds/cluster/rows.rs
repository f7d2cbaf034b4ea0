//! The rows that a cluster has once: the cluster router and what belongs to it.

use std::collections::BTreeMap;

use contract::ovn::{self, ObjectId};
use ipnet::IpNet;
use kubeapi::services::Family;

use crate::{
    config::{ClusterConfig, Multicast},
    kinds::cluster::{multicast_rows::of_cluster, tiers::next_tiers},
    legacy,
    rows::{
        Acl, DesiredRow, Meter, Pairs, RouterPort, RowSet, Sharing, SwitchPort, Table, Value,
        acl::{ALLOW, Action, Tier},
        multicast::RELAY,
        port_group::{bare, port_group},
        switch_port::Kind,
    },
    select::{
        matching::{either, ip, side},
        peer::Direction,
    },
    world::Store,
};

/// Kinds of packets that OVN passes to ovn-controller, which can be flooded with them (ovn-nb(5),
/// "Copp TABLE").
const LIMITED_PROTOCOLS: [&str; 9] = [
    "arp",
    "arp-resolve",
    "bfd",
    "event-elb",
    "icmp4-error",
    "icmp6-error",
    "reject",
    "tcp-reset",
    "svc-monitor",
];
/// Packets per second of each kind, on each chassis: upstream's value. A higher one lets a flood
/// cost ovn-controller more CPU; a lower one also drops ordinary ARP.
const PROTOCOL_RATE: u32 = 25;

/// The cluster's own rows. They depend only on the options.
pub fn cluster(store: &Store) -> RowSet {
    let mut rows = Vec::new();
    rows.extend(load_balancer_groups());
    rows.extend(rate_limits(&store.config));
    rows.extend(dry_runs_limit(store));
    rows.push(router(&store.config));
    rows.extend(port_groups());
    rows.extend(allow_hairpin(store));
    rows.extend(next_tiers(store));
    rows.extend(of_cluster(store));
    rows.extend(join_switch(&store.config));
    rows.extend(transit_switch(&store.config));
    rows
}

/// Groups that give a load balancer to all switches or all routers by one reference.
fn load_balancer_groups() -> impl Iterator<Item = DesiredRow> {
    [ovn::CLUSTER_LB_GROUP, ovn::SWITCH_LB_GROUP, ovn::ROUTER_LB_GROUP]
        .map(|name| bare(Table::LoadBalancerGroup.row(name)))
        .into_iter()
}

/// Meters: one per kind of packet for ovn-controller, and one for ACL log lines.
fn rate_limits(config: &ClusterConfig) -> Vec<DesiredRow> {
    let meters = LIMITED_PROTOCOLS
        .map(|protocol| meter(&ovn::protocol_meter(protocol), PROTOCOL_RATE, Sharing::Each));
    let acls = meter(ovn::ACL_METER, config.acl_logging_rate_limit, Sharing::Each);
    let names = LIMITED_PROTOCOLS.map(|protocol| (protocol, ovn::protocol_meter(protocol)));
    let copp = DesiredRow {
        columns: vec![("meters", Value::pairs(names))],
        ..bare(Table::Copp.row(ovn::COPP))
    };
    meters.into_iter().chain([acls]).map(DesiredRow::from).chain([copp]).collect()
}

/// The meter of all dry runs together, where there is one. A user may have thousands of them, each
/// of which logs without having been asked to by the owner of the namespace.
fn dry_runs_limit(store: &Store) -> Option<DesiredRow> {
    let rate = store.config.acl_logging_rate_limit;
    store.has_dry_runs().then(|| meter(ovn::DRY_RUN_METER, rate, Sharing::Together).into())
}

fn meter(name: &str, packets_per_second: u32, sharing: Sharing) -> Meter {
    Meter { name: name.to_owned(), packets_per_second, sharing }
}

/// The cluster router; the switch of each node has a port on it.
fn router(config: &ClusterConfig) -> DesiredRow {
    // A router that learns from every ARP request fills the southbound table `MAC_Binding`: with
    // enough pods, one row for each pair that ever talked.
    let learning = BTreeMap::from([("always_learn_from_arp_request", "false".to_owned())]);
    let options = match config.multicast {
        Multicast::Off => Pairs { without: &[RELAY], ..learning.into() },
        // Upstream's router with multicast has no such option, and stays as it is.
        Multicast::On => Pairs { initially: learning, ..[(RELAY, "true".to_owned())].into() },
    };
    DesiredRow {
        columns: vec![
            ("options", Value::pairs(options)),
            ("external_ids", Value::pairs([("k8s-cluster-router", "yes".to_owned())])),
            ("copp", Value::References(vec![Table::Copp.row(ovn::COPP)])),
        ],
        ..bare(Table::LogicalRouter.row(ovn::CLUSTER_ROUTER))
    }
}

/// Port groups for rules that concern all nodes: of the management ports, and of the switches'
/// ports to the router.
fn port_groups() -> impl Iterator<Item = DesiredRow> {
    [ovn::CLUSTER_PORT_GROUP, ovn::ROUTER_PORT_GROUP].into_iter().map(|name| DesiredRow {
        columns: vec![(
            "external_ids",
            Value::pairs(ObjectId::cluster_port_group(name).external_ids()),
        )],
        ..bare(port_group(name))
    })
}

/// The join switch, which leads to the nodes' gateway routers, and the cluster router's port on it.
/// The port has the first address of each join subnet.
fn join_switch(config: &ClusterConfig) -> Vec<DesiredRow> {
    let networks = ovn::gateways(&config.join_subnets);
    let (to_join, to_router) =
        (ovn::router_to_join(ovn::CLUSTER_ROUTER), ovn::join_to_router(ovn::CLUSTER_ROUTER));
    // The router port needs an address, so without join subnets there is no join switch.
    let Some(mac) = ovn::port_mac(&networks) else { return Vec::new() };
    let port = |networks: Vec<IpNet>| RouterPort {
        router: ovn::CLUSTER_ROUTER.to_owned(),
        name: to_join.clone(),
        mac,
        networks,
        options: Pairs::default(),
        external_ids: Pairs::default(),
    };
    // Gateway routers of 2018 have routes to the other address, as long as they are not taken over.
    let with_former = networks.iter().copied().chain([legacy::JOIN.into()]).collect();
    let is_in = |join: &IpNet| join.contains(&IpNet::from(legacy::JOIN));
    let or_columns = match config.join_subnets.iter().any(is_in) {
        true => DesiredRow::from(port(with_former)).columns,
        false => Vec::new(),
    };
    vec![
        bare(Table::LogicalSwitch.row(ovn::JOIN_SWITCH)),
        DesiredRow { or_columns, ..port(networks).into() },
        SwitchPort::new(ovn::JOIN_SWITCH, to_router, Kind::Router { port: to_join }).into(),
    ]
}

/// The switch between zones, which each zone's database has with the same tunnel key.
fn transit_switch(config: &ClusterConfig) -> Option<DesiredRow> {
    let pairs = [
        ("interconn-ts", ovn::TRANSIT_SWITCH.to_owned()),
        ("requested-tnl-key", ovn::TRANSIT_SWITCH_KEY.to_string()),
        ("mcast_snoop", "true".to_owned()),
        ("mcast_querier", "false".to_owned()),
        ("mcast_flood_unregistered", "true".to_owned()),
    ];
    let row = || DesiredRow {
        columns: vec![("other_config", Value::pairs(pairs))],
        ..bare(Table::LogicalSwitch.row(ovn::TRANSIT_SWITCH))
    };
    config.is_connected().then(row)
}

/// Lets pods reach themselves through a Service: the source is not the pod's address then.
pub(crate) fn allow_hairpin(store: &Store) -> Vec<DesiredRow> {
    let addresses = store.config.hairpin_addresses.iter();
    let sources: Vec<String> =
        addresses.map(|address| format!("{}.src == {address}", ip(Family::of(address)))).collect();
    if sources.is_empty() {
        return Vec::new();
    }
    let sources = either(sources);
    let acl = |direction: Direction| Acl {
        id: ObjectId::allow_hairpin(direction.as_str()),
        // A group with a port on each node's switch: a match that names no group counts on all of
        // them.
        of: port_group(ovn::CLUSTER_PORT_GROUP),
        direction: side(direction),
        tier: Tier::NetworkPolicy,
        priority: ALLOW,
        matching: sources.clone(),
        action: Action::AllowRelated,
        log: None,
        needs: Vec::new(),
    };
    Direction::ALL.into_iter().map(|direction| acl(direction).into()).collect()
}
