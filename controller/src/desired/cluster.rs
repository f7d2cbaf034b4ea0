//! The rows that a cluster has once: the router of all nodes, and what it needs.

use contract::ovn::{self, ObjectId};

use crate::{
    config::ClusterConfig,
    rows::{DesiredRow, Meter, Pairs, RouterPort, RowName, RowSet, SwitchPort, Table, Value, switch_port::Kind},
    store::Store,
};

/// What ovn-controller itself has to look at, and so may be flooded with.
const LIMITED_PROTOCOLS: [&str; 9] =
    ["arp", "arp-resolve", "bfd", "event-elb", "icmp4-error", "icmp6-error", "reject", "tcp-reset", "svc-monitor"];
/// Packets a second of each of them, on each chassis.
const PROTOCOL_RATE: u32 = 25;

/// The cluster's own rows. They depend on the options alone.
pub fn cluster(store: &Store) -> RowSet {
    let mut rows = Vec::new();
    rows.extend(load_balancer_groups());
    rows.extend(rate_limits(&store.config));
    rows.push(router());
    rows.extend(port_groups());
    rows.extend(join_switch(&store.config));
    rows
}

/// Groups by which a load balancer comes to all switches and routers with one reference.
fn load_balancer_groups() -> impl Iterator<Item = DesiredRow> {
    [ovn::CLUSTER_LB_GROUP, ovn::SWITCH_LB_GROUP, ovn::ROUTER_LB_GROUP].map(|name| bare(Table::LoadBalancerGroup.row(name))).into_iter()
}

/// What ovn-controller has to look at, and lines about ACLs, are limited.
fn rate_limits(config: &ClusterConfig) -> Vec<DesiredRow> {
    let meters = LIMITED_PROTOCOLS.map(|protocol| Meter { name: ovn::protocol_meter(protocol), packets_per_second: PROTOCOL_RATE });
    let acls = Meter { name: ovn::ACL_METER.to_owned(), packets_per_second: config.acl_logging_rate_limit };
    let names = LIMITED_PROTOCOLS.map(|protocol| (protocol, ovn::protocol_meter(protocol)));
    let copp = DesiredRow { columns: vec![("meters", Value::Pairs(names.into()))], ..bare(Table::Copp.row(ovn::COPP)) };
    meters.into_iter().chain([acls]).map(DesiredRow::from).chain([copp]).collect()
}

/// The router that all nodes' switches are ports of.
fn router() -> DesiredRow {
    // A router that learns from every ARP request has a binding for every pair of pods that ever talked.
    DesiredRow {
        columns: vec![
            ("options", Value::Pairs([("always_learn_from_arp_request", "false".to_owned())].into())),
            ("external_ids", Value::Pairs([("k8s-cluster-router", "yes".to_owned())].into())),
            ("copp", Value::References(vec![Table::Copp.row(ovn::COPP)])),
        ],
        ..bare(Table::LogicalRouter.row(ovn::CLUSTER_ROUTER))
    }
}

/// Groups that make a rule one of all nodes' switches: of their management ports, and of their ports to the router.
fn port_groups() -> impl Iterator<Item = DesiredRow> {
    [ovn::CLUSTER_PORT_GROUP, ovn::ROUTER_PORT_GROUP].into_iter().map(|name| DesiredRow {
        columns: vec![("external_ids", Value::Pairs(ObjectId::cluster_port_group(name).external_ids().into()))],
        ..bare(port_group(name))
    })
}

/// The cluster's port group of that base name.
pub(super) fn port_group(name: &str) -> RowName {
    Table::PortGroup.row(ObjectId::cluster_port_group(name).hashed())
}

/// The switch to the nodes' gateway routers, and the cluster router's port there: the first address of each join subnet.
fn join_switch(config: &ClusterConfig) -> Vec<DesiredRow> {
    let networks = ovn::gateways(&config.join_subnets);
    let (to_join, to_router) = (ovn::router_to_join(ovn::CLUSTER_ROUTER), ovn::join_to_router(ovn::CLUSTER_ROUTER));
    let Some(mac) = ovn::port_mac(&networks) else { return Vec::new() };
    vec![
        bare(Table::LogicalSwitch.row(ovn::JOIN_SWITCH)),
        RouterPort { router: ovn::CLUSTER_ROUTER, name: to_join.clone(), mac, networks, options: Pairs::default() }.into(),
        SwitchPort::new(ovn::JOIN_SWITCH, to_router, Kind::Router { port: to_join }).into(),
    ]
}

/// A row of which only the name matters.
fn bare(id: RowName) -> DesiredRow {
    DesiredRow { id, columns: Vec::new(), member_of: Vec::new() }
}
