//! The API server's objects, reduced to the fields in use and indexed, and the networks assigned to pods.
//!
//! One task owns the store, so it needs no lock. It does no I/O: observations go in; dirty keys, annotations
//! to write and problems to report come out.
//!
//! | module | task |
//! |---|---|
//! | [`wire`] | API objects, reduced while they are parsed |
//! | `node`, `pod` | the fields that are kept; of Services: [`kubeapi::services`] |
//! | `nodes`, `pods`, `services`, `namespaces`, `policies` | the objects of one kind with their indexes, and what an event of this kind changes |
//! | [`cluster_policy`], `cluster_policies` | the same for policies of the whole cluster |
//! | [`egress_firewall`], `egress_firewalls` | the same for EgressFirewalls, and their status |
//! | `names` | the names of the DNS that rules have, and their addresses |
//! | `node_addresses` | the addresses of nodes that rules select by labels |
//! | [`policy`] | a NetworkPolicy, read once from the API's spelling |
//! | `port_names` | names of ports in policies that no pod has |
//! | `sets` | the sets of addresses that policies name, and who is in them |
//! | `ranges` | the ranges of Services' addresses |
//! | [`observation`] | a watch event; the kinds of objects |
//! | `observe` | passes an observation on to its kind |
//! | `fanout` | which keys a change concerns |
//! | `unread` | kinds of which there is no list, and what stays for their sake |
//! | `doubts` | holds back lists that lack many known objects |
//! | [`labels`], [`selector`], [`selectors`] | labels of objects, and which objects match which selectors |
//! | `assign` | assigns addresses to pods and releases them |
//! | `claims` | what only one node can have: its chassis, its addresses on the join switch |
//! | `waiting` | pods without addresses, by what they wait for |
//! | `foreign` | addresses of ports that are not this controller's |
//! | `announce` | annotations to write, problems to report as events |
//! | `conditions` | the condition of a policy of the cluster in this zone |
//! | `said` | what was said of an object in its status |

mod announce;
mod assign;
mod beyond;
mod claims;
mod cluster_policies;
pub mod cluster_policy;
mod conditions;
mod doubts;
pub mod egress_firewall;
mod egress_firewalls;
mod fanout;
mod foreign;
pub mod labels;
mod names;
mod namespace_sums;
mod namespaces;
mod node;
mod node_addresses;
mod node_port_addresses;
mod nodes;
pub mod observation;
mod observe;
mod pod;
mod pods;
mod policies;
pub mod policy;
mod port_names;
mod price;
mod ranges;
mod said;
pub mod selector;
pub mod selectors;
mod services;
mod sets;
pub mod specification;
mod unread;
mod waiting;
pub mod wire;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use contract::{
    names::PodKey,
    node_annotation::{GatewayMode, NODE_SUBNETS, ZONE},
    ovn,
};

pub use announce::PodAnnotation;
pub use assign::FoundPort;
pub use cluster_policies::{ClusterPolicyTrouble, Placement, Tiers};
pub use cluster_policy::ClusterPolicy;
pub use conditions::{Condition as ZoneCondition, PolicyCondition, Standing};
pub use egress_firewall::EgressFirewall;
pub use egress_firewalls::{EgressFirewallTrouble, FirewallStatus};
pub use foreign::ForeignAddress;
pub use names::{Answer, DnsName, NameUse};
pub use namespaces::Namespace;
pub use node::{Gateway, Node, Unreadable};
pub use node_addresses::NodesOf;
pub use pod::{Annotated, NamedPort, Phase, Pod, PodLabels, Reported, Spelled, Texts};
pub use policy::{Direction, Peer, Policy};
pub use ranges::RangeName;
pub use services::Known;

pub use kubeapi::services::{Condition, Endpoint, Hints, Service, ServicePort, Slice, SlicePort, Traffic};

use crate::{
    allocate::{addresses::Addresses, pod_network::Assigned},
    config::{ClusterConfig, Zone},
    key::{Dirty, Key, NodeName},
    observation::Kind,
    rows::Table,
};

