//! Why a pod has no addresses, or others than its annotation claims, worded for an event on it.

use std::{net::IpAddr, sync::Arc};

use contract::{
    limits::{Exceeded, TOO_LARGE},
    mac::Mac,
    names::PodKey,
};
use ipnet::IpNet;

use crate::{
    key::NodeName,
    problem::{ASSIGN_ADDRESSES, ProblemText},
};

/// Why a pod has no addresses, or others than its annotation claims. A pod without addresses gets
/// them as soon as the reason is gone, without a retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodProblem {
    #[error("node {0} has no subnet yet; the cluster manager gives it one")]
    NodeWithoutSubnet(NodeName),
    #[error(
        "no free address in {subnet} of node {node}; pods of this node have to end first, \
         or nodes need larger subnets"
    )]
    NoFreeAddress { node: NodeName, subnet: IpNet },
    /// The pod had its network before, or another zone assigns it: no other addresses can be given
    /// here.
    #[error(
        "{0}; a pod that runs is not given another address: delete this pod, and its successor gets one"
    )]
    Claim(ClaimProblem),
    /// The pod never had a network, so it has nothing to lose.
    #[error("{0}; the annotation does not count, and the pod gets a new address")]
    IgnoredClaim(ClaimProblem),
    /// It has its network. Rules that name the port are not about this one of its numbers.
    #[error("its port {name:?}: {exceeded}")]
    PortNumbers { name: Arc<str>, exceeded: Exceeded },
}

/// Why the network that a pod's annotation claims does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimProblem {
    #[error("its annotation claims {address}, which pod {by} has")]
    AddressTaken { address: IpAddr, by: PodKey },
    #[error(
        "its annotation claims {address}, which the logical switch port {port} of node {node} has"
    )]
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

impl ProblemText for PodProblem {
    const ACTION: &'static str = ASSIGN_ADDRESSES;

    fn reason(&self) -> &'static str {
        match self {
            Self::NodeWithoutSubnet(_) => "NodeWithoutSubnet",
            Self::NoFreeAddress { .. } => "NoFreeAddress",
            Self::Claim(claim) | Self::IgnoredClaim(claim) => claim.reason(),
            Self::PortNumbers { .. } => TOO_LARGE,
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Self::IgnoredClaim(_) => "what a pod's annotation claims does not count",
            Self::PortNumbers { .. } => "a number of a pod's port does not count",
            Self::NodeWithoutSubnet(_) | Self::NoFreeAddress { .. } | Self::Claim(_) => {
                "a pod does not get its network"
            }
        }
    }
}

impl ClaimProblem {
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

impl ProblemText for SharedAddress {
    const ACTION: &'static str = ASSIGN_ADDRESSES;

    fn reason(&self) -> &'static str {
        "AddressShared"
    }

    fn message(&self) -> &'static str {
        "a pod shares its address"
    }
}
