//! The owner of a row, by the names and ids that this controller gives (as upstream's programs do),
//! never by the current state of the cluster.
//!
//! | row | owner |
//! |---|---|
//! | switch port `<ns>_<pod>` with `pod=true` and `namespace=<ns>`, of the cluster's own network | the pod |
//! | switch port `stor-X`, `k8s-X`; router port `rtos-X`; its gateway chassis `rtos-X-…` | node X |
//! | ACL with the id `default-network-controller:NetpolNode:X:…` | node X |
//! | port group, and ACLs by their ids, of the kind `NetworkPolicy` | the policy |
//! | the same of the kinds `ClusterNetworkPolicy`, `AdminNetworkPolicy`, `BaselineAdminNetworkPolicy` | the policy |
//! | the same of the kind `NetpolNamespace` | isolation of the namespace |
//! | ACL by its ids, of the kind `EgressFirewall` | object of that kind of the namespace |
//! | QoS by its ids, of the kind `EgressQoS` | the same |
//! | the same of the kind `MulticastNS`; port group of the kind `Namespace` that holds one of these ACLs | the namespace |
//! | the same of the kinds `MulticastCluster`, `NextTier` | the cluster |
//! | ACL by its ids, of the kind `ServiceSourceRanges` | the Service |
//! | address set of the kinds `Namespace`, `PodSelector`, `NetpolNamedPort` | the set |
//! | the same of the kind `EgressQoS` | the set |
//! | the same of the kinds `NodeSelector`, `EgressFirewallDNS` | the set |
//! | route of the cluster router by source, from a subnet via its `.2`, where such an ACL of X names `.2` | node X |
//! | router `GR_X`; its ports `rtoj-GR_X` and `rtoe-GR_X`; switch `ext_X`; switch ports `jtor-GR_X` and `etor-GR_X` | gateway of X |
//! | localnet port in the switch `ext_X` | gateway of X |
//! | route in `GR_X`: of everything or with the mark of masquerade addresses, behind `rtoe-GR_X`; into `rtoj-GR_X`'s network | gateway of X |
//! | with `--enable-interconnect`: switch port `tstor-X`; router port `rtots-X` | transit of X |
//! | with the same: route of the cluster router with `ic-node=X` | transit of X |
//! | translation of sources in `GR_X`, without ids and match: of cluster subnets, and of the address of `rtoj-GR_X` | gateway of X |
//! | the same of a single other address in the cluster subnets, with the range of ports | source NAT of that address on X |
//! | neighbour of `rtoe-GR_X` at a masquerade address | gateway of X |
//! | route of the cluster router by source, or to a single address, via the address of `rtoj-GR_X` | gateway of X |
//! | policy of the cluster router, of the form that this controller gives to its own for X | gateway of X |
//! | switch that holds `stor-X` or `k8s-X` and is named X, or has `stor-X` as a port to `rtos-X` | node X |
//! | load balancer with `k8s.ovn.org/kind=Service` and `k8s.ovn.org/owner=<ns>/<name>`, of the cluster's own network | the Service |
//! | load balancer with `<protocol>_lb_gateway_router=GR_X` | gateway of X |
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

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKey, ClusterPolicyKind, PodKey, PolicyKey, ServiceKey},
    ovn,
};
use ipnet::IpNet;
use ovsdb::{Pairs, Replica, Uuid};

use crate::{
    config::ClusterConfig,
    engine::northbound::index::Index,
    key::{Key, NodeName},
    kinds::{
        node::{
            gateway_rows::{MASQUERADE_ROUTE, TO_OWN_NODE, to_own_node},
            rows::FORWARDED_ROUTE,
            transit_rows::{NETWORK, ROUTE_OF},
        },
        service::rows::variables::NODE_ADDRESS,
    },
    rows::{
        RowName, Table,
        nat::{PORTS, SOURCE},
        router_policy::REROUTE,
        static_route::BY_SOURCE,
        table::{
            Acl, AddressSet, ChassisTemplateVar, LoadBalancer, LogicalRouterPort,
            LogicalSwitchPort, Nat, PortGroup, Qos, RouterPolicy, StaticMacBinding, StaticRoute,
        },
    },
    select::set_rows as set,
};

