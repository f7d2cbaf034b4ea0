//! Why a node's annotations cannot be used, worded for an event on it.

use std::net::IpAddr;

use contract::limits::{Exceeded, TOO_LARGE};
use ipnet::IpNet;

use crate::{key::NodeName, problem::ProblemText};

use kubeapi::services::Family;

/// Why a node does not get all that the cluster manager assigns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeProblem {
    #[error(
        "no free {family} subnet is left in the cluster subnets; add one to --cluster-subnets or remove nodes"
    )]
    NoFreeSubnet { family: Family },
    #[error("no node id is left: {most} nodes have one")]
    NoFreeId { most: u16 },
    #[error(
        "its annotation {annotation} claims {subnet}, which overlaps {other} of node {by}; \
         delete the annotation of one of both"
    )]
    SubnetTaken { annotation: &'static str, subnet: IpNet, other: IpNet, by: NodeName },
    #[error(
        "its annotation k8s.ovn.org/node-id claims {id}, which node {by} has; \
         delete the annotation of one of both"
    )]
    IdTaken { id: u16, by: NodeName },
    #[error(
        "its annotation k8s.ovn.org/node-id claims {id}, which no node can have \
         (0 is unused, 1 is the cluster router's); delete the annotation"
    )]
    IdReserved { id: u16 },
    #[error(
        "its annotation k8s.ovn.org/node-chassis-id names the chassis {chassis}, which node {by} has; this node \
         has no way to the cluster router and no gateway until node {by} is deleted, or unreachable. Delete that \
         Node object if the node has another name now; give a cloned machine an own system-id"
    )]
    ChassisTaken { chassis: String, by: NodeName },
    #[error(
        "node {by} names this node's chassis {chassis} in its annotation k8s.ovn.org/node-chassis-id, too, and \
         does not get it while this Node object lives and the node is reachable"
    )]
    ChassisClaimed { chassis: String, by: NodeName },
    #[error(
        "its address {address} on the join switch is that of node {by}; its gateway stays as it was until one \
         of both has another annotation k8s.ovn.org/node-id"
    )]
    JoinAddressTaken { address: IpAddr, by: NodeName },
    #[error(
        "its subnet {subnet} is outside of --cluster-subnets; it stays as long as the node does: \
         add the range again, or drain the node, delete it and let it join anew"
    )]
    OutsideOfRanges { subnet: IpNet },
    #[error(
        "its address {address} in the annotation {annotation} is outside of the subnets that the options \
         give; it stays, so that not all nodes change at once: drain the node, delete the annotation, and it \
         gets another one"
    )]
    OutsideOfSubnets { annotation: &'static str, address: IpNet },
    #[error("id {id} has no address in {subnet}; a larger subnet is needed")]
    SubnetTooSmall { id: u16, subnet: IpNet },
    #[error(transparent)]
    TooManyAddresses(Exceeded),
    #[error(
        "its annotations k8s.ovn.org/zone-name and k8s.ovn.org/zone-next lead into the zone {zone} \
         and out of it again and again; they count after a pause that doubles, up to a minute"
    )]
    ZoneChangesOften { zone: String },
    #[error("its annotation {annotation} cannot be read: {why}; correct or delete it")]
    UnreadableAnnotation { annotation: &'static str, why: String },
}

impl ProblemText for NodeProblem {
    fn reason(&self) -> &'static str {
        match self {
            Self::TooManyAddresses(_) => TOO_LARGE,
            Self::NoFreeSubnet { .. } => "NoFreeSubnet",
            Self::NoFreeId { .. } => "NoFreeNodeId",
            Self::SubnetTaken { .. } => "SubnetTaken",
            Self::IdTaken { .. } => "NodeIdTaken",
            Self::IdReserved { .. } => "NodeIdReserved",
            Self::ChassisTaken { .. } => "ChassisTaken",
            Self::ChassisClaimed { .. } => "ChassisClaimed",
            Self::JoinAddressTaken { .. } => "JoinAddressTaken",
            Self::OutsideOfRanges { .. } => "OutsideOfClusterSubnets",
            Self::OutsideOfSubnets { .. } => "OutsideOfSubnets",
            Self::SubnetTooSmall { .. } => "SubnetTooSmall",
            Self::ZoneChangesOften { .. } => "ZoneChangesOften",
            Self::UnreadableAnnotation { .. } => "UnreadableAnnotation",
        }
    }

    fn message(&self) -> &'static str {
        "a node's annotations cannot be used"
    }
}

impl NodeProblem {
    /// Whether the node id in the node's annotation is at fault.
    pub(crate) fn is_of_id(&self) -> bool {
        match self {
            Self::IdTaken { .. } | Self::IdReserved { .. } => true,
            Self::NoFreeSubnet { .. }
            | Self::NoFreeId { .. }
            | Self::SubnetTaken { .. }
            | Self::OutsideOfRanges { .. }
            | Self::OutsideOfSubnets { .. }
            | Self::SubnetTooSmall { .. }
            | Self::ChassisTaken { .. }
            | Self::ChassisClaimed { .. }
            | Self::JoinAddressTaken { .. }
            | Self::TooManyAddresses(_)
            | Self::ZoneChangesOften { .. }
            | Self::UnreadableAnnotation { .. } => false,
        }
    }
}
