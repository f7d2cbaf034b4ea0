//! What one object, and all objects of one namespace, may cost: one table for all programs.
//!
//! A user of a namespace may write objects of 1.5 MB, and thousands of them. What such an object
//! costs is counted before anything is made of it, and compared with its limits here. What happens
//! beyond a limit is the same in every program, and an event names limit and value ([`Exceeded`]).
//! `docs/limits.md` is generated from [`ALL`].

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

/// Bytes of the specification of a policy or an EgressFirewall, as JSON without spaces.
pub const SPECIFICATION: usize = 1 << 20;

/// The kinds as Kubernetes spells them.
pub const NETWORK_POLICY: &str = "NetworkPolicy";
/// The limits of an AdminNetworkPolicy and a BaselineAdminNetworkPolicy are the same.
const CLUSTER_NETWORK_POLICY: &str = "ClusterNetworkPolicy";
pub const EGRESS_FIREWALL: &str = "EgressFirewall";
const EGRESS_QOS: &str = "EgressQoS";
pub const SERVICE: &str = "Service";
const POD: &str = "Pod";
const NODE: &str = "Node";

/// The kinds that have limits: the values of a metric's label.
pub const KINDS: [&str; 7] = [
    NETWORK_POLICY,
    CLUSTER_NETWORK_POLICY,
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
    EGRESS_FIREWALL,
    EGRESS_QOS,
    SERVICE,
];

const POLICY_CLOSED: &str = "it isolates its pods and allows nothing";
const CLUSTER_POLICY_CLOSED: &str = "it denies everything in each direction that it has rules for";
const QOS_CLOSED: &str = "it marks nothing";
const FIREWALL_CLOSED: &str = "it denies everything outside of the cluster";
const READ_SIZE: &str = "ten thousand networks with an exception each are 700 kB; a value takes up to fifty times in \
                         memory what it takes as text, so that the size is known before values are made";

/// Bytes of a NetworkPolicy's specification.
pub static NETWORK_POLICY_BYTES: Limit = Limit {
    of: Subject::Each(NETWORK_POLICY),
    counted: "bytes of specification",
    most: SPECIFICATION,
    beyond: POLICY_CLOSED,
    why: READ_SIZE,
};

/// ACLs of a NetworkPolicy.
pub static NETWORK_POLICY_ACLS: Limit = Limit {
    of: Subject::Each(NETWORK_POLICY),
    counted: "ACLs",
    most: 4096,
    beyond: POLICY_CLOSED,
    why: "a rule is one ACL for each protocol and kind of peers, and equal rules are one; all of them go into one \
          transaction, and ovn-northd reads each",
};

/// Elements of the matches of a NetworkPolicy.
pub static NETWORK_POLICY_ELEMENTS: Limit = Limit {
    of: Subject::Each(NETWORK_POLICY),
    counted: "networks, address sets and ports in matches",
    most: 32_768,
    beyond: POLICY_CLOSED,
    why: "ovn-controller makes about a flow of each on every node with a pod of the \
          policy; the lists of networks of countries and clouds have ten thousand",
};

/// Address sets that a NetworkPolicy names.
pub static NETWORK_POLICY_SETS: Limit = Limit {
    of: Subject::Each(NETWORK_POLICY),
    counted: "different selectors of peers and names of ports",
    most: 256,
    beyond: POLICY_CLOSED,
    why: "each is a set of addresses, of all pods of the cluster at worst, and a pod that comes is written into \
          each set that it is in",
};

/// Bytes of the specifications of the NetworkPolicies of a namespace.
pub static NETWORK_POLICIES_BYTES: Limit = Limit {
    of: Subject::AllOfNamespace(NETWORK_POLICY),
    counted: "bytes of specification",
    most: 4 << 20,
    beyond: POLICY_CLOSED,
    why: "a thousand policies of 4 kB; a policy takes up to three times as much in memory",
};