/// What a row's name, ids and holders say about its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    Foreign,
    /// The name is one that this key may want, so the key may take the row over. Until then the row
    /// is foreign.
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

/// The rule above.
#[derive(Debug)]
pub(crate) struct Owners {
    /// The names of the rows that exist once in a cluster.
    fixed: HashMap<Table, HashSet<Arc<str>>>,
    cluster_subnets: Vec<IpNet>,
    masquerade: Vec<IpNet>,
    /// Without it, rows between zones are another program's.
    is_connected: bool,
    /// A node that is to be removed, with its gateway: no other program's plain translation stays
    /// of it.
    removed: Option<NodeName>,
}

const SWITCH_TO_ROUTER: &str = "stor-";
const ROUTER_TO_SWITCH: &str = "rtos-";
const MANAGEMENT: &str = "k8s-";
const TRANSIT_TO_ROUTER: &str = "tstor-";
const ROUTER_TO_TRANSIT: &str = "rtots-";
const ROUTER_TO_JOIN: &str = "rtoj-";
const JOIN_TO_ROUTER: &str = "jtor-";
const ROUTER_TO_EXTERNAL: &str = "rtoe-";
const EXTERNAL_TO_ROUTER: &str = "etor-";
/// End of the id, after the protocol, that names the gateway router of a load balancer of 2018.
const LB_OF_GATEWAY: &str = "_lb_gateway_router";
const NODE_ACL: &str = "default-network-controller:NetpolNode:";
/// Starts of the ids of ACLs that a cluster has once, or not at all.
const CLUSTER_ACLS: [&str; 2] =
    ["default-network-controller:MulticastCluster:", "default-network-controller:NextTier:"];

/// Whether a switch port with this name makes its switch a node's.
pub(crate) fn is_of_node(name: &str) -> bool {
    name.starts_with(SWITCH_TO_ROUTER) || name.starts_with(MANAGEMENT)
}

/// The node and the address in the id of an ACL that allows traffic from a node.
pub(crate) fn of_node_acl(id: &str) -> Option<(&str, &str)> {
    id.strip_prefix(NODE_ACL)?.split_once(':')
}

fn node(name: &str) -> Option<Key> {
    is_plain(name).then(|| Key::Node(Arc::from(name)))
}

fn gateway(of: &str) -> Option<Key> {
    is_plain(of).then(|| Key::Gateway(Arc::from(of)))
}

/// Whether a node may have this name. Routers of other networks have one with an underscore.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
}

/// The gateway in the name of a port of its router, or of a port that leads to its router.
fn of_gateway(name: &str, side: &str) -> Option<Key> {
    name.strip_prefix(side)?.strip_prefix(ovn::GATEWAY_ROUTER_PREFIX).and_then(gateway)
}

/// The node whose gateway router has this port on the join switch.
pub(crate) fn on_join_switch(port: &str) -> Option<&str> {
    port.strip_prefix(ROUTER_TO_JOIN)?.strip_prefix(ovn::GATEWAY_ROUTER_PREFIX)
}

impl Owners {
    /// `fixed`: the rows that exist once in a cluster.
    pub(crate) fn new(fixed: impl IntoIterator<Item = RowName>, config: &ClusterConfig) -> Self {
        let mut names: HashMap<_, HashSet<_>> = HashMap::new();
        for row in fixed {
            names.entry(row.table).or_default().insert(row.path().into());
        }
        Self {
            fixed: names,
            cluster_subnets: config.cluster_subnets.iter().map(|subnet| subnet.cidr).collect(),
            masquerade: config.masquerade.to_vec(),
            is_connected: config.is_connected(),
            removed: None,
        }
    }

    /// The same while this node is removed.
    pub(crate) fn removing(self, node: NodeName) -> Self {
        Self { removed: Some(node), ..self }
    }

