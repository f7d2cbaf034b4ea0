//! A node, as its object describes it.

use std::{collections::BTreeMap, sync::Arc};

use contract::mac::Mac;
use ipnet::IpNet;

use crate::{config::Zone, key::NodeName, trouble::NodeTrouble};

/// A node, as its annotations describe it. What is there but cannot be read counts as not there, and is in `unreadable`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: NodeName,
    pub uid: Arc<str>,
    /// Seconds since 1970; decides between two that claim the same.
    pub created: i64,
    /// Addresses of its pods. Of each family at most one; empty as long as the cluster manager has given none.
    pub subnets: Vec<IpNet>,
    /// OVN's name of the node's chassis; none as long as the node has not said it.
    pub chassis: Option<String>,
    pub zone: Zone,
    pub id: Option<u16>,
    /// Its gateway router on the join switch.
    pub join: Vec<IpNet>,
    /// Itself on the switch between zones.
    pub transit: Vec<IpNet>,
    /// Of its management port; only older programs write it, else it follows from the address.
    pub management_mac: Option<Mac>,
    /// Whether its datapath can check packets' sizes.
    pub gateway_mtu: bool,
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
            created: 0,
            subnets: Vec::new(),
            chassis: None,
            zone: Zone::default(),
            id: None,
            join: Vec::new(),
            transit: Vec::new(),
            management_mac: None,
            gateway_mtu: true,
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

    /// Whether what rows are made of is the same; labels, and which object it is, do not matter for that.
    pub(super) fn same_rows(&self, other: &Self) -> bool {
        self.same_for_pods(other)
            && (self.id, self.management_mac, self.gateway_mtu) == (other.id, other.management_mac, other.gateway_mtu)
            && (&self.join, &self.transit) == (&other.join, &other.transit)
    }

    /// Whether what its pods' rows are made of is the same.
    pub(super) fn same_for_pods(&self, other: &Self) -> bool {
        (&self.zone, &self.chassis, &self.subnets) == (&other.zone, &other.chassis, &other.subnets)
    }
}
