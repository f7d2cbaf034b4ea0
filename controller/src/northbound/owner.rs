//! The owner of a row, by the names and ids that this controller gives (as upstream's programs do), never by
//! the current state of the cluster.
//!
//! | row | owner |
//! |---|---|
//! | switch port `<ns>_<pod>` with `pod=true` and `namespace=<ns>`, of the cluster's own network | the pod |
//! | switch port `stor-X`, `k8s-X`; router port `rtos-X`; its gateway chassis `rtos-X-…` | node X |
//! | ACL with the id `default-network-controller:NetpolNode:X:…` | node X |
//! | route of the cluster router by source, from a subnet via its `.2`, where such an ACL of X names `.2` | node X |
//! | switch that holds `stor-X` or `k8s-X` and is named X, or has `stor-X` as a port to `rtos-X` | node X |
//! | load balancer with `k8s.ovn.org/kind=Service` and `k8s.ovn.org/owner=<ns>/<name>`, of the cluster's own network | the Service |
//! | variables of a chassis, one of which is `NODEIP_…` or `Service_…` | the chassis |
//! | rows that exist once in a cluster | the cluster |
//! | every other row | none: the row is foreign and never written |
//!
//! `pod` and `namespace` are keys in the port's `external_ids`.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use contract::{names::PodKey, ovn};
use ipnet::IpNet;
use ovsdb::{Replica, Uuid};

use super::index::Index;
use crate::{
    desired::templates::NODE_ADDRESS,
    key::Key,
    rows::{
        RowName, Table,
        static_route::BY_SOURCE,
        table::{ChassisTemplateVar, LoadBalancer, LogicalSwitchPort, StaticRoute},
    },
};

/// What a row's name, ids and holders say about its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    Foreign,
    /// The name is one that this key may want, so the key may take the row over. Until then the row is
    /// foreign.
    Named(Key),
    Ours(Key),
}

impl Claim {
    /// The key that becomes dirty when the row changes.
    pub(crate) fn key(&self) -> Option<&Key> {
        match self {
            Self::Foreign => None,
            Self::Named(key) | Self::Ours(key) => Some(key),
        }
    }

    pub(crate) fn owner(&self) -> Option<&Key> {
        match self {
            Self::Foreign | Self::Named(_) => None,
            Self::Ours(key) => Some(key),
        }
    }
}

/// The rule above, with the names of the rows that exist once in a cluster.
#[derive(Debug, Default)]
pub(super) struct Owners(HashMap<Table, HashSet<Arc<str>>>);

const SWITCH_TO_ROUTER: &str = "stor-";
const ROUTER_TO_SWITCH: &str = "rtos-";
const MANAGEMENT: &str = "k8s-";
const NODE_ACL: &str = "default-network-controller:NetpolNode:";

/// Whether a switch port with this name makes its switch a node's.
pub(super) fn is_of_node(name: &str) -> bool {
    name.starts_with(SWITCH_TO_ROUTER) || name.starts_with(MANAGEMENT)
}

/// The node and the address in the id of an ACL that allows traffic from a node.
pub(super) fn of_node_acl(id: &str) -> Option<(&str, &str)> {
    id.strip_prefix(NODE_ACL)?.split_once(':')
}

fn node(name: &str) -> Option<Key> {
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    plain.then(|| Key::Node(Arc::from(name)))
}

impl Owners {
    /// `fixed`: the rows that exist once in a cluster.
    pub(super) fn new(fixed: impl IntoIterator<Item = RowName>) -> Self {
        let mut names: HashMap<_, HashSet<_>> = HashMap::new();
        for row in fixed {
            names.entry(row.table).or_default().insert(row.path().into());
        }
        Self(names)
    }

    /// The claim on a row, by its name, its ids and its holders.
    pub(super) fn claim(&self, replica: &Replica, index: &Index, table: Table, uuid: Uuid) -> Claim {
        let Some(name) = index.name(uuid) else { return Claim::Foreign };
        if self.0.get(&table).is_some_and(|names| names.contains(&**name)) {
            return Claim::Ours(Key::Cluster);
        }
        let ours = |key: Option<Key>| key.map_or(Claim::Foreign, Claim::Ours);
        match table {
            Table::LogicalSwitchPort => replica.row(uuid).map_or(Claim::Foreign, switch_port),
            Table::LogicalSwitch => switch(replica, index, uuid, name),
            Table::LogicalRouterPort => ours(name.strip_prefix(ROUTER_TO_SWITCH).and_then(node)),
            Table::Acl => ours(of_node_acl(name).and_then(|(of, _)| node(of))),
            // Its name is `<router port>-<chassis>`, and the router port's name contains the node's.
            Table::GatewayChassis => {
                let ports = index.parents(uuid).iter().filter_map(|parent| index.name(parent.row));
                let of_port = ports
                    .filter(|port| name.strip_prefix(&***port).is_some_and(|rest| rest.starts_with('-')));
                ours(of_port.filter_map(|port| port.strip_prefix(ROUTER_TO_SWITCH)).find_map(node))
            }
            Table::StaticRoute => ours(route(replica, index, uuid)),
            // A band has no identity of its own. The key of its meter has to compare it when it changes.
            Table::MeterBand => {
                let key = index.parents(uuid).iter().find_map(|parent| index.claim(parent.row).owner());
                key.cloned().map_or(Claim::Foreign, Claim::Named)
            }
            Table::LoadBalancer => replica.row(uuid).map_or(Claim::Foreign, |row| load_balancer(row, name)),
            Table::ChassisTemplateVar => variables(replica.row(uuid), name),
            Table::LoadBalancerGroup
            | Table::Copp
            | Table::Meter
            | Table::LogicalRouter
            | Table::PortGroup
            | Table::AddressSet => Claim::Foreign,
        }
    }
}