    /// The claim on a row, by its name, its ids and its holders.
    pub(crate) fn claim(
        &self,
        replica: &Replica,
        index: &Index,
        table: Table,
        uuid: Uuid,
    ) -> Claim {
        let Some(name) = index.name(uuid) else { return Claim::Foreign };
        if self.fixed.get(&table).is_some_and(|names| names.contains(&**name)) {
            return Claim::Ours(Key::Cluster);
        }
        let ours = |key: Option<Key>| key.map_or(Claim::Foreign, Claim::Ours);
        if let Some(key) = self.transit(replica, index, table, uuid) {
            return Claim::Ours(key);
        }
        match table {
            Table::LogicalSwitchPort => {
                let localnet = localnet(replica, index, uuid);
                localnet.or_else(|| replica.row(uuid).map(switch_port)).unwrap_or(Claim::Foreign)
            }
            Table::LogicalSwitch => match name.strip_prefix(ovn::EXTERNAL_SWITCH_PREFIX) {
                Some(of) => ours(gateway(of)),
                None => switch(replica, index, uuid, name),
            },
            Table::LogicalRouter => {
                ours(name.strip_prefix(ovn::GATEWAY_ROUTER_PREFIX).and_then(gateway))
            }
            Table::LogicalRouterPort => {
                ours(name.strip_prefix(ROUTER_TO_SWITCH).and_then(node).or_else(|| {
                    [ROUTER_TO_JOIN, ROUTER_TO_EXTERNAL]
                        .into_iter()
                        .find_map(|side| of_gateway(name, side))
                }))
            }
            Table::Acl if CLUSTER_ACLS.iter().any(|start| name.starts_with(start)) => {
                Claim::Ours(Key::Cluster)
            }
            Table::Acl => ours(of_node_acl(name).and_then(|(of, _)| node(of)).or_else(|| {
                let row: &Acl = replica.row(uuid)?;
                of_ids(&row.external_ids)
            })),
            Table::PortGroup => {
                replica.row(uuid).map_or(Claim::Foreign, |row: &PortGroup| port_group(row, replica))
            }
            Table::Qos => ours(replica.row(uuid).and_then(qos)),
            Table::AddressSet => ours(replica.row(uuid).and_then(address_set)),
            // Its name is `<router port>-<chassis>`, and the router port's name contains the
            // node's.
            Table::GatewayChassis => {
                let ports = index.parents(uuid).iter().filter_map(|parent| index.name(parent.row));
                let of_port = ports.filter(|port| {
                    name.strip_prefix(&***port).is_some_and(|rest| rest.starts_with('-'))
                });
                ours(of_port.filter_map(|port| port.strip_prefix(ROUTER_TO_SWITCH)).find_map(node))
            }
            Table::StaticRoute => ours(route(replica, index, uuid)),
            Table::RouterPolicy => ours(replica.row(uuid).and_then(|row| policy(row, index, uuid))),
            Table::Nat => {
                let claim =
                    replica.row(uuid).and_then(|row| self.translation(row, replica, index, uuid));
                claim.unwrap_or(Claim::Foreign)
            }
            Table::StaticMacBinding => ours(replica.row(uuid).and_then(|row| self.neighbour(row))),
            // A band has no identity of its own. The key of its meter has to compare it when it
            // changes.
            Table::MeterBand => {
                let key =
                    index.parents(uuid).iter().find_map(|parent| index.claim(parent.row).owner());
                key.cloned().map_or(Claim::Foreign, Claim::Named)
            }
            Table::LoadBalancer => {
                replica.row(uuid).map_or(Claim::Foreign, |row| load_balancer(row, name))
            }
            Table::ChassisTemplateVar => variables(replica.row(uuid), name),
            Table::LoadBalancerGroup | Table::Copp | Table::Meter => Claim::Foreign,
        }
    }
}

impl Owners {
    /// The node that the row is about, of those between zones.
    fn transit(&self, replica: &Replica, index: &Index, table: Table, uuid: Uuid) -> Option<Key> {
        let name = index.name(uuid).filter(|_| self.is_connected)?;
        let of = if table == Table::LogicalSwitchPort {
            name.strip_prefix(TRANSIT_TO_ROUTER)?
        } else if table == Table::LogicalRouterPort {
            name.strip_prefix(ROUTER_TO_TRANSIT)?
        } else {
            // None in other tables.
            let ids = &replica.row::<StaticRoute>(uuid)?.external_ids;
            let (key, own) = NETWORK;
            let is_own = ids.get(key).is_none_or(|network| network == own);
            let router = holder(index, uuid).filter(|_| is_own)?;
            ids.get(ROUTE_OF).filter(|_| **router == *ovn::CLUSTER_ROUTER)?
        };
        is_plain(of).then(|| Key::Transit(of.into()))
    }

