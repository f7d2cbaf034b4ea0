//! What of a Service cannot be used, worded for an event on it.

use std::net::IpAddr;

use contract::{
    limits::{Exceeded, TOO_LARGE},
    names::ServiceKey,
};
use kubeapi::services::{Claim, Unusable};

use crate::problem::ProblemText;

/// What of a Service or its endpoints cannot be used, or not as a user expects. The rest of it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceProblem {
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

impl ProblemText for ServiceProblem {
    fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(unusable) => unusable.reason(),
            Self::TooLarge { .. } | Self::NamespaceTooLarge(_) => TOO_LARGE,
            Self::AddressTaken { .. } => "AddressTaken",
            Self::ReservedAddress { .. } => "ReservedAddress",
            Self::OutsideOfRanges { .. } => "OutsideOfServiceCIDRs",
        }
    }

    fn message(&self) -> &'static str {
        "a part of a Service cannot be used"
    }
}