/// A row with a variable of a node's address or of a Service.
fn variables(row: Option<&ChassisTemplateVar>, chassis: &Arc<str>) -> Claim {
    let key = Key::Chassis(Arc::clone(chassis));
    let is_ours = |name: &str| name.starts_with(NODE_ADDRESS) || name.starts_with(ovn::SERVICE_PREFIX);
    if row.is_some_and(|row| row.variables.iter().any(|(name, _)| is_ours(name))) {
        return Claim::Ours(key);
    }
    Claim::Named(key)
}

fn load_balancer(row: &LoadBalancer, name: &str) -> Claim {
    let id = |id: &str| row.external_ids.get(id);
    if id("k8s.ovn.org/network").is_some() {
        return Claim::Foreign;
    }
    if id(ovn::KIND) == Some(ovn::SERVICE)
        && let Some(service) = id(ovn::OWNER).and_then(|owner| owner.parse().ok())
    {
        return Claim::Ours(Key::Service(service));
    }
    // Its ids are gone. No name of a Service has an underscore.
    let named = name.strip_prefix(ovn::SERVICE_PREFIX).and_then(|rest| rest.split('_').next()?.parse().ok());
    named.map_or(Claim::Foreign, |service| Claim::Named(Key::Service(service)))
}

fn switch_port(port: &LogicalSwitchPort) -> Claim {
    // Pods first: a namespace may begin with `stor-` or `k8s-`, but no name of a node has an underscore.
    if let Some((namespace, name)) = port.name.split_once('_') {
        let Ok(key) = PodKey::new(namespace, name) else { return Claim::Foreign };
        let id = |id: &str| port.external_ids.get(id);
        let of_another_network = id("k8s.ovn.org/nad").is_some() || id("k8s.ovn.org/network").is_some();
        // A port of another network, or of another program, may have such a name, too.
        let certain = id("pod") == Some("true") && id("namespace") == Some(namespace) && !of_another_network;
        return if certain { Claim::Ours(Key::Pod(key)) } else { Claim::Named(Key::Pod(key)) };
    }
    let rest = port.name.strip_prefix(SWITCH_TO_ROUTER).or_else(|| port.name.strip_prefix(MANAGEMENT));
    rest.and_then(node).map_or(Claim::Foreign, Claim::Ours)
}

/// The node to whose management port the route leads. A route has neither name nor id, so it has to be of the
/// form that this controller gives to its own.
fn route(replica: &Replica, index: &Index, uuid: Uuid) -> Option<Key> {
    let route: &StaticRoute = replica.row(uuid)?;
    let (from, via): (IpNet, IpAddr) = (route.ip_prefix.parse().ok()?, route.nexthop.parse().ok()?);
    let is_way_to_host = route.policy.as_deref() == Some(BY_SOURCE)
        && ovn::management(&from).is_some_and(|management| management.addr() == via);
    let in_cluster_router = index
        .parents(uuid)
        .iter()
        .any(|parent| index.name(parent.row).is_some_and(|name| **name == *ovn::CLUSTER_ROUTER));
    (is_way_to_host && in_cluster_router).then(|| index.node_at(via)).flatten().and_then(node)
}

fn switch(replica: &Replica, index: &Index, uuid: Uuid, name: &str) -> Claim {
    let holds = |port: &Uuid| index.parents(*port).iter().any(|parent| parent.row == uuid);
    let holds =
        |prefix: &str| index.named(Table::LogicalSwitchPort, &format!("{prefix}{name}")).iter().any(holds);
    if holds(SWITCH_TO_ROUTER) || holds(MANAGEMENT) {
        return node(name).map_or(Claim::Foreign, Claim::Ours);
    }
    // A node's switch that was renamed: its port to the router still names the node.
    let renamed = index.node_ports(uuid).find_map(|port| {
        let of = index.name(port)?.strip_prefix(SWITCH_TO_ROUTER)?;
        let port: &LogicalSwitchPort = replica.row(port)?;
        let leads_to = port.options.get("router-port")?.strip_prefix(ROUTER_TO_SWITCH)?;
        if *port.kind == *"router" && leads_to == of { node(of) } else { None }
    });
    match renamed {
        Some(key) => Claim::Ours(key),
        None => node(name).map_or(Claim::Foreign, Claim::Named),
    }
}
