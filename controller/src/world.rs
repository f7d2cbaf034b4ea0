//! The API server's objects, reduced to the fields in use and indexed, and the networks assigned to
//! pods: the states of all kinds side by side.
//!
//! One task owns the store, so it needs no lock. It does no I/O: watch events go in; dirty keys,
//! annotations to write and problems to report come out.
//!
//! | module | task |
//! |---|---|
//! | [`observe`] | passes a watch event on to its kind |
//! | [`results`] | annotations, conditions and statuses to write, problems to report |
//! | `custom` | what events of the kinds change of which a namespace has one object |
//! | [`brakes`] | holds back lists that lack many known objects |
//! | [`unread`] | kinds of which there is no list, and what stays for their sake |
//!
//! What an event changes is in `kinds/<kind>/changes.rs`, and which objects match what is in
//! `select`.

pub mod brakes;
pub(crate) mod custom;
pub mod observe;
pub mod results;
pub mod unread;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use contract::{
    names::PodKey,
    node_annotation::{GatewayMode, NODE_SUBNETS, ZONE},
    ovn,
};

use crate::{
    allocate::{addresses::Addresses, pod_network::Assigned},
    config::{ClusterConfig, Interconnect, Zone},
    custom::registry::CustomStates,
    effects::Outbox,
    key::{Key, NodeName},
    kinds::{
        cluster_policy::state::ClusterPolicies,
        namespace::state::Namespaces,
        network_policy::state::Policies,
        node::{
            node_port_addresses::NodePortAddresses,
            object::{Gateway, Node},
            state::Nodes,
        },
        pod::{
            foreign::ForeignAddresses,
            found::{Found, Leaving},
            object::Pod,
            state::Pods,
            waiting::Waiting,
        },
        service::{ranges::Ranges, state::Services},
    },
    object::beyond::BeyondLimits,
    rows::Table,
    select::{names::Names, node_addresses::NodeAddresses},
    tunnels::ToldChassis,
    watch_event::Kind,
    world::brakes::SafetyBrakes,
};

/// The known state of the cluster.
#[derive(Debug)]
pub struct Store {
    pub config: Arc<ClusterConfig>,
    pub(crate) nodes: Nodes,
    pub(crate) namespaces: Namespaces,
    pub(crate) pods: Pods,
    pub(crate) policies: Policies,
    pub(crate) cluster_policies: ClusterPolicies,
    pub(crate) custom: CustomStates,
    pub(crate) names: Names,
    pub(crate) node_addresses: NodeAddresses,
    pub(crate) services: Services,
    pub(crate) ranges: Ranges,
    pub(crate) gateways: BTreeSet<NodeName>,
    pub(crate) templates: bool,
    /// Whether chassis have variables: not before there is a NodePort, for a database that had none
    /// is left as it is.
    pub(crate) variables: bool,
    /// Addresses of the nodes of this zone.
    pub(crate) node_port_addresses: NodePortAddresses,
    pub(crate) addresses: Addresses,
    /// Addresses that pods no longer use, while their ports may still exist.
    pub(crate) leaving: Leaving,
    pub(crate) found: Found,
    pub(crate) foreign: ForeignAddresses,
    pub(crate) waiting: Waiting,
    pub(crate) outbox: Outbox,
    pub(crate) told_chassis: ToldChassis,
    pub(crate) listed: observe::Listed,
    doubts: SafetyBrakes,
    pub(crate) unread: unread::Unread,
    pub(crate) beyond: BeyondLimits,
}