/// ACLs of the NetworkPolicies of a namespace.
pub static NETWORK_POLICIES_ACLS: Limit = Limit {
    of: Subject::AllOfNamespace(NETWORK_POLICY),
    counted: "ACLs",
    most: 8192,
    beyond: POLICY_CLOSED,
    why: "a thousand policies of eight; the database, ovn-northd and the control plane have each, some kilobytes \
          in all",
};

/// Elements of the matches of the NetworkPolicies of a namespace.
pub static NETWORK_POLICIES_ELEMENTS: Limit = Limit {
    of: Subject::AllOfNamespace(NETWORK_POLICY),
    counted: "networks, address sets and ports in matches",
    most: 65_536,
    beyond: POLICY_CLOSED,
    why: "a node with pods of the namespace has about a flow for each",
};

/// Address sets that the NetworkPolicies of a namespace name.
pub static NETWORK_POLICIES_SETS: Limit = Limit {
    of: Subject::AllOfNamespace(NETWORK_POLICY),
    counted: "different selectors of peers and names of ports of each policy",
    most: 1024,
    beyond: POLICY_CLOSED,
    why: "each new pod of the cluster is compared with each, and written into those that it is in",
};

/// Numbers that pods of a namespace give to one name of a port.
pub static PORT_NUMBERS: Limit = Limit {
    of: Subject::AllOfNamespace(POD),
    counted: "numbers of one protocol with the same name of a port",
    most: 16,
    beyond: "rules that name the port are about the lowest ones alone",
    why: "each is an alternative in every rule about all pods that has the name, whoever wrote the rule, and one pod \
          may have thousands of containers",
};

/// Bytes of the specification of a policy of the cluster.
pub static CLUSTER_POLICY_BYTES: Limit = Limit {
    of: Subject::Each(CLUSTER_NETWORK_POLICY),
    counted: "bytes of specification",
    most: SPECIFICATION,
    beyond: "it has no effect, and cannot be created where its definition has upstream's limits",
    why: READ_SIZE,
};

/// ACLs of a policy of the cluster.
pub static CLUSTER_POLICY_ACLS: Limit = Limit {
    of: Subject::Each(CLUSTER_NETWORK_POLICY),
    counted: "ACLs",
    most: 4096,
    beyond: CLUSTER_POLICY_CLOSED,
    why: "as for a NetworkPolicy",
};

/// Elements of the matches of a policy of the cluster.
pub static CLUSTER_POLICY_ELEMENTS: Limit = Limit {
    of: Subject::Each(CLUSTER_NETWORK_POLICY),
    counted: "networks, address sets and ports in matches",
    most: 32_768,
    beyond: CLUSTER_POLICY_CLOSED,
    why: "as for a NetworkPolicy",
};

/// Bytes of an EgressFirewall's specification.
pub static EGRESS_FIREWALL_BYTES: Limit = Limit {
    of: Subject::Each(EGRESS_FIREWALL),
    counted: "bytes of specification",
    most: SPECIFICATION,
    beyond: FIREWALL_CLOSED,
    why: "8,001 rules with a network and a port each are 900 kB",
};

/// Elements of the matches of an EgressFirewall.
pub static EGRESS_FIREWALL_ELEMENTS: Limit = Limit {
    of: Subject::Each(EGRESS_FIREWALL),
    counted: "networks, address sets and ports in matches",
    most: 32_768,
    beyond: FIREWALL_CLOSED,
    why: "as for a NetworkPolicy; a rule about nodes counts as 256, as there is a flow of each of their addresses",
};

/// Rules of an EgressFirewall.
pub static EGRESS_FIREWALL_RULES: Limit = Limit {
    of: Subject::Each(EGRESS_FIREWALL),
    counted: "rules",
    most: 8001,
    beyond: "the last one that is in use denies everything",
    why: "each rule has a priority of its own, as upstream has them: 10000 to 2000",
};

/// Rules of an EgressQoS.
pub static EGRESS_QOS_RULES: Limit = Limit {
    of: Subject::Each(EGRESS_QOS),
    counted: "rules",
    most: 1000,
    beyond: QOS_CLOSED,
    why: "each rule has a priority of its own, as upstream has them: 1000 to 1; a namespace \
          has one EgressQoS",
};

