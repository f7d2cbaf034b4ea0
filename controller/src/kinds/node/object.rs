//! The fields of a Node object that the store keeps.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use contract::{
    limits::NODE_PORT_ADDRESSES,
    mac::Mac,
    node_annotation::{
        self, CHASSIS_ID, GATEWAY_CONFIG, GatewayMode, MANAGEMENT_MAC, MANAGEMENT_MACS, ZONE,
    },
    ovn,
};
use ipnet::IpNet;
use kubeapi::services::Family;

use crate::{config::Zone, key::NodeName, kinds::node::problem::NodeProblem};

/// A node as its annotations describe it. An unreadable annotation counts as missing, and is listed
/// in `unreadable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: NodeName,
    pub uid: Arc<str>,
    /// `resourceVersion`. A decision on this version is written to no other one.
    pub version: Arc<str>,
    /// Seconds since 1970. The older of two nodes gets what both claim.
    pub created: i64,
    /// The subnets of its pods, at most one of each family; empty until the cluster manager assigns
    /// them.
    pub subnets: Vec<IpNet>,
    /// OVN's name of the node's chassis; none until the node writes it.
    pub chassis: Option<String>,
    /// Addresses of its tunnels; empty until the node writes them.
    pub encap_ips: Vec<IpAddr>,
    /// Whether the node itself has said so, and not only which address is its first.
    pub has_told_encap_ips: bool,
    /// None until the node writes it. In a cluster with the one zone `global` that means `global`.
    pub zone: Option<Zone>,
    /// The zone that it is about to move to. Its rows are in the databases of both.
    pub next_zone: Option<Zone>,
    /// Whether it has said that it is in another zone now. Its rows stay for a moment, and only
    /// that zone gives addresses to its pods.
    pub is_leaving: bool,
    /// The node's number from the cluster manager. The join and transit addresses derive from it.
    pub id: Option<u16>,
    /// Addresses of its gateway router on the join switch, at most one of each family.
    pub join: Vec<IpNet>,
    /// Addresses of the node on the transit switch between zones, at most one of each family.
    pub transit: Vec<IpNet>,
    /// MAC of its management port. Only older programs write it; otherwise the MAC derives from the
    /// address.
    pub management_mac: Option<Mac>,
    /// MAC of the cluster router's port in its subnets, where it does not derive from the address:
    /// pods of a cluster of 2018 know another one.
    pub router_mac: Option<Mac>,
    /// Whether its host has a source of its own for what it forwards to pods.
    pub forwarded_source: bool,
    /// All addresses of the host.
    pub host_addresses: Vec<IpAddr>,
    /// The addresses at which others know the node. None is for `externalIPs` of a Service.
    pub own_addresses: Vec<IpAddr>,
    /// Whether ports of the node lead to services; false if the node says so.
    pub node_ports: bool,
    /// The zone of the data centre, from its label.
    pub topology_zone: Option<Arc<str>>,
    /// None if no program has set up a gateway on the node.
    pub gateway: Option<GatewayMode>,
    /// Its gateway's place in the physical network; none unless it is shared or local.
    pub external: Option<Box<node_annotation::Gateway>>,
    /// Whether OVN may answer packets that are too large for the overlay.
    pub answers_large_packets: bool,
    /// Whether Kubernetes hears nothing of the node.
    pub is_unreachable: bool,
    pub labels: Arc<BTreeMap<String, String>>,
    /// The unparsed annotations, for writing one network's entry without losing those of others.
    pub annotations: Arc<BTreeMap<String, String>>,
    pub unreadable: Vec<Unreadable>,
}

/// An annotation that cannot be parsed, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub annotation: &'static str,
    pub why: String,
}

/// What the rows of a node's gateway derive from. All of it is known.
#[derive(Debug)]
pub struct Gateway<'a> {
    pub node: &'a Node,
    pub mode: GatewayMode,
    pub external: &'a node_annotation::Gateway,
    pub chassis: &'a str,
    /// Addresses on the join switch, at most one of each family.
    pub join: Vec<IpNet>,
    /// The name of its gateway router.
    pub router: String,
}

impl<'a> Gateway<'a> {
    /// None while a part is not known, or if the node has no gateway.
    pub(crate) fn of(node: &'a Node, join_subnets: &[IpNet]) -> Option<Self> {
        let mode = node.gateway.filter(|mode| *mode != GatewayMode::Disabled)?;
        let join = node.join_addresses(join_subnets);
        let has_join = !join.is_empty();
        has_join.then_some(Self {
            node,
            mode,
            external: node.external.as_deref()?,
            chassis: node.chassis.as_deref()?,
            join,
            router: ovn::gateway_router(&node.name),
        })
    }

    /// Whether both pods and the physical network have addresses of this family.
    pub fn has_family(&self, address: IpAddr) -> bool {
        let alike = |net: &IpNet| net.addr().is_ipv4() == address.is_ipv4();
        self.join.iter().any(alike) && self.external.addresses.iter().any(alike)
    }
}

