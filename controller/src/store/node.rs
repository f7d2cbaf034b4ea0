//! A node, as its object describes it.

use std::{collections::BTreeMap, sync::Arc};

use contract::{
    mac::Mac,
    node_annotation::{CHASSIS_ID, MANAGEMENT_MAC, MANAGEMENT_MACS, ZONE},
};
use ipnet::IpNet;

use crate::{config::Zone, key::NodeName, trouble::NodeTrouble};

/// A node, as its annotations describe it. What is there but cannot be read counts as not there, and is in `unreadable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: NodeName,
    pub uid: Arc<str>,
    /// `resourceVersion`: what is decided on this version is written on no other.
    pub version: Arc<str>,
    /// Seconds since 1970; decides between two that claim the same.
    pub created: i64,
    /// Addresses of its pods. Of each family at most one; empty as long as the cluster manager has given none.
    pub subnets: Vec<IpNet>,
    /// OVN's name of the node's chassis; none as long as the node has not said it.
    pub chassis: Option<String>,
    /// None as long as the node has not said it, which means the one zone of a cluster that has no more.
    pub zone: Option<Zone>,
    pub id: Option<u16>,
    /// Its gateway router on the join switch.
    pub join: Vec<IpNet>,
    /// Itself on the switch between zones.
    pub transit: Vec<IpNet>,
    /// Of its management port; only older programs write it, else it follows from the address.
    pub management_mac: Option<Mac>,
    pub labels: Arc<BTreeMap<String, String>>,
    /// The annotations as they are, for writing one network's part without losing others'.
    pub annotations: Arc<BTreeMap<String, String>>,
    pub unreadable: Vec<Unreadable>,
}

/// An annotation that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub annotation: &'static str,
    pub why: String,
}

impl Node {
    /// A node of which only the name is known.
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
            labels: Arc::default(),
            annotations: Arc::default(),
            unreadable: Vec::new(),
        }
    }

    /// The trouble that one of these annotations makes, if it cannot be read.
    pub fn unreadable(&self, annotations: &[&str]) -> Option<NodeTrouble> {
        let found = self.unreadable.iter().find(|unreadable| annotations.contains(&unreadable.annotation))?;
        Some(NodeTrouble::UnreadableAnnotation { annotation: found.annotation, why: found.why.clone() })
    }

    /// Annotations get lost, or are garbled for a moment; this is the same node as before, and has what it had.
    pub(super) fn keep(&mut self, before: &Self) {
        let Self { subnets, chassis, zone, id, join, transit, management_mac, .. } = before;
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
        // That it is not there says something: the MAC follows from the address.
        if self.is_unreadable(&[MANAGEMENT_MACS, MANAGEMENT_MAC]) {
            self.management_mac = *management_mac;
        }
    }

    pub(super) fn is_unreadable(&self, annotations: &[&str]) -> bool {
        self.unreadable.iter().any(|unreadable| annotations.contains(&unreadable.annotation))
    }

    /// What cannot be read of that which the node itself writes; of the others the cluster manager tells, whose they are.
    pub(super) fn troubles(&self) -> impl Iterator<Item = NodeTrouble> + '_ {
        let own = |unreadable: &&Unreadable| [CHASSIS_ID, ZONE, MANAGEMENT_MACS, MANAGEMENT_MAC].contains(&unreadable.annotation);
        let trouble = |Unreadable { annotation, why }: &Unreadable| NodeTrouble::UnreadableAnnotation { annotation, why: why.clone() };
        self.unreadable.iter().filter(own).map(trouble)
    }

    /// Whether what rows are made of is the same; labels, and which object it is, do not matter for that.
    pub(super) fn same_rows(&self, other: &Self) -> bool {
        self.same_for_pods(other)
            && (self.id, self.management_mac) == (other.id, other.management_mac)
            && (&self.join, &self.transit) == (&other.join, &other.transit)
    }

    /// Whether what its pods' rows are made of is the same.
    pub(super) fn same_for_pods(&self, other: &Self) -> bool {
        (&self.zone, &self.chassis, &self.subnets) == (&other.zone, &other.chassis, &other.subnets)
            && (self.zone.is_some() || self.is_unreadable(&[ZONE]) == other.is_unreadable(&[ZONE]))
    }
}