/// The zone whose database has a node's rows: this one, another one, or not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
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
            ranges: Ranges::new(Arc::clone(&config)),
            services: Services::new(&config),
            config,
            nodes: Nodes::default(),
            namespaces: Namespaces::default(),
            pods: Pods::default(),
            policies: Policies::default(),
            cluster_policies: ClusterPolicies::default(),
            custom: CustomStates::default(),
            names: Names::default(),
            node_addresses: NodeAddresses::default(),
            gateways: BTreeSet::new(),
            templates: false,
            variables: false,
            node_port_addresses: NodePortAddresses::default(),
            addresses: Addresses::default(),
            leaving: Leaving::default(),
            found: Found::default(),
            foreign: ForeignAddresses::default(),
            waiting: Waiting::default(),
            outbox: Outbox::default(),
            told_chassis: ToldChassis::default(),
            listed: observe::Listed::default(),
            doubts: SafetyBrakes::default(),
            unread: unread::Unread::default(),
            beyond: BeyondLimits::default(),
        }
    }

    /// Whether every kind of object that justifies rows has been listed once, or is gone on
    /// without. Until then no row may be removed, and no address is assigned.
    pub fn is_complete(&self) -> bool {
        self.listed.all
    }

    /// All current owners of rows.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let nodes = self.nodes.iter().map(|node| Key::Node(Arc::clone(&node.name)));
        let gateways = self.nodes.iter().map(|node| Key::Gateway(Arc::clone(&node.name)));
        let connected = self.config.is_connected();
        let transit = self.nodes.iter().filter(move |_| connected);
        let transit = transit.map(|node| Key::Transit(Arc::clone(&node.name)));
        let pods = self.pods.iter().map(|(key, _)| Key::Pod(key.clone()));
        let services = self.services.iter().map(|(key, _)| Key::Service(key.clone()));
        let chassis = self
            .local_nodes()
            .filter(|_| self.templates)
            .filter_map(|node| node.chassis.as_deref());
        let chassis = chassis.map(|name| Key::Chassis(name.into()));
        let translations =
            self.pods.iter().filter(|_| self.config.snat_per_pod).flat_map(|(key, known)| {
                let addresses = self.addresses_of(key);
                let node = known.pod.node.iter();
                addresses.flat_map(move |address| {
                    node.clone().map(move |node| Key::source_nat(Arc::clone(node), address))
                })
            });
        let sets = self.sets().into_iter().map(Key::Set);
        let isolated: BTreeSet<&str> =
            self.policies.iter().map(|(key, _)| key.namespace()).collect();
        let isolated = isolated.into_iter().map(|namespace| Key::Isolation(namespace.into()));
        let policies = self.policies.iter().map(|(key, _)| Key::Policy(key.clone()));
        let of_cluster = self.cluster_policies.keys().map(|key| Key::from(key.clone()));
        let firewalls = self.custom.egress_firewalls.namespaces();
        let with_rules = firewalls.filter(|name| self.has_firewall_rules(name));
        let namespaces: BTreeSet<&Arc<str>> = self.with_multicast().chain(with_rules).collect();
        let namespaces = namespaces.into_iter().map(|name| Key::Namespace(Arc::clone(name)));
        let custom = namespaces.chain(self.custom_keys());
        let policies = sets.chain(isolated).chain(policies).chain(of_cluster).chain(custom);
        let of_nodes = nodes.chain(gateways).chain(transit).chain(chassis);
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

    /// The node's gateway, if this zone's database has its rows and all is known that they derive
    /// from.
    pub fn gateway(&self, name: &str) -> Option<Gateway<'_>> {
        let node = self
            .node(name)
            .filter(|node| self.is_decided(node) && self.nodes.has_its_join(node))?;
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

    /// Whether the mode of the node's gateway is known, the absence of a gateway included. A
    /// gateway router that exists says that there was one.
    pub(crate) fn knows_gateway(&self, node: &Node) -> bool {
        node.gateway.is_some() || node.knows_gateway() && !self.has_gateway_router(&node.name)
    }

    /// Whether the address is one of a node of this zone.
    pub(crate) fn is_host_of_zone(&self, address: IpAddr) -> bool {
        self.node_port_addresses.has(address)
    }

    /// The network of a pod: from its annotation, from its existing port, or newly assigned.
    pub fn assigned(&self, key: &PodKey) -> Option<&Assigned> {
        self.pods.get(key)?.network.as_deref()
    }

    /// Whether the pod's port has no `iface-id-ver`, as its interface of 2018.
    pub(crate) fn has_unmarked_port(&self, key: &PodKey) -> bool {
        self.pods.get(key).is_some_and(|known| known.has_unmarked_port)
    }

    /// Whether a pod is on the node whose port has none.
    pub(crate) fn has_pods_of_2018(&self, node: &str) -> bool {
        self.pods.of_node(node).any(|pod| self.has_unmarked_port(pod))
    }

    /// Whether the node's full rows belong in this zone's database.
    pub fn is_local(&self, node: &str) -> bool {
        self.node(node).is_some_and(|node| self.place(node) == Place::Here)
    }

    /// Whether the node is about to move into this zone: the rows are wanted already, while its
    /// ovn-controller still reads those of another zone, which gives addresses to its pods.
    pub(crate) fn is_coming(&self, node: &Node) -> bool {
        let own = &self.config.zone;
        let may_come = self.config.interconnect != Interconnect::NodeZones || *node.name == *own.0;
        self.config.is_connected()
            && may_come
            && node.next_zone.as_ref() == Some(own)
            && node.zone.as_ref().is_some_and(|zone| zone != own)
    }

    /// Whether rows of the node come into this zone's database that were not there: it says that it
    /// is about to move here, or is here.
    pub(crate) fn arrives(&self, before: &Node, node: &Node) -> bool {
        let is_same = node.zone.as_ref().is_none_or(|zone| before.zone.as_ref() == Some(zone))
            && node.next_zone == before.next_zone;
        if is_same || !self.config.is_connected() {
            return false;
        }
        // A missing annotation changes nothing.
        let zone = node.zone.clone().or_else(|| before.zone.clone());
        let node = Node { zone, ..node.clone() };
        let is_here = |node: &Node| self.place(node) == Place::Here;
        self.is_coming(&node) && !self.is_coming(before) || is_here(&node) && !is_here(before)
    }

    /// Whether the cluster router has its link to the node's switch. Other nodes of the zone would
    /// send their packets there: those that come to join some wait until they are here.
    pub(crate) fn is_linked(&self, node: &Node) -> bool {
        !self.is_coming(node)
            || !self.nodes.iter().any(|other| other.name != node.name && self.is_decided(other))
    }

    /// Whether this zone gives addresses to the node's pods.
    pub(crate) fn assigns(&self, node: &Node) -> bool {
        self.place(node) == Place::Here && !self.is_coming(node) && !node.is_leaving
    }

    pub(crate) fn place(&self, node: &Node) -> Place {
        if self.is_coming(node) {
            return Place::Here;
        }
        match &node.zone {
            // Where each node is a zone, no other one is of this zone, whatever it says.
            Some(zone) if *zone == self.config.zone => match self.config.interconnect {
                Interconnect::NodeZones if *node.name != *zone.0 => Place::Elsewhere,
                Interconnect::Off | Interconnect::On | Interconnect::NodeZones => Place::Here,
            },
            Some(_) => Place::Elsewhere,
            // Nodes of a cluster with the one zone `global` may lack the annotation. A zone of
            // another name, and one of several, waits until the node has written it.
            None if self.config.zone == Zone::default()
                && !self.config.is_connected()
                && !node.is_unreadable(&[ZONE]) =>
            {
                Place::Here
            }
            None if self.config.interconnect == Interconnect::NodeZones
                && !node.is_unreadable(&[ZONE]) =>
            {
                let is_own = *node.name == *self.config.zone.0;
                if is_own { Place::Here } else { Place::Elsewhere }
            }
            None => Place::Unknown,
        }
    }

    /// Whether a node is of this zone, as far as nodes say.
    pub(crate) fn is_zone(&self, zone: &str) -> bool {
        let is_node =
            self.config.interconnect == Interconnect::NodeZones && self.nodes.contains(zone);
        is_node || self.nodes.are_of(&Zone(zone.to_owned()))
    }

    /// Whether the zones of all nodes are known, and this one's name is the first of several.
    pub(crate) fn is_first_zone(&self) -> bool {
        let own = &self.config.zone;
        match self.config.interconnect {
            Interconnect::Off => false,
            Interconnect::On => self.is_complete() && self.nodes.first_zone() == Some(own),
            // The nodes' own names are those of their zones.
            Interconnect::NodeZones => {
                let first = self.nodes.all.keys().next();
                self.is_complete() && first.is_some_and(|name| **name == *own.0)
            }
        }
    }

    /// Which existing rows of a key stay as they are, because an annotation that decides on them is
    /// missing or unreadable, or objects of its kind are, and this process has not read it before.
    /// Rows are removed only if the object is gone, or if its annotations can be read and call for
    /// no such rows.
    pub fn kept(&self, key: &Key) -> Kept {
        match key {
            Key::Cluster | Key::Isolation(_) | Key::Set(_) | Key::Service(_) => Kept::NOTHING,
            Key::ClusterPolicy(_) | Key::Namespace(_) | Key::Custom(_) => self.unread.kept(key),
            Key::Node(name) => match self.node(name) {
                Some(node) if self.place(node) == Place::Elsewhere => Kept::NOTHING,
                Some(node) if !self.is_decided(node) => Kept::ALL,
                // The router port cannot be computed without the chassis. Removing the existing one
                // would cut off a node whose annotation is missing for a moment. The same holds for
                // the routes and the mode of the gateway. Whatever was on a chassis that is another
                // node's now is not.
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
            // Only a node that is gone, or of which all is known, loses rows; and one whose chassis
            // another node has: its packets would go there.
            Key::Transit(name) => match self.node(name) {
                Some(node) if self.nodes.has_lost_chassis(node) => Kept::NOTHING,
                Some(node) if self.transit(node).is_none() => Kept::ALL,
                Some(_) | None => Kept::NOTHING,
            },
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
            Some(node) if self.is_decided(node) && self.nodes.has_lost_chassis(node) => {
                Kept::NOTHING
            }
            // Without a mode, nothing says that the gateway that exists is not wanted any more.
            Some(_) if self.gateway(node).is_none() => Kept::ALL,
            Some(_) | None => Kept::NOTHING,
        }
    }

    pub(crate) fn is_elsewhere(&self, node: &Node) -> bool {
        self.place(node) == Place::Elsewhere
    }

    /// Whether the annotations that the node's rows derive from are known: its zone and its
    /// subnets.
    pub(crate) fn is_decided(&self, node: &Node) -> bool {
        self.place(node) == Place::Here && !node.subnets.is_empty()
    }

    /// Whether it cannot be said if the node is in this zone, or which subnets it has, because of a
    /// text that is no annotation. A node that merely waits for them, as each new one does, holds
    /// up no Service.
    pub(crate) fn is_unreadable(&self, node: &Node) -> bool {
        node.is_unreadable(&[ZONE, NODE_SUBNETS]) && self.is_open(node)
    }

    /// Whether it cannot be said yet if the node is in this zone, or which subnets it has.
    pub(crate) fn is_open(&self, node: &Node) -> bool {
        self.place(node) != Place::Elsewhere && !self.is_decided(node)
    }

    /// Whether load balancers and marks of the key stay on the row `on` of the key `of`. Of a node
    /// that cannot be read it is not known which its switch and its router should have. The groups
    /// of all switches and of all routers may have one for its sake, but the group of both has none
    /// that depends on a node. Those of an object that is gone go.
    pub(crate) fn keeps_balancers(&self, key: &Key, of: &Key, on: &str) -> bool {
        let is_there = match key {
            Key::Service(service) => self.service(service).is_some(),
            Key::Custom(of) => self.custom_uid(of.kind, &of.namespace).is_some(),
            _ => false,
        };
        let stays = match of {
            Key::Node(node) | Key::Gateway(node) => self.nodes.cannot_be_read(node),
            Key::Cluster => self.nodes.has_unreadable() && on != ovn::CLUSTER_LB_GROUP,
            Key::Transit(_)
            | Key::SourceNat(_)
            | Key::Isolation(_)
            | Key::Set(_)
            | Key::Policy(_)
            | Key::ClusterPolicy(_)
            | Key::Namespace(_)
            | Key::Custom(_)
            | Key::Pod(_)
            | Key::Service(_)
            | Key::Chassis(_) => false,
        };
        stays && is_there
    }

    /// UID of the key's object, for events on it.
    pub fn uid(&self, key: &Key) -> Option<Arc<str>> {
        match key {
            Key::Cluster | Key::Set(_) => None,
            Key::Isolation(name) | Key::Namespace(name) => {
                self.namespaces.uid(name).map(Arc::clone)
            }
            Key::Policy(key) => self.policy(key).map(|policy| Arc::clone(&policy.uid)),
            Key::ClusterPolicy(key) => {
                self.cluster_policy(key).map(|policy| Arc::clone(&policy.uid))
            }
            Key::Custom(of) => self.custom_uid(of.kind, &of.namespace),
            Key::Node(name) | Key::Gateway(name) | Key::Transit(name) => {
                self.node(name).map(|node| Arc::clone(&node.uid))
            }
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
