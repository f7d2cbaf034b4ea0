//! Why a pod has no addresses or a node no subnet, worded for an event on that object.
//!
//! Knows neither events nor the API server.

use std::{net::IpAddr, sync::Arc};

use contract::{
    limits::{Exceeded, TOO_LARGE},
    mac::Mac,
    names::{PodKey, ServiceKey},
};
use ipnet::IpNet;
pub use kubeapi::services::Family;
use kubeapi::services::{Claim, Unusable};

use crate::key::NodeName;

/// A failure reason, and the object that it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble<Subject, Why> {
    pub subject: Subject,
    pub uid: Arc<str>,
    pub why: Why,
}

/// Why a pod has no addresses, or others than its annotation claims. A pod without addresses gets them as soon
/// as the reason is gone, without a retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodTrouble {
    #[error("node {0} has no subnet yet; the cluster manager gives it one")]
    NodeWithoutSubnet(NodeName),
    #[error(
        "no free address in {subnet} of node {node}; pods of this node have to end first, \
         or nodes need larger subnets"
    )]
    NoFreeAddress { node: NodeName, subnet: IpNet },
    /// The pod had its network before, or another zone assigns it: no other addresses can be given here.
    #[error("{0}; a pod that runs is not given another address: delete this pod, and its successor gets one")]
    Claim(ClaimTrouble),
    /// The pod never had a network, so it has nothing to lose.
    #[error("{0}; the annotation does not count, and the pod gets a new address")]
    IgnoredClaim(ClaimTrouble),
    /// It has its network. Rules that name the port are not about this one of its numbers.
    #[error("its port {name:?}: {exceeded}")]
    PortNumbers { name: Arc<str>, exceeded: Exceeded },
}

/// Why the network that a pod's annotation claims does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimTrouble {
    #[error("its annotation claims {address}, which pod {by} has")]
    AddressTaken { address: IpAddr, by: PodKey },
    #[error("its annotation claims {address}, which the logical switch port {port} of node {node} has")]
    AddressOfPort { address: IpAddr, port: Arc<str>, node: NodeName },
    #[error("its annotation claims {address}, which OVN itself uses on node {node}")]
    AddressReserved { address: IpAddr, node: NodeName },
    #[error("its annotation claims {address}, which is not a pod address")]
    AddressNotForPods { address: IpAddr },
    #[error("its annotation claims {address}, which node {node} has itself")]
    AddressOfHost { address: IpAddr, node: NodeName },
    #[error(
        "its annotation claims {address}, which is in a subnet of node {node}, and the pod is on another node"
    )]
    AddressElsewhere { address: IpAddr, node: NodeName },
    #[error("its annotation claims {address}, which is in no subnet of its node {node}")]
    AddressOutside { address: IpAddr, node: NodeName },
    #[error("its annotation claims the MAC {mac}, which belongs to another port of node {node}")]
    MacTaken { mac: Mac, node: NodeName },
    #[error("its annotation cannot be used: {0}")]
    Unusable(String),
}

/// A port that is not the controller's has come later and has a pod's address, too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the logical switch port {port} of node {node} has this pod's address {address}, too; \
     delete that port or give it another address, or delete this pod, and its successor gets another one"
)]
pub struct SharedAddress {
    pub address: IpAddr,
    pub port: Arc<str>,
    pub node: NodeName,
}

/// Why a node does not get all that the cluster manager assigns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeTrouble {
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
    #[error("its annotation {annotation} cannot be read: {why}; correct or delete it")]
    UnreadableAnnotation { annotation: &'static str, why: String },
}

/// What of a Service or its endpoints cannot be used, or not as a user expects. The rest of it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceTrouble {
    #[error(transparent)]
    Unusable(Box<Unusable>),
    #[error("{exceeded}; the first of these is {first}")]
    TooLarge { exceeded: Exceeded, first: u16 },
    #[error(transparent)]
    NamespaceTooLarge(Exceeded),
    #[error(
        "its address {}, port {}/{}, is served by the Service {by}, which comes first (docs/decisions/\
         addresses-that-two-services-want.md)",
        claim.address, claim.port, claim.protocol
    )]
    AddressTaken { claim: Claim, by: ServiceKey },
    #[error(
        "its externalIPs has {address}, which is an address of the cluster itself (of a pod, a Service, OVN, a node or an \
         API server); it is left out"
    )]
    ReservedAddress { address: IpAddr },
    #[error(
        "its address {address} is in the range of no ServiceCIDR; it is served, but nodes may have no route \
         to it"
    )]
    OutsideOfRanges { address: IpAddr },
}

impl ServiceTrouble {
    /// One word for an event's `reason` and a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(unusable) => unusable.reason(),
            Self::TooLarge { .. } | Self::NamespaceTooLarge(_) => TOO_LARGE,
            Self::AddressTaken { .. } => "AddressTaken",
            Self::ReservedAddress { .. } => "ReservedAddress",
            Self::OutsideOfRanges { .. } => "OutsideOfServiceCIDRs",
        }
    }
}

impl PodTrouble {
    /// One word for an event's `reason` and a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NodeWithoutSubnet(_) => "NodeWithoutSubnet",
            Self::NoFreeAddress { .. } => "NoFreeAddress",
            Self::Claim(claim) | Self::IgnoredClaim(claim) => claim.reason(),
            Self::PortNumbers { .. } => TOO_LARGE,
        }
    }
}

impl ClaimTrouble {
    fn reason(&self) -> &'static str {
        match self {
            Self::AddressTaken { .. } => "AddressTaken",
            Self::AddressOfPort { .. } => "AddressOfPort",
            Self::AddressReserved { .. } => "AddressReserved",
            Self::AddressOfHost { .. } => "AddressOfHost",
            Self::AddressElsewhere { .. } => "AddressElsewhere",
            Self::AddressOutside { .. } => "AddressOutsideOfSubnet",
            Self::AddressNotForPods { .. } => "AddressNotForPods",
            Self::MacTaken { .. } => "MacTaken",
            Self::Unusable(_) => "UnusableAnnotation",
        }
    }
}

impl NodeTrouble {
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
            | Self::UnreadableAnnotation { .. } => false,
        }
    }

    /// One word for an event's `reason` and a metric's label.
    pub fn reason(&self) -> &'static str {
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
            Self::UnreadableAnnotation { .. } => "UnreadableAnnotation",
        }
    }
}