    /// A translation of a gateway router's own address, or of pods.
    fn translation(
        &self,
        row: &Nat,
        replica: &Replica,
        index: &Index,
        uuid: Uuid,
    ) -> Option<Claim> {
        let router = holder(index, uuid)?;
        let of = router.strip_prefix(ovn::GATEWAY_ROUTER_PREFIX).filter(|of| is_plain(of))?;
        let is_plain = *row.kind == *SOURCE
            && row.logical_port.is_none()
            && row.matching.is_empty()
            && row.external_mac.is_none()
            && row.external_ids.is_empty();
        let inside: IpNet = parse(&row.logical_ip).filter(|_| is_plain)?;
        let is_own =
            || join_networks(replica, index, router).any(|join| IpNet::from(join.addr()) == inside);
        let is_removed = self.removed.as_deref() == Some(of);
        if is_removed || self.cluster_subnets.contains(&inside) || is_own() {
            return gateway(of).map(Claim::Ours);
        }
        let is_of_pod = inside == IpNet::from(inside.addr())
            && self.cluster_subnets.iter().any(|subnet| subnet.contains(&inside));
        let key = Key::source_nat(of.into(), inside.addr());
        // An administrator's own for one pod has no range of ports.
        let has_form = *row.external_port_range == *PORTS;
        is_of_pod.then_some(if has_form { Claim::Ours(key) } else { Claim::Named(key) })
    }

    /// A neighbour that stands for the node behind a gateway router.
    fn neighbour(&self, row: &StaticMacBinding) -> Option<Key> {
        let ip: IpAddr = row.ip.parse().ok()?;
        let is_masquerade = self.masquerade.iter().any(|subnet| subnet.contains(&ip));
        of_gateway(&row.logical_port, ROUTER_TO_EXTERNAL).filter(|_| is_masquerade)
    }
}

/// The key in the ids of a row that this part of the control plane, or upstream's, made for a
/// policy, for the isolation of a namespace, or for a Service's load balancer.
fn of_ids(ids: &Pairs) -> Option<Key> {
    let (kind, name) = own_ids(ids)?;
    match kind {
        ovn::NETWORK_POLICY => {
            let (namespace, name) = name.split_once(':')?;
            PolicyKey::new(namespace, name).ok().map(Key::Policy)
        }
        ovn::SOURCE_RANGES => {
            let (namespace, name) = name.split_once(':')?;
            ServiceKey::new(namespace, name).ok().map(Key::Service)
        }
        ovn::MULTICAST_NAMESPACE => is_plain(name).then(|| Key::Namespace(name.into())),
        ovn::NETPOL_NAMESPACE => is_plain(name).then(|| Key::Isolation(name.into())),
        _ => match CustomKind::ALL.into_iter().find(|of| of.as_str() == kind) {
            Some(kind) => is_plain(name).then(|| Key::custom(kind, name.into())),
            None => {
                let kind = ClusterPolicyKind::ALL.into_iter().find(|of| of.as_str() == kind)?;
                ClusterPolicyKey::new(kind, name).ok().map(Key::from)
            }
        },
    }
}

/// The group of a namespace's pods may be one that upstream has made for each namespace. With a
/// rule about them in it, it is the namespace's.
fn port_group(row: &PortGroup, replica: &Replica) -> Claim {
    if let Some(key) = of_ids(&row.external_ids) {
        return Claim::Ours(key);
    }
    let of_namespace = own_ids(&row.external_ids).filter(|(kind, _)| *kind == ovn::NAMESPACE_SET);
    let Some((_, namespace)) = of_namespace.filter(|(_, name)| is_plain(name)) else {
        return Claim::Foreign;
    };
    let key = Key::Namespace(namespace.into());
    let users = [Key::custom(CustomKind::EgressFirewall, namespace.into()), key.clone()];
    let is_rule = |acl: &Uuid| {
        let acl: Option<&Acl> = replica.row(*acl);
        acl.and_then(|acl| of_ids(&acl.external_ids)).is_some_and(|owner| users.contains(&owner))
    };
    if row.acls.iter().any(is_rule) { Claim::Ours(key) } else { Claim::Named(key) }
}

