//! The fields of a Node object that the store keeps.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use contract::{
    mac::Mac,
    node_annotation::{CHASSIS_ID, GATEWAY_CONFIG, GatewayMode, MANAGEMENT_MAC, MANAGEMENT_MACS, ZONE},
};
use ipnet::IpNet;
use kubeapi::services::Family;

use crate::{config::Zone, key::NodeName, trouble::NodeTrouble};

/// A node as its annotations describe it. An unreadable annotation counts as missing, and is listed in
/// `unreadable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: NodeName,
    pub uid: Arc<str>,
    /// `resourceVersion`. A decision on this version is written to no other one.
    pub version: Arc<str>,
    /// Seconds since 1970. The older of two nodes gets what both claim.
    pub created: i64,
    /// The subnets of its pods, at most one of each family; empty until the cluster manager assigns them.
    pub subnets: Vec<IpNet>,
    /// OVN's name of the node's chassis; none until the node writes it.
    pub chassis: Option<String>,
    /// None until the node writes it. In a cluster with the one zone `global` that means `global`.
    pub zone: Option<Zone>,
    /// The node's number from the cluster manager. The join and transit addresses derive from it.
    pub id: Option<u16>,
    /// Addresses of its gateway router on the join switch, at most one of each family.
    pub join: Vec<IpNet>,
    /// Addresses of the node on the transit switch between zones, at most one of each family.
    pub transit: Vec<IpNet>,
    /// MAC of its management port. Only older programs write it; otherwise the MAC derives from the address.
    pub management_mac: Option<Mac>,
    /// All addresses of the host.
    pub host_addresses: Vec<IpAddr>,
    /// Whether ports of the node lead to services; false if the node says so.
    pub node_ports: bool,
    /// The zone of the data centre, from its label.
    pub topology_zone: Option<Arc<str>>,
    /// None if no program has set up a gateway on the node.
    pub gateway: Option<GatewayMode>,
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
            zone: None,
            id: None,
            join: Vec::new(),
            transit: Vec::new(),
            management_mac: None,
            host_addresses: Vec::new(),
            node_ports: true,
            topology_zone: None,
            gateway: None,
            labels: Arc::default(),
            annotations: Arc::default(),
            unreadable: Vec::new(),
        }
    }

    /// The problem with one of these annotations, if one cannot be read.
    pub fn unreadable(&self, annotations: &[&str]) -> Option<NodeTrouble> {
        let found = self.unreadable.iter().find(|unreadable| annotations.contains(&unreadable.annotation))?;
        Some(NodeTrouble::UnreadableAnnotation { annotation: found.annotation, why: found.why.clone() })
    }

    /// Takes the values of missing and unreadable annotations from an earlier version of the same node
    /// object: an annotation that is lost or garbled for a moment changes nothing.
    pub(super) fn keep(&mut self, before: &Self) {
        let Self {
            subnets,
            chassis,
            zone,
            id,
            join,
            transit,
            management_mac,
            host_addresses,
            node_ports,
            gateway,
            ..
        } = before;
        if self.subnets.is_empty() {
            self.subnets.clone_from(subnets);
        }
        self.chassis = self.chassis.take().or_else(|| chassis.clone());
        self.zone = self.zone.take().or_else(|| zone.clone());
        self.id = self.id.or(*id);
        if self.join.is_empty() {
            self.join.clone_from(join);
        }
        if self.transit.is_empty() {
            self.transit.clone_from(transit);
        }
        self.gateway = self.gateway.or(*gateway);
        // A missing annotation has a meaning here (the MAC derives from the address); unreadable text has
        // none.
        if self.is_unreadable(&[MANAGEMENT_MACS, MANAGEMENT_MAC]) {
            self.management_mac = *management_mac;
        }
        if self.host_addresses.is_empty() {
            self.host_addresses.clone_from(host_addresses);
        }
        if self.is_unreadable(&[GATEWAY_CONFIG]) {
            self.node_ports = *node_ports;
        }
    }

    /// Whether the mode of its gateway is known, the absence of a gateway included.
    pub(crate) fn knows_gateway(&self) -> bool {
        self.gateway.is_some() || !self.is_unreadable(&[GATEWAY_CONFIG])
    }

    pub(super) fn is_unreadable(&self, annotations: &[&str]) -> bool {
        self.unreadable.iter().any(|unreadable| annotations.contains(&unreadable.annotation))
    }

    /// Unreadable annotations among those that the node writes. The cluster manager reports its own.
    pub(super) fn troubles(&self) -> impl Iterator<Item = NodeTrouble> + '_ {
        let own = |unreadable: &&Unreadable| {
            [CHASSIS_ID, ZONE, MANAGEMENT_MACS, MANAGEMENT_MAC, GATEWAY_CONFIG]
                .contains(&unreadable.annotation)
        };
        let trouble = |Unreadable { annotation, why }: &Unreadable| NodeTrouble::UnreadableAnnotation {
            annotation,
            why: why.clone(),
        };
        self.unreadable.iter().filter(own).map(trouble)
    }

    /// Whether both have the same rows. Labels and the object's identity do not matter.
    pub(super) fn same_rows(&self, other: &Self) -> bool {
        self.same_for_pods(other)
            && (self.id, self.management_mac) == (other.id, other.management_mac)
            // As for the zone: unreadable is not the same as missing.
            && (self.gateway, self.knows_gateway()) == (other.gateway, other.knows_gateway())
            && (&self.join, &self.transit) == (&other.join, &other.transit)
    }

    /// The addresses of a family at which NodePorts are, in the order of their variables.
    pub fn template_addresses(&self, family: Family) -> Vec<IpAddr> {
        let addresses =
            self.host_addresses.iter().filter(|address| self.node_ports && Family::of(address) == family);
        let mut addresses: Vec<IpAddr> = addresses.copied().collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Whether the load balancers of Services treat both alike.
    pub(super) fn same_for_services(&self, other: &Self) -> bool {
        self.same_place(other)
            && self.subnets.is_empty() == other.subnets.is_empty()
            && (&self.host_addresses, self.node_ports, &self.topology_zone)
                == (&other.host_addresses, other.node_ports, &other.topology_zone)
    }

    /// Whether the pods of both have the same rows.
    pub(super) fn same_for_pods(&self, other: &Self) -> bool {
        self.same_place(other) && (&self.chassis, &self.subnets) == (&other.chassis, &other.subnets)
    }

    fn same_place(&self, other: &Self) -> bool {
        self.zone == other.zone
            // Without a zone, an unreadable annotation means an unknown zone, and a missing one may mean
            // `global`.
            && (self.zone.is_some() || self.is_unreadable(&[ZONE]) == other.is_unreadable(&[ZONE]))
    }
}
