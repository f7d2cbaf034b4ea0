//! What keeps a pod from its addresses or a node from its subnet, in words for an event on that object.
//!
//! Knows neither events nor the API server.

use std::{net::IpAddr, sync::Arc};

use contract::names::PodKey;
use ipnet::IpNet;

use crate::key::NodeName;

/// A trouble, and the object that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble<Subject, Why> {
    pub subject: Subject,
    pub uid: Arc<str>,
    pub why: Why,
}

/// Why a pod has no addresses. It gets them as soon as the reason is gone; nothing has to be asked again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodTrouble {
    #[error("node {0} has no subnet yet; the cluster manager gives it one")]
    NodeWithoutSubnet(NodeName),
    #[error("no free address in {subnet} of node {node}; pods of this node have to end first, or nodes need larger subnets")]
    NoFreeAddress { node: NodeName, subnet: IpNet },
    #[error("its annotation claims {address}, which pod {by} has; delete one of both pods, or the annotation")]
    AddressTaken { address: IpAddr, by: PodKey },
    #[error("its annotation claims {address}, which OVN itself uses on node {node}; delete the annotation")]
    AddressReserved { address: IpAddr, node: NodeName },
    #[error("its annotation cannot be used: {0}")]
    UnusableAnnotation(String),
}

/// Why a node has not all that the cluster manager gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeTrouble {
    #[error("no free {family} subnet is left in the cluster subnets; add one to --cluster-subnets or remove nodes")]
    NoFreeSubnet { family: Family },
    #[error("no node id is left: {most} nodes have one")]
    NoFreeId { most: u16 },
    #[error("its annotation {annotation} claims {subnet}, which overlaps {other} of node {by}; delete the annotation of one of both")]
    SubnetTaken { annotation: &'static str, subnet: IpNet, other: IpNet, by: NodeName },
    #[error("its annotation k8s.ovn.org/node-id claims {id}, which node {by} has; delete the annotation of one of both")]
    IdTaken { id: u16, by: NodeName },
    #[error("id {id} has no address in {subnet}; a larger subnet is needed")]
    SubnetTooSmall { id: u16, subnet: IpNet },
    #[error("its annotation {annotation} cannot be read: {why}; correct or delete it")]
    UnreadableAnnotation { annotation: &'static str, why: String },
}

/// Of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl PodTrouble {
    /// One word for an event's `reason` and a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NodeWithoutSubnet(_) => "NodeWithoutSubnet",
            Self::NoFreeAddress { .. } => "NoFreeAddress",
            Self::AddressTaken { .. } => "AddressTaken",
            Self::AddressReserved { .. } => "AddressReserved",
            Self::UnusableAnnotation(_) => "UnusableAnnotation",
        }
    }
}

impl NodeTrouble {
    /// One word for an event's `reason` and a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoFreeSubnet { .. } => "NoFreeSubnet",
            Self::NoFreeId { .. } => "NoFreeNodeId",
            Self::SubnetTaken { .. } => "SubnetTaken",
            Self::IdTaken { .. } => "NodeIdTaken",
            Self::SubnetTooSmall { .. } => "SubnetTooSmall",
            Self::UnreadableAnnotation { .. } => "UnreadableAnnotation",
        }
    }
}
