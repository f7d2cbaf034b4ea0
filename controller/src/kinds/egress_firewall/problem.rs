//! What is wrong with an EgressFirewall, worded for an event on it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{kinds::egress_firewall::object::Unusable, select::names::DnsName};

/// Why an EgressFirewall does not do what its author may expect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressFirewallProblem {
    #[error(transparent)]
    Unusable(Box<Unusable>),
    #[error(
        "the name {name:?} of its rule {rule} has no addresses: {why}; until then no connection fits the rule"
    )]
    NoAddresses { rule: usize, name: DnsName, why: Box<str> },
    #[error(
        "the name {name:?} of its rule {rule} has the address {address}, which is the cluster's own; no connection to \
         it fits the rule"
    )]
    OwnAddress { rule: usize, name: DnsName, address: IpAddr },
    #[error(
        "its rule {rule} is about {net}, which has only addresses of pods; what these may reach, NetworkPolicies \
         say"
    )]
    OnlyPods { rule: usize, net: IpNet },
}

impl EgressFirewallProblem {
    /// One word for an event's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(unusable) => unusable.reason(),
            Self::NoAddresses { .. } => "NoAddresses",
            Self::OwnAddress { .. } => "OwnAddress",
            Self::OnlyPods { .. } => "OnlyPods",
        }
    }
}