fn address_set(row: &AddressSet) -> Option<Key> {
    let (kind, name) = own_ids(&row.external_ids)?;
    set::of_ids(kind, name, row.external_ids.get(ovn::PRIORITY)).map(Key::Set)
}

/// A rule about marks. Before 2024, upstream's had no ids but the namespace.
fn qos(row: &Qos) -> Option<Key> {
    let kind = CustomKind::EgressQos;
    let former = || row.external_ids.get(kind.as_str()).filter(|namespace| is_plain(namespace));
    of_ids(&row.external_ids).or_else(|| Some(Key::custom(kind, former()?.into())))
}

/// The kind and the name in ids of the cluster's own network.
fn own_ids(ids: &Pairs) -> Option<(&str, &str)> {
    let is_own = ids.get(ovn::OWNER_CONTROLLER) == Some(ovn::CONTROLLER);
    ids.get(ovn::OWNER_TYPE).zip(ids.get(ovn::NAME)).filter(|_| is_own)
}

/// A row with a variable of a node's address or of a Service.
fn variables(row: Option<&ChassisTemplateVar>, chassis: &Arc<str>) -> Claim {
    let key = Key::Chassis(Arc::clone(chassis));
    let is_ours =
        |name: &str| name.starts_with(NODE_ADDRESS) || name.starts_with(ovn::SERVICE_PREFIX);
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
    // Of a gateway router of 2018, whose Services are in the groups of load balancers today.
    let former = row.external_ids.iter().find(|(id, _)| id.ends_with(LB_OF_GATEWAY));
    if let Some((_, of)) = former {
        let key = of.strip_prefix(ovn::GATEWAY_ROUTER_PREFIX).and_then(gateway);
        return key.map_or(Claim::Foreign, Claim::Ours);
    }
    if id(ovn::KIND) == Some(ovn::SERVICE)
        && let Some(service) = id(ovn::OWNER).and_then(|owner| owner.parse().ok())
    {
        return Claim::Ours(Key::Service(service));
    }
    // Its ids are gone. No name of a Service has an underscore.
    let named = name
        .strip_prefix(ovn::SERVICE_PREFIX)
        .and_then(|rest| rest.split('_').next()?.parse().ok());
    named.map_or(Claim::Foreign, |service| Claim::Named(Key::Service(service)))
}

fn switch_port(port: &LogicalSwitchPort) -> Claim {
    // No namespace has capital letters.
    if let Some(key) = [JOIN_TO_ROUTER, EXTERNAL_TO_ROUTER]
        .into_iter()
        .find_map(|side| of_gateway(&port.name, side))
    {
        return Claim::Ours(key);
    }
    // Pods first: a namespace may begin with `stor-` or `k8s-`, but no name of a node has an
    // underscore.
    if let Some((namespace, name)) = port.name.split_once('_') {
        let Ok(key) = PodKey::new(namespace, name) else { return Claim::Foreign };
        let id = |id: &str| port.external_ids.get(id);
        let of_another_network =
            id("k8s.ovn.org/nad").is_some() || id("k8s.ovn.org/network").is_some();
        // A port of another network, or of another program, may have such a name, too.
        let certain =
            id("pod") == Some("true") && id("namespace") == Some(namespace) && !of_another_network;
        return if certain { Claim::Ours(Key::Pod(key)) } else { Claim::Named(Key::Pod(key)) };
    }
    let rest =
        port.name.strip_prefix(SWITCH_TO_ROUTER).or_else(|| port.name.strip_prefix(MANAGEMENT));
    rest.and_then(node).map_or(Claim::Foreign, Claim::Ours)
}