/// The known state of the cluster.
#[derive(Debug)]
pub struct Store {
    pub config: Arc<ClusterConfig>,
    nodes: nodes::Nodes,
    namespaces: namespaces::Namespaces,
    pods: pods::Pods,
    policies: policies::Policies,
    cluster_policies: cluster_policies::ClusterPolicies,
    egress_firewalls: egress_firewalls::EgressFirewalls,
    names: names::Names,
    node_addresses: node_addresses::NodeAddresses,
    services: services::Services,
    ranges: ranges::Ranges,
    gateways: BTreeSet<NodeName>,
    templates: bool,
    /// Whether chassis have variables: not before there is a NodePort, for a database that had none is left
    /// as it is.
    variables: bool,
    /// Addresses of the nodes of this zone.
    node_port_addresses: node_port_addresses::NodePortAddresses,
    addresses: Addresses,
    /// Addresses that pods no longer use, while their ports may still exist.
    leaving: assign::Leaving,
    found: assign::Found,
    foreign: foreign::ForeignAddresses,
    waiting: waiting::Waiting,
    outbox: announce::Outbox,
    listed: observe::Listed,
    doubts: doubts::Doubts,
    unread: unread::Unread,
    beyond: beyond::BeyondLimits,
}

/// Whether NodePorts are load balancers with variables, and when each chassis gets its variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateUse {
    Never,
    /// Once there is a NodePort.
    WithNodePorts,
    /// Without NodePorts, too.
    FromTheStart,
}

/// The zone whose database has a node's rows: this one, another one, or not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    Elsewhere,
    Unknown,
}

/// The tables whose existing rows of a key stay as they are, wanted or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept(&'static [Table]);

impl Kept {
    pub const NOTHING: Self = Self(&[]);
    pub const ALL: Self = Self(Table::ALL);
    /// A node's port on the cluster's router.
    pub const ROUTER_PORT: Self = Self(&[Table::LogicalRouterPort, Table::GatewayChassis]);
    /// The routes of a node's pods to their host.
    pub const ROUTES: Self = Self(&[Table::StaticRoute]);
    pub const ROUTER_PORT_AND_ROUTES: Self =
        Self(&[Table::LogicalRouterPort, Table::GatewayChassis, Table::StaticRoute]);
    pub const GROUPS: Self = Self(&[Table::PortGroup]);

    /// Whether rows of the table stay.
    pub fn has(self, table: Table) -> bool {
        self.0.contains(&table)
    }

    pub fn is_nothing(self) -> bool {
        self.0.is_empty()
    }
}

impl Store {
    /// The kinds of objects that it observes.
    pub const KINDS: &[Kind] = Kind::ALL;

    pub fn new(config: ClusterConfig) -> Self {
        let config = Arc::new(config);
        Self {
            ranges: ranges::Ranges::new(Arc::clone(&config)),
            services: services::Services::new(&config),
            config,
            nodes: nodes::Nodes::default(),
            namespaces: namespaces::Namespaces::default(),
            pods: pods::Pods::default(),
            policies: policies::Policies::default(),
            cluster_policies: cluster_policies::ClusterPolicies::default(),
            egress_firewalls: egress_firewalls::EgressFirewalls::default(),
            names: names::Names::default(),
            node_addresses: node_addresses::NodeAddresses::default(),
            gateways: BTreeSet::new(),
            templates: false,
            variables: false,
            node_port_addresses: node_port_addresses::NodePortAddresses::default(),
            addresses: Addresses::default(),
            leaving: assign::Leaving::default(),
            found: assign::Found::default(),
            foreign: foreign::ForeignAddresses::default(),
            waiting: waiting::Waiting::default(),
            outbox: announce::Outbox::default(),
            listed: observe::Listed::default(),
            doubts: doubts::Doubts::default(),
            unread: unread::Unread::default(),
            beyond: beyond::BeyondLimits::default(),
        }
    }

    /// Whether every kind of object that justifies rows has been listed once, or is gone on without. Until
    /// then no row may be removed, and no address is assigned.
    pub fn is_complete(&self) -> bool {
        self.listed.all
    }