impl Node {
    /// A node with nothing but a name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            uid: Arc::from(""),
            version: Arc::from(""),
            created: 0,
            subnets: Vec::new(),
            chassis: None,
            encap_ips: Vec::new(),
            has_told_encap_ips: false,
            zone: None,
            next_zone: None,
            is_leaving: false,
            id: None,
            join: Vec::new(),
            transit: Vec::new(),
            management_mac: None,
            router_mac: None,
            forwarded_source: false,
            host_addresses: Vec::new(),
            own_addresses: Vec::new(),
            node_ports: true,
            topology_zone: None,
            gateway: None,
            external: None,
            answers_large_packets: true,
            is_unreachable: false,
            labels: Arc::default(),
            annotations: Arc::default(),
            unreadable: Vec::new(),
        }
    }

    /// The problem with one of these annotations, if one cannot be read.
    pub fn unreadable(&self, annotations: &[&str]) -> Option<NodeProblem> {
        let found = self
            .unreadable
            .iter()
            .find(|unreadable| annotations.contains(&unreadable.annotation))?;
        Some(NodeProblem::UnreadableAnnotation {
            annotation: found.annotation,
            why: found.why.clone(),
        })
    }

    /// Takes the values of missing and unreadable annotations from an earlier version of the same
    /// node object: an annotation that is lost or garbled for a moment changes nothing. Its chassis
    /// comes from its claims.
    pub(crate) fn keep(&mut self, before: &Self) {
        let Self {
            subnets,
            encap_ips,
            has_told_encap_ips,
            zone,
            id,
            join,
            transit,
            management_mac,
            router_mac,
            forwarded_source,
            host_addresses,
            own_addresses,
            node_ports,
            gateway,
            external,
            ..
        } = before;
        if self.subnets.is_empty() {
            self.subnets.clone_from(subnets);
        }
        if self.encap_ips.is_empty() || *has_told_encap_ips && !self.has_told_encap_ips {
            self.encap_ips.clone_from(encap_ips);
            self.has_told_encap_ips = *has_told_encap_ips;
        }
        self.zone = self.zone.take().or_else(|| zone.clone());
        self.id = self.id.or(*id);
        if self.join.is_empty() {
            self.join.clone_from(join);
        }
        if self.transit.is_empty() {
            self.transit.clone_from(transit);
        }
        // The mode may be readable where the rest is not, and a disabled gateway has no rest.
        if self.external.is_none() && self.gateway != Some(GatewayMode::Disabled) {
            self.external.clone_from(external);
        }
        // A node removes the annotation of a disabled gateway once its rows are gone: from then on
        // it has none.
        if *gateway != Some(GatewayMode::Disabled) || self.is_unreadable(&[GATEWAY_CONFIG]) {
            self.gateway = self.gateway.or(*gateway);
        }
        // A missing annotation has a meaning here (the MAC derives from the address); unreadable
        // text has none.
        if self.is_unreadable(&[MANAGEMENT_MACS, MANAGEMENT_MAC]) {
            self.management_mac = *management_mac;
        }
        // Pods have learned it.
        self.router_mac = self.router_mac.or(*router_mac);
        // A route that nothing uses harms nobody; without it, node ports of the node end.
        self.forwarded_source |= forwarded_source;
        if self.host_addresses.is_empty() {
            self.host_addresses.clone_from(host_addresses);
        }
        if self.own_addresses.is_empty() {
            self.own_addresses.clone_from(own_addresses);
        }
        if self.is_unreadable(&[GATEWAY_CONFIG]) {
            self.node_ports = *node_ports;
        }
    }

    /// The addresses of its gateway router on the join switch: by its number. Only of a node
    /// without a number is its annotation believed.
    pub(crate) fn join_addresses(&self, subnets: &[IpNet]) -> Vec<IpNet> {
        match self.id.map(u128::from) {
            Some(id) => subnets.iter().filter_map(|subnet| ovn::nth(subnet, id)).collect(),
            None => self.join.clone(),
        }
    }

    /// The sources of what its host forwards to pods, if the host has one of its own for them.
    pub(crate) fn forwarded_sources(&self, join_subnets: &[IpNet]) -> Vec<IpAddr> {
        if !self.forwarded_source {
            return Vec::new();
        }
        ovn::forwarded_sources(&self.join_addresses(join_subnets))
    }

    /// An interface of the gateway that is another's counts as an annotation that cannot be read.
    pub(crate) fn refuse_others_interface(&mut self) {
        let Some(external) = self.external.take_if(|external| !external.is_of(&self.name)) else {
            return;
        };
        let why = format!(
            "interface-id is {:?}, and not the bridge's name, an underscore and the node's name",
            external.interface
        );
        self.gateway = None;
        self.unreadable.retain(|unreadable| unreadable.annotation != GATEWAY_CONFIG);
        self.unreadable.push(Unreadable { annotation: GATEWAY_CONFIG, why });
    }

    /// Whether the mode of its gateway is known, the absence of a gateway included.
    pub(crate) fn knows_gateway(&self) -> bool {
        self.gateway.is_some() || !self.is_unreadable(&[GATEWAY_CONFIG])
    }

    pub(crate) fn is_unreadable(&self, annotations: &[&str]) -> bool {
        self.unreadable.iter().any(|unreadable| annotations.contains(&unreadable.annotation))
    }

    /// Whether it has addresses that are not known, because its annotations cannot be read. A node
    /// that merely waits for them, as each new one does, has none in the database.
    pub(crate) fn lacks_host_addresses(&self) -> bool {
        self.host_addresses.is_empty() && !self.unreadable.is_empty()
    }

    /// Unreadable annotations among those that the node writes. The cluster manager reports its
    /// own.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = NodeProblem> + '_ {
        let own = |unreadable: &&Unreadable| {
            [CHASSIS_ID, ZONE, MANAGEMENT_MACS, MANAGEMENT_MAC, GATEWAY_CONFIG]
                .contains(&unreadable.annotation)
        };
        let trouble = |Unreadable { annotation, why }: &Unreadable| {
            NodeProblem::UnreadableAnnotation { annotation, why: why.clone() }
        };
        let exceeded = [Family::V4, Family::V6].into_iter().find_map(|family| {
            let of_family =
                self.host_addresses.iter().filter(|address| Family::of(address) == family);
            NODE_PORT_ADDRESSES.check(of_family.count()).err()
        });
        let exceeded = exceeded.filter(|_| self.node_ports).map(NodeProblem::TooManyAddresses);
        self.unreadable.iter().filter(own).map(trouble).chain(exceeded)
    }

    /// Whether both have the same rows. Labels and the object's identity do not matter.
    pub(crate) fn same_rows(&self, other: &Self) -> bool {
        self.same_for_pods(other)
            && (self.id, self.management_mac, self.router_mac, self.forwarded_source)
                == (other.id, other.management_mac, other.router_mac, other.forwarded_source)
            // As for the zone: unreadable is not the same as missing.
            && (self.gateway, self.knows_gateway()) == (other.gateway, other.knows_gateway())
            && (&self.join, &self.transit) == (&other.join, &other.transit)
    }

    /// Whether the gateways of both have the same rows.
    pub(crate) fn same_gateway(&self, other: &Self) -> bool {
        self.same_for_pods(other)
            && (&self.gateway, &self.external, &self.join, self.id)
                == (&other.gateway, &other.external, &other.join, other.id)
            && (
                self.knows_gateway(),
                self.answers_large_packets,
                self.node_ports,
                &self.host_addresses,
            ) == (
                other.knows_gateway(),
                other.answers_large_packets,
                other.node_ports,
                &other.host_addresses,
            )
    }

    /// The addresses of a family at which NodePorts are, in the order of their variables. Of many,
    /// those at which others know the node come first: each is a front end of each NodePort, in the
    /// rows of all nodes if these have variables.
    pub fn node_port_addresses(&self, family: Family) -> Vec<IpAddr> {
        let addresses = self
            .host_addresses
            .iter()
            .filter(|address| self.node_ports && Family::of(address) == family);
        let mut addresses: Vec<IpAddr> = addresses.copied().collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.len() > NODE_PORT_ADDRESSES.most {
            addresses.sort_by_key(|address| !self.own_addresses.contains(address));
            addresses.truncate(NODE_PORT_ADDRESSES.most);
            addresses.sort_unstable();
        }
        addresses
    }

    /// Whether NodePorts are at the same addresses of both.
    pub(crate) fn same_addresses(&self, other: &Self) -> bool {
        (&self.host_addresses, &self.own_addresses, self.node_ports)
            == (&other.host_addresses, &other.own_addresses, other.node_ports)
    }

    /// Whether both have the same addresses of the host, known or not.
    pub(crate) fn same_host(&self, other: &Self) -> bool {
        (&self.host_addresses, self.lacks_host_addresses())
            == (&other.host_addresses, other.lacks_host_addresses())
    }

    /// Whether the pods of both have the same rows.
    pub(crate) fn same_for_pods(&self, other: &Self) -> bool {
        self.same_place(other) && (&self.chassis, &self.subnets) == (&other.chassis, &other.subnets)
    }

    fn same_place(&self, other: &Self) -> bool {
        (&self.zone, &self.next_zone, self.is_leaving)
            == (&other.zone, &other.next_zone, other.is_leaving)
            // Without a zone, an unreadable annotation means an unknown zone, and a missing one may
            // mean `global`.
            && (self.zone.is_some() || self.is_unreadable(&[ZONE]) == other.is_unreadable(&[ZONE]))
    }
}