/// The node's bridge, in its external switch.
fn localnet(replica: &Replica, index: &Index, uuid: Uuid) -> Option<Claim> {
    replica.row::<LogicalSwitchPort>(uuid).filter(|port| *port.kind == *"localnet")?;
    let of = holder(index, uuid)?.strip_prefix(ovn::EXTERNAL_SWITCH_PREFIX).and_then(gateway)?;
    Some(Claim::Ours(of))
}

/// The node or gateway that the route leads to. A route has neither name nor id, so it has to be of
/// the form that this controller gives to its own.
fn route(replica: &Replica, index: &Index, uuid: Uuid) -> Option<Key> {
    let route: &StaticRoute = replica.row(uuid)?;
    let (prefix, via): (IpNet, IpAddr) = (parse(&route.ip_prefix)?, route.nexthop.parse().ok()?);
    if !route.route_table.is_empty() {
        return None;
    }
    let by_source = route.policy.as_deref() == Some(BY_SOURCE);
    let router = holder(index, uuid)?;
    if **router == *ovn::CLUSTER_ROUTER {
        let to_gateway = || index.gateway_at(via).and_then(gateway);
        return match (by_source, prefix == IpNet::from(via)) {
            (true, _)
                if ovn::management(&prefix).is_some_and(|management| management.addr() == via) =>
            {
                index.node_at(via).and_then(node)
            }
            (true, _) | (false, true) => to_gateway(),
            (false, false) if route.external_ids.get(FORWARDED_ROUTE).is_some() => {
                index.node_at(via).and_then(node)
            }
            (false, false) => None,
        };
    }
    let key = router.strip_prefix(ovn::GATEWAY_ROUTER_PREFIX).and_then(gateway)?;
    let is_ours = !by_source
        && match route.output_port.as_deref() {
            None => join_networks(replica, index, router).any(|join| join.contains(&via)),
            Some(port) => {
                port == ovn::router_to_external(router)
                    && (prefix.prefix_len() == 0
                        || route.external_ids.get(MASQUERADE_ROUTE).is_some())
            }
        };
    is_ours.then_some(key)
}

/// A policy of the cluster router for one of a node's own addresses.
fn policy(row: &RouterPolicy, index: &Index, uuid: Uuid) -> Option<Key> {
    let (_, rest) = row.matching.split_once(ROUTER_TO_SWITCH)?;
    let (of, rest) = rest.split_once('"')?;
    let (_, rest) = rest.split_once(".dst == ")?;
    let address: IpAddr = rest.split_once(' ')?.0.parse().ok()?;
    let is_ours = row.priority == TO_OWN_NODE
        && *row.action == *REROUTE
        && *row.matching == *to_own_node(of, address)
        && holder(index, uuid).is_some_and(|router| **router == *ovn::CLUSTER_ROUTER);
    is_ours.then(|| gateway(of)).flatten()
}

/// The name of the row that holds this one.
fn holder(index: &Index, uuid: Uuid) -> Option<&Arc<str>> {
    index.parents(uuid).iter().find_map(|parent| index.name(parent.row))
}

/// The networks of the port of a gateway router on the join switch.
fn join_networks<'a>(
    replica: &'a Replica,
    index: &Index,
    router: &str,
) -> impl Iterator<Item = IpNet> + use<'a> {
    let ports = index.named(Table::LogicalRouterPort, &ovn::router_to_join(router));
    let ports: Vec<&LogicalRouterPort> =
        ports.iter().filter_map(|port| replica.row(*port)).collect();
    ports.into_iter().flat_map(|port| port.networks.iter()).filter_map(|net| net.parse().ok())
}

/// A network, or a single address.
fn parse(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse().ok().map(|address: IpAddr| address.into()))
}

fn switch(replica: &Replica, index: &Index, uuid: Uuid, name: &str) -> Claim {
    let holds = |port: &Uuid| index.parents(*port).iter().any(|parent| parent.row == uuid);
    let holds = |prefix: &str| {
        index.named(Table::LogicalSwitchPort, &format!("{prefix}{name}")).iter().any(holds)
    };
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