    /// All current owners of rows.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let nodes = self.nodes.iter().map(|node| Key::Node(Arc::clone(&node.name)));
        let gateways = self.nodes.iter().map(|node| Key::Gateway(Arc::clone(&node.name)));
        let pods = self.pods.iter().map(|(key, _)| Key::Pod(key.clone()));
        let services = self.services.iter().map(|(key, _)| Key::Service(key.clone()));
        let chassis =
            self.local_nodes().filter(|_| self.templates).filter_map(|node| node.chassis.as_deref());
        let chassis = chassis.map(|name| Key::Chassis(name.into()));
        let translations = self.pods.iter().filter(|_| self.config.snat_per_pod).flat_map(|(key, known)| {
            let addresses = self.addresses_of(key);
            let node = known.pod.node.iter();
            addresses.flat_map(move |address| {
                node.clone().map(move |node| Key::source_nat(Arc::clone(node), address))
            })
        });
        let sets = self.sets().into_iter().map(Key::Set);
        let isolated: BTreeSet<&str> = self.policies.iter().map(|(key, _)| key.namespace()).collect();
        let isolated = isolated.into_iter().map(|namespace| Key::Isolation(namespace.into()));
        let policies = self.policies.iter().map(|(key, _)| Key::Policy(key.clone()));
        let of_cluster = self.cluster_policies.keys().map(|key| Key::from(key.clone()));
        let firewalls = self.egress_firewalls.namespaces().map(|name| Key::EgressFirewall(Arc::clone(name)));
        let with_rules = self.egress_firewalls.namespaces().filter(|name| self.has_firewall_rules(name));
        let namespaces: BTreeSet<&Arc<str>> = self.with_multicast().chain(with_rules).collect();
        let namespaces = namespaces.into_iter().map(|name| Key::Namespace(Arc::clone(name)));
        let firewalls = namespaces.chain(firewalls);
        let policies = sets.chain(isolated).chain(policies).chain(of_cluster).chain(firewalls);
        let of_nodes = nodes.chain(gateways).chain(chassis);
        let pods = pods.chain(translations);
        std::iter::once(Key::Cluster).chain(of_nodes).chain(policies).chain(pods).chain(services)
    }

    /// How many objects are beyond a limit of `contract::limits`, by their kind.
    pub fn beyond_limits(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.beyond.iter()
    }

    pub fn pod(&self, key: &PodKey) -> Option<&Pod> {
        self.pods.get(key).map(|known| &known.pod)
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The nodes whose switches are in this zone's database, in the order of their names.
    pub fn local_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| self.is_decided(node))
    }

    /// The node's gateway, if this zone's database has its rows and all is known that they derive from.
    pub fn gateway(&self, name: &str) -> Option<Gateway<'_>> {
        let node = self.node(name).filter(|node| self.is_decided(node) && self.nodes.has_its_join(node))?;
        Gateway::of(node, &self.config.join_subnets)
    }

    /// Whether the address is that of a pod on the node, and is translated for itself.
    pub(crate) fn is_translated(&self, node: &str, address: IpAddr) -> bool {
        let of_pod = |key: &PodKey| {
            let on_node = self.pod(key).is_some_and(|pod| pod.node.as_deref() == Some(node));
            on_node && self.addresses_of(key).any(|own| own == address)
        };
        self.config.snat_per_pod && self.addresses.owner(address).is_some_and(of_pod)
    }

    /// Whether the node has a gateway router in this zone's database.
    pub fn has_gateway_router(&self, node: &str) -> bool {
        self.gateways.contains(node)
    }

    /// Whether the mode of the node's gateway is known, the absence of a gateway included. A gateway router
    /// that exists says that there was one.
    pub(crate) fn knows_gateway(&self, node: &Node) -> bool {
        node.gateway.is_some() || node.knows_gateway() && !self.has_gateway_router(&node.name)
    }

    /// Registers the nodes that have gateway routers. A router's load balancers are those of its node.
    pub fn gateway_routers(&mut self, nodes: BTreeSet<NodeName>, dirty: &mut Dirty<'_>) {
        if self.gateways != nodes {
            fanout::gateway_routers(self.gateways.symmetric_difference(&nodes), dirty);
            self.gateways = nodes;
            let node_ports = self.services.node_ports().filter(|_| !self.templates);
            fanout::per_node(self.services.per_node().chain(node_ports), dirty);
        }
    }

    /// Whether NodePorts are load balancers with variables.
    pub fn uses_templates(&self) -> bool {
        self.templates
    }

    /// Whether chassis have variables.
    pub fn uses_variables(&self) -> bool {
        self.templates && self.variables
    }

    /// Decides on templates. To be called only while all keys are about to be compared.
    pub fn use_templates(&mut self, used: TemplateUse) {
        self.templates = used != TemplateUse::Never;
        self.variables |= used == TemplateUse::FromTheStart || self.services.templates().next().is_some();
    }

    /// There may be a NodePort from now on. Variables stay until the next start.
    fn may_need_variables(&mut self, dirty: &mut Dirty<'_>) {
        if self.templates && !self.variables && self.services.templates().next().is_some() {
            self.variables = true;
            self.follow_variables(true, dirty);
        }
    }

    /// Variables of all chassis may have other values, if they stand for backends that have changed.
    fn follow_variables(&self, are_concerned: bool, dirty: &mut Dirty<'_>) {
        if are_concerned && self.uses_variables() {
            let chassis = self.local_nodes().filter_map(|node| node.chassis.as_deref());
            fanout::chassis(chassis.map(Arc::from).collect(), dirty);
        }
    }

    /// How many addresses of each family the NodePorts of a node have at most.
    pub fn template_addresses(&self) -> [usize; 2] {
        if self.templates { self.node_port_addresses.most() } else { [0; 2] }
    }

    /// Whether the address is one of a node of this zone.
    pub(crate) fn is_host_of_zone(&self, address: IpAddr) -> bool {
        self.node_port_addresses.has(address)
    }

    /// The network of a pod: from its annotation, from its existing port, or newly assigned.
    pub fn assigned(&self, key: &PodKey) -> Option<&Assigned> {
        self.pods.get(key)?.network.as_deref()
    }

    /// Whether the node's full rows belong in this zone's database.
    pub fn is_local(&self, node: &str) -> bool {
        self.node(node).is_some_and(|node| self.place(node) == Place::Here)
    }

    fn place(&self, node: &Node) -> Place {
        match &node.zone {
            Some(zone) if *zone == self.config.zone => Place::Here,
            Some(_) => Place::Elsewhere,
            // Nodes of a cluster with the one zone `global` may lack the annotation. A zone of another name
            // waits until the node has written it.
            None if self.config.zone == Zone::default() && !node.is_unreadable(&[ZONE]) => Place::Here,
            None => Place::Unknown,
        }
    }

    /// Which existing rows of a key stay as they are, because an annotation that decides on them is missing
    /// or unreadable, or objects of its kind are, and this process has not read it before. Rows are removed
    /// only if the object is gone, or if its annotations can be read and call for no such rows.
    pub fn kept(&self, key: &Key) -> Kept {
        match key {
            Key::Cluster | Key::Isolation(_) | Key::Set(_) | Key::Service(_) => Kept::NOTHING,
            Key::ClusterPolicy(_) | Key::Namespace(_) | Key::EgressFirewall(_) => self.unread.kept(key),
            Key::Node(name) => match self.node(name) {
                Some(node) if self.place(node) == Place::Elsewhere => Kept::NOTHING,
                Some(node) if !self.is_decided(node) => Kept::ALL,
                // The router port cannot be computed without the chassis. Removing the existing one would cut
                // off a node whose annotation is missing for a moment. The same holds for the routes and the
                // mode of the gateway.
                // Whatever was on a chassis that is another node's now is not.
                Some(node) => match (self.nodes.lacks_chassis(node), !self.knows_gateway(node)) {
                    (false, false) => Kept::NOTHING,
                    (true, false) => Kept::ROUTER_PORT,
                    (false, true) => Kept::ROUTES,
                    (true, true) => Kept::ROUTER_PORT_AND_ROUTES,
                },
                None => Kept::NOTHING,
            },
            // Its rules are being read again.
            Key::Policy(key) if self.awaits_rules(key) => Kept::ALL,
            Key::Policy(_) => Kept::NOTHING,
            Key::Gateway(name) => self.kept_of_gateway(name),
            Key::SourceNat(of) => self.kept_of_gateway(&of.node),
            Key::Chassis(_) => {
                if self.has_unknown_chassis() {
                    Kept::ALL
                } else {
                    Kept::NOTHING
                }
            }
            Key::Pod(key) => {
                let node = self
                    .pod(key)
                    .filter(|pod| pod.needs_network())
                    .and_then(|pod| self.node(pod.node.as_ref()?));
                match node {
                    Some(node) if self.place(node) == Place::Elsewhere => Kept::NOTHING,
                    Some(node) if !self.is_decided(node) => Kept::ALL,
                    Some(_) if !self.knows_namespace(key.namespace()) => Kept::ALL,
                    Some(_) | None => Kept::NOTHING,
                }
            }
        }
    }

    fn kept_of_gateway(&self, node: &str) -> Kept {
        match self.node(node) {
            Some(node) if self.place(node) == Place::Elsewhere => Kept::NOTHING,
            Some(node) if self.is_decided(node) && node.gateway == Some(GatewayMode::Disabled) => {
                Kept::NOTHING
            }
            Some(node) if self.is_decided(node) && self.nodes.has_lost_chassis(node) => Kept::NOTHING,
            // Without a mode, nothing says that the gateway that exists is not wanted any more.
            Some(_) if self.gateway(node).is_none() => Kept::ALL,
            Some(_) | None => Kept::NOTHING,
        }
    }

    fn is_elsewhere(&self, node: &Node) -> bool {
        self.place(node) == Place::Elsewhere
    }

    /// Whether the annotations that the node's rows derive from are known: its zone and its subnets.
    fn is_decided(&self, node: &Node) -> bool {
        self.place(node) == Place::Here && !node.subnets.is_empty()
    }

    /// Whether it cannot be said if the node is in this zone, or which subnets it has, because of a text that
    /// is no annotation. A node that merely waits for them, as each new one does, holds up no Service.
    fn is_unreadable(&self, node: &Node) -> bool {
        node.is_unreadable(&[ZONE, NODE_SUBNETS]) && self.is_open(node)
    }

    /// Whether it cannot be said yet if the node is in this zone, or which subnets it has.
    fn is_open(&self, node: &Node) -> bool {
        self.place(node) != Place::Elsewhere && !self.is_decided(node)
    }

    /// Whether load balancers of the key stay on the row `on` of the key `of`. Of a node that cannot be read it is
    /// not known which its switch and its router should have. The groups of all switches and of all routers may
    /// have one for its sake, but the group of both has none that depends on a node. Those of a Service that is
    /// gone go.
    pub(crate) fn keeps_balancers(&self, key: &Key, of: &Key, on: &str) -> bool {
        let Key::Service(service) = key else { return false };
        let stays = match of {
            Key::Node(node) | Key::Gateway(node) => self.nodes.cannot_be_read(node),
            Key::Cluster => self.nodes.has_unreadable() && on != ovn::CLUSTER_LB_GROUP,
            Key::SourceNat(_)
            | Key::Isolation(_)
            | Key::Set(_)
            | Key::Policy(_)
            | Key::ClusterPolicy(_)
            | Key::Namespace(_)
            | Key::EgressFirewall(_)
            | Key::Pod(_)
            | Key::Service(_)
            | Key::Chassis(_) => false,
        };
        stays && self.service(service).is_some()
    }

    /// UID of the key's object, for events on it.
    pub fn uid(&self, key: &Key) -> Option<Arc<str>> {
        match key {
            Key::Cluster | Key::Set(_) => None,
            Key::Isolation(name) | Key::Namespace(name) => self.namespaces.uid(name).map(Arc::clone),
            Key::Policy(key) => self.policy(key).map(|policy| Arc::clone(&policy.uid)),
            Key::ClusterPolicy(key) => self.cluster_policy(key).map(|policy| Arc::clone(&policy.uid)),
            Key::EgressFirewall(namespace) => {
                self.egress_firewall(namespace).map(|firewall| Arc::clone(&firewall.uid))
            }
            Key::Node(name) | Key::Gateway(name) => self.node(name).map(|node| Arc::clone(&node.uid)),
            Key::SourceNat(of) => self.node(&of.node).map(|node| Arc::clone(&node.uid)),
            Key::Pod(key) => self.pod(key).map(|pod| Arc::clone(&pod.uid)),
            Key::Service(key) => self.service(key).map(|(service, _)| Arc::clone(&service.uid)),
            Key::Chassis(_) => None,
        }
    }

    /// The pods that are scheduled to the node.
    pub fn pods_of<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        self.pods.of_node(node)
    }
}

#[cfg(test)]
mod tests;
