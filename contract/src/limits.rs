//! What one object, and all objects of one namespace, may cost: one table for all programs.
//!
//! A user of a namespace may write objects of 1.5 MB, and thousands of them. What such an object costs is
//! counted before anything is made of it, and compared with its limits here. What happens beyond a limit is the
//! same in every program, and an event names limit and value ([`Exceeded`]). `docs/limits.md` is generated from
//! [`ALL`].

use std::fmt;

/// What the objects of a kind may cost.
#[derive(Debug, PartialEq, Eq)]
pub struct Limit {
    pub of: Subject,
    /// The thing that is counted: a plural noun with its unit, such as `bytes of matches`.
    pub counted: &'static str,
    /// The most that is in use.
    pub most: usize,
    /// What happens to an object that costs more: a sentence about the object, without a full stop.
    pub beyond: &'static str,
    /// The reason for this value, without a full stop.
    pub why: &'static str,
}

/// The objects that a limit is about, by their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// One object of the kind.
    Each(&'static str),
    /// All objects of the kind in a namespace together. Older ones come first.
    AllOfNamespace(&'static str),
}

/// A cost that is beyond its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    pub limit: &'static Limit,
    /// What the object costs, or all objects of its namespace up to this one.
    pub value: usize,
}

/// The reason of the event about an object beyond a limit.
pub const TOO_LARGE: &str = "TooLarge";

/// The kinds as Kubernetes spells them.
const EGRESS_FIREWALL: &str = "EgressFirewall";
const SERVICE: &str = "Service";
const NODE: &str = "Node";

/// Rules of an EgressFirewall.
pub static EGRESS_FIREWALL_RULES: Limit = Limit {
    of: Subject::Each(EGRESS_FIREWALL),
    counted: "rules",
    most: 8001,
    beyond: "the last one that is in use denies everything",
    why: "each rule has a priority of its own, as upstream has them: 10000 to 2000",
};

/// Addresses and ports where a Service takes connections.
pub static SERVICE_FRONT_ENDS: Limit = Limit {
    of: Subject::Each(SERVICE),
    counted: "addresses and ports (a node port counts as one)",
    most: 5_000,
    beyond: "ports from the first one beyond it on are not served",
    why: "each is a flow of ovn-northd, which takes 0.3 ms for it, and before OVN 24.03 as much again for each new pod",
};

/// Backends of a Service over all of its addresses and ports.
pub static SERVICE_BACKENDS: Limit = Limit {
    of: Subject::Each(SERVICE),
    counted: "backends, source ranges and EndpointSlices over all of its addresses and ports",
    most: 100_000,
    beyond: "ports from the first one beyond it on are not served",
    why: "a hundred thousand are a row of two megabytes, which ovn-northd still turns into flows; Kubernetes \
          supports 250 pods behind a port, and with a tenth a Service of 5,000 ports and a few pods would lose some",
};

/// Addresses and ports of all Services of a namespace.
pub static NAMESPACE_FRONT_ENDS: Limit = Limit {
    of: Subject::AllOfNamespace(SERVICE),
    counted: "addresses and ports (a node port counts as one)",
    most: 10_000,
    beyond: "Services younger than those that fit are not served",
    why: "Kubernetes supports 5,000 Services in a namespace: each with two",
};

/// Backends of all Services of a namespace.
pub static NAMESPACE_BACKENDS: Limit = Limit {
    of: Subject::AllOfNamespace(SERVICE),
    counted: "backends, source ranges and EndpointSlices over all addresses and ports",
    most: 200_000,
    beyond: "Services younger than those that fit are not served",
    why: "two Services of the largest size; 3,000 pods behind 30 addresses and ports are less than half of it",
};

/// Addresses of a node at which OVN serves node ports.
pub static NODE_PORT_ADDRESSES: Limit = Limit {
    of: Subject::Each(NODE),
    counted: "addresses of a family in k8s.ovn.org/host-cidrs",
    most: 8,
    beyond: "node ports are served for pods at the first ones alone, those of its gateway and its primary ones before \
             others",
    why: "with templates each node port has as many rows as the node with the most addresses, which a kubelet's \
          credential can write",
};

/// Every limit, in the order of the page.
pub static ALL: [&Limit; 6] = [
    &EGRESS_FIREWALL_RULES,
    &SERVICE_FRONT_ENDS,
    &SERVICE_BACKENDS,
    &NAMESPACE_FRONT_ENDS,
    &NAMESPACE_BACKENDS,
    &NODE_PORT_ADDRESSES,
];

impl Limit {
    /// Compares a cost with the limit.
    ///
    /// # Errors
    ///
    /// If the cost is beyond it.
    pub fn check(&'static self, value: usize) -> Result<(), Exceeded> {
        if value <= self.most { Ok(()) } else { Err(Exceeded { limit: self, value }) }
    }
}

impl Subject {
    /// Kubernetes' kind of the objects.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Each(kind) | Self::AllOfNamespace(kind) => kind,
        }
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit: Limit { of, counted, most, beyond, why: _ }, value } = self;
        match of {
            Subject::Each(_) => write!(f, "it has {value} {counted}, and {most} can be used; {beyond}"),
            Subject::AllOfNamespace(kind) => write!(
                f,
                "with it and its elders the objects of kind {kind} in the namespace have {value} {counted}, \
                 and {most} can be used; {beyond}"
            ),
        }
    }
}

impl std::error::Error for Exceeded {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_at_the_limit_is_in_use_and_one_more_is_not() {
        let limit = &EGRESS_FIREWALL_RULES;
        assert_eq!(limit.check(limit.most), Ok(()));
        let exceeded = limit.check(limit.most + 1).unwrap_err();
        assert_eq!(
            exceeded.to_string(),
            "it has 8002 rules, and 8001 can be used; the last one that is in use denies everything"
        );
    }

    #[test]
    fn a_cost_of_a_kind_has_one_limit() {
        for (index, one) in ALL.iter().enumerate() {
            let same = |other: &&&Limit| (other.of, other.counted) == (one.of, one.counted);
            assert_eq!(ALL[index + 1..].iter().find(same), None, "twice");
        }
    }
}
