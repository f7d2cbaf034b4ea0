//! What is wrong with a policy of the whole cluster, worded for an event on it.

use std::net::IpAddr;

use crate::{
    kinds::cluster_policy::object::Unusable, problem::ProblemText, select::names::DnsName,
};

/// Why a policy is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterPolicyProblem {
    #[error(transparent)]
    Unusable(Box<Unusable>),
    #[error(
        "it has rules that pass, and OVN's northbound database is of a release without tiers of ACLs; \
         only its rules that deny have an effect, without the exceptions before them"
    )]
    NoTiers,
    #[error(
        "its rules, and those before it in its tier, change their action too often: OVN has no priorities left for \
         them; only its rules that deny have an effect, without the exceptions before them: divide it into several"
    )]
    NoRoom,
    #[error(
        "the domain name {name:?} has no addresses: {why}; until then the policy allows none for it"
    )]
    NoAddresses { name: DnsName, why: Box<str> },
    #[error(
        "the domain name {name:?} has the address {address}, which is the cluster's own; no rule about names allows it"
    )]
    OwnAddress { name: DnsName, address: IpAddr },
}

impl ProblemText for ClusterPolicyProblem {
    fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(unusable) => unusable.reason(),
            Self::NoTiers => "NoTiers",
            Self::NoRoom => "NoRoom",
            Self::NoAddresses { .. } => "NoAddresses",
            Self::OwnAddress { .. } => "OwnAddress",
        }
    }

    fn message(&self) -> &'static str {
        "a part of a policy of the cluster cannot be used"
    }
}
