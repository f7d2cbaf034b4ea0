//! What of a NetworkPolicy cannot be used, or does not do what its author may expect.

use ipnet::IpNet;
use kubeapi::services::Protocol;

use crate::{
    kinds::network_policy::object::Unusable, problem::ProblemText, select::peer::Direction,
};

/// Something of a policy that its owner should know of. The rest of it counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyProblem {
    #[error(transparent)]
    Unusable(Box<Unusable>),
    #[error(
        "its annotation k8s.ovn.org/acl-stateless has no effect without the option \
         --enable-stateless-netpol; the connections that it allows are tracked"
    )]
    StatelessOff,
    #[error(
        "its annotation k8s.ovn.org/policy-dry-run asks for a dry run, and OVN's northbound database is of a \
         release without tiers of ACLs; the policy has no effect, and nothing is logged"
    )]
    NoDryRun,
    #[error(
        "its ipBlock {0} covers nothing: its exceptions cover it, or pods have no addresses of its family"
    )]
    EmptyBlock(IpNet),
    #[error(
        "its {place} rules name the port {name:?} ({}), which no {} has; it allows nothing",
        protocol.as_str(), match place { Direction::Ingress => "selected pod", Direction::Egress => "pod" }
    )]
    NoSuchPort { place: Direction, name: Box<str>, protocol: Protocol },
}

impl ProblemText for PolicyProblem {
    fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(unusable) => unusable.reason(),
            Self::StatelessOff => "AnnotationWithoutEffect",
            Self::NoDryRun => "NoTiers",
            Self::EmptyBlock(_) => "EmptyBlock",
            Self::NoSuchPort { .. } => "NoSuchPort",
        }
    }

    fn message(&self) -> &'static str {
        "a part of a NetworkPolicy cannot be used"
    }
}