/// Rules of an EgressQoS with a selector of pods.
pub static EGRESS_QOS_SELECTORS: Limit = Limit {
    of: Subject::Each(EGRESS_QOS),
    counted: "rules with a selector of pods",
    most: 256,
    beyond: QOS_CLOSED,
    why: "each has an address set of its own, and a new pod is written into each set that it \
          is in, as for a NetworkPolicy",
};

/// Bytes of an EgressQoS's specification.
pub static EGRESS_QOS_BYTES: Limit = Limit {
    of: Subject::Each(EGRESS_QOS),
    counted: "bytes of specification",
    most: SPECIFICATION,
    beyond: QOS_CLOSED,
    why: "1,000 rules with a network and a selector of some labels each are 300 kB",
};

/// Addresses and ports where a Service takes connections.
pub static SERVICE_FRONT_ENDS: Limit = Limit {
    of: Subject::Each(SERVICE),
    counted: "addresses and ports (a node port counts as one)",
    most: 5_000,
    beyond: "ports from the first one beyond it on are not served",
    why: "each is a flow of ovn-northd, which takes 0.3 ms for it, and before OVN 24.03 as much again for each new pod",
};

/// Backends of one address and port of a Service.
pub static PORT_BACKENDS: Limit = Limit {
    of: Subject::Each(SERVICE),
    counted: "backends of a port in one family",
    most: 2048,
    beyond: "that port and those behind it are not served",
    why: "they are one group of Open vSwitch, which compares each with each: with 10,000 a userspace datapath \
          forwards nothing for a minute; Kubernetes supports 250",
};

/// Backends of a Service over all of its addresses and ports.
pub static SERVICE_BACKENDS: Limit = Limit {
    of: Subject::Each(SERVICE),
    counted: "backends, source ranges and EndpointSlices over all of its addresses and ports",
    most: 32_768,
    beyond: "ports from the first one beyond it on are not served",
    why: "ovn-controller makes about a flow of each on every node, as of a NetworkPolicy's elements; Kubernetes \
          supports 250 pods behind a port, and a Service of 5,000 ports has six",
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
    most: 65_536,
    beyond: "Services younger than those that fit are not served",
    why: "two Services of the largest size; 3,000 pods behind 20 addresses and ports are less",
};

/// Connections of UDP that a node removes because their endpoints are gone: kinds of them, by
/// address, port and endpoint.
pub static STALE_CONNECTIONS: Limit = Limit {
    of: Subject::AllOfNamespace(SERVICE),
    counted: "addresses and ports of UDP that have lost an endpoint within a minute",
    most: 1024,
    beyond: "clients of the others that keep sending stay with the endpoint that is gone until they pause",
    why: "a Service of a thousand ports; a node's switch looks through its connections for each, twelve times",
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
pub static ALL: [&Limit; 25] = [
    &NETWORK_POLICY_BYTES,
    &NETWORK_POLICY_ACLS,
    &NETWORK_POLICY_ELEMENTS,
    &NETWORK_POLICY_SETS,
    &NETWORK_POLICIES_BYTES,
    &NETWORK_POLICIES_ACLS,
    &NETWORK_POLICIES_ELEMENTS,
    &NETWORK_POLICIES_SETS,
    &PORT_NUMBERS,
    &CLUSTER_POLICY_BYTES,
    &CLUSTER_POLICY_ACLS,
    &CLUSTER_POLICY_ELEMENTS,
    &EGRESS_FIREWALL_RULES,
    &EGRESS_FIREWALL_BYTES,
    &EGRESS_FIREWALL_ELEMENTS,
    &EGRESS_QOS_RULES,
    &EGRESS_QOS_SELECTORS,
    &EGRESS_QOS_BYTES,
    &SERVICE_FRONT_ENDS,
    &PORT_BACKENDS,
    &SERVICE_BACKENDS,
    &NAMESPACE_FRONT_ENDS,
    &NAMESPACE_BACKENDS,
    &STALE_CONNECTIONS,
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
            Subject::Each(_) => {
                write!(f, "it has {value} {counted}, and {most} can be used; {beyond}")
            }
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
