//! Ids of rows that have no name of their own, and the names that are derived from them.
//!
//! The `external_ids` of such a row hold the program that owns it, its kind, what it is about, and
//! all of that as one text, the id. Port groups and address sets are named by a hash of the id,
//! because OVN restricts their names.

use std::collections::BTreeMap;

use crate::{
    definition::CustomKind,
    fnv1a::fnv1a,
    names::{ClusterPolicyKey, ClusterPolicyKind, PolicyKey, ServiceKey},
};

/// The key of `external_ids` with the whole id.
pub const ID: &str = "k8s.ovn.org/id";
/// The key with the part of the control plane that owns the row.
pub const OWNER_CONTROLLER: &str = "k8s.ovn.org/owner-controller";
/// The key with the kind of the row.
pub const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";
/// The key with the kind of object that a load balancer serves: [`SERVICE`].
pub const KIND: &str = "k8s.ovn.org/kind";
/// The key with the object that a load balancer serves: `namespace/name`.
pub const OWNER: &str = "k8s.ovn.org/owner";
/// The [`KIND`] of a load balancer of a Service.
pub const SERVICE: &str = "Service";

/// The key with the name of what the row is about.
pub const NAME: &str = "k8s.ovn.org/name";
/// The key with the direction of a rule, as Kubernetes spells it.
const DIRECTION: &str = "direction";
/// The key with the index of a rule in its EgressFirewall.
pub const RULE_INDEX: &str = "rule-index";
/// The key with the priority of a rule.
pub const PRIORITY: &str = "priority";
/// The key with the family of the addresses of a set: `v4` or `v6`.
const IP_FAMILY: &str = "ip-family";
/// The [`OWNER_TYPE`] of what exists once for a NetworkPolicy.
pub const NETWORK_POLICY: &str = "NetworkPolicy";
/// The [`OWNER_TYPE`] of what isolates the selected pods of a namespace.
pub const NETPOL_NAMESPACE: &str = "NetpolNamespace";
/// The [`OWNER_TYPE`] of the set of a namespace's addresses, and of the port group of its pods.
pub const NAMESPACE_SET: &str = "Namespace";
/// The [`OWNER_TYPE`] of a set of the addresses of pods that selectors select.
pub const POD_SELECTOR_SET: &str = "PodSelector";
/// The [`OWNER_TYPE`] of a set of the addresses of pods that have a port of a name.
pub const NAMED_PORT_SET: &str = "NetpolNamedPort";

/// The [`OWNER_TYPE`] of a set of the addresses of nodes that a selector selects.
pub const NODE_SELECTOR_SET: &str = "NodeSelector";

/// The [`OWNER_TYPE`] of the rules of a namespace's EgressFirewall.
pub const EGRESS_FIREWALL: &str = "EgressFirewall";

/// The [`OWNER_TYPE`] of the rules about multicast in the whole cluster.
pub const MULTICAST_CLUSTER: &str = "MulticastCluster";

/// The [`OWNER_TYPE`] of the rules about the multicast of a namespace.
pub const MULTICAST_NAMESPACE: &str = "MulticastNS";
/// Kind of the ACLs that leave what a tier does not decide to the next one, and of the last one,
/// which allows it.
pub const NEXT_TIER: &str = "NextTier";

/// The [`OWNER_TYPE`] of a set of the addresses of a name of the DNS.
pub const NAME_SET: &str = "EgressFirewallDNS";

/// The [`OWNER_TYPE`] of the rule that limits a Service's load balancer to some clients.
pub const SOURCE_RANGES: &str = "ServiceSourceRanges";

/// The kinds of rows that upstream's control plane neither writes nor removes.
pub const OWN_KINDS: [&str; 5] = [
    ClusterPolicyKind::ClusterNetworkPolicy.as_str(),
    NAMED_PORT_SET,
    NEXT_TIER,
    NODE_SELECTOR_SET,
    SOURCE_RANGES,
];

/// The namespace whose set upstream fills with addresses of hosts. Policies do not select hosts
/// here (API reference of NetworkPolicy: a network plugin may ignore `hostNetwork` pods as peers),
/// so the set is upstream's.
pub const HOST_NETWORK_NAMESPACE: &str = "ovn-host-network";

/// The part of the control plane that serves the cluster's own network.
pub const CONTROLLER: &str = "default-network-controller";

/// The identity of a row. `Display` prints the id:
/// `default-network-controller:NetpolNode:n1:10.244.1.2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectId {
    owner_type: &'static str,
    /// In the order in which the id lists them.
    keys: Vec<(&'static str, String)>,
}

impl ObjectId {
    /// `keys`: in the order that the kind prescribes. An empty value is part of the id, too.
    pub fn new(
        owner_type: &'static str,
        keys: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Self {
        Self { owner_type, keys: keys.into_iter().collect() }
    }

    /// A port group of the whole cluster.
    pub fn cluster_port_group(name: &str) -> Self {
        Self::new("Cluster", [("k8s.ovn.org/name", name.to_owned())])
    }

    /// The ACL that lets a node reach the pods of its switch.
    pub fn allow_from_node(node: &str, management: std::net::IpAddr) -> Self {
        Self::new(
            "NetpolNode",
            [("k8s.ovn.org/name", node.to_owned()), ("ip", management.to_string())],
        )
    }

    /// The port group of the pods of a namespace that are isolated in a direction: `Ingress` or
    /// `Egress`.
    pub fn isolated(namespace: &str, direction: &str) -> Self {
        Self::new(
            NETPOL_NAMESPACE,
            [(NAME, namespace.to_owned()), (DIRECTION, direction.to_owned())],
        )
    }

    /// An ACL of that group. `kind`: `defaultDeny` or `arpAllow`.
    pub fn isolation(namespace: &str, direction: &str, kind: &str) -> Self {
        let keys = [(NAME, namespace), (DIRECTION, direction), ("type", kind)];
        Self::new(NETPOL_NAMESPACE, keys.map(|(key, value)| (key, value.to_owned())))
    }

    /// The port group of the pods that a policy selects.
    pub fn policy(policy: &PolicyKey) -> Self {
        Self::new(NETWORK_POLICY, [(NAME, of_policy(policy))])
    }

    /// An ACL of that group: of the rule with this index in the direction, for a protocol (`tcp`,
    /// or `None` for all). `block`: the index of the rule's IP block; none for its other peers.
    pub fn policy_rule(
        policy: &PolicyKey,
        direction: &str,
        rule: usize,
        protocol: &str,
        block: Option<usize>,
    ) -> Self {
        let keys = [
            (NAME, of_policy(policy)),
            (DIRECTION, direction.to_owned()),
            ("gress-index", rule.to_string()),
            ("port-policy-protocol", protocol.to_owned()),
            ("ip-block-index", block.map_or_else(|| "-1".to_owned(), |block| block.to_string())),
        ];
        Self::new(NETWORK_POLICY, keys)
    }

    /// An ACL of that group, of a dry run in the direction. `kind`: `wouldDrop` or `arpPass`.
    pub fn dry_run(policy: &PolicyKey, direction: &str, kind: &str) -> Self {
        let keys = [
            (NAME, of_policy(policy)),
            (DIRECTION, direction.to_owned()),
            ("type", kind.to_owned()),
        ];
        Self::new(NETWORK_POLICY, keys)
    }

    /// The port group of the pods that a policy of the whole cluster is about.
    pub fn cluster_policy(policy: &ClusterPolicyKey) -> Self {
        Self::new(policy.kind.as_str(), [(NAME, policy.name().to_owned())])
    }

    /// An ACL of that group: of the rule with this index in the direction, for a protocol (`tcp`,
    /// or `None` for all). `peers`: `all`, `pods`, `networks`, `nodes` or `domainNames`.
    pub fn cluster_policy_rule(
        policy: &ClusterPolicyKey,
        direction: &str,
        rule: usize,
        protocol: &str,
        peers: &str,
    ) -> Self {
        let keys = [
            (NAME, policy.name().to_owned()),
            (DIRECTION, direction.to_owned()),
            ("gress-index", rule.to_string()),
            ("port-policy-protocol", protocol.to_owned()),
            ("peers", peers.to_owned()),
        ];
        Self::new(policy.kind.as_str(), keys)
    }

    /// The port group of all pods of a namespace.
    pub fn namespace_group(namespace: &str) -> Self {
        Self::new(NAMESPACE_SET, [(NAME, namespace.to_owned())])
    }

    /// An ACL of that group: of the rule with this index in the namespace's EgressFirewall.
    pub fn egress_firewall_rule(namespace: &str, rule: usize) -> Self {
        Self::new(EGRESS_FIREWALL, [(NAME, namespace.to_owned()), (RULE_INDEX, rule.to_string())])
    }

    /// The row of the rule with this priority in the namespace's object of the kind.
    pub fn rule(kind: CustomKind, namespace: &str, priority: usize) -> Self {
        let keys = [(PRIORITY, priority.to_string()), (NAME, namespace.to_owned())];
        Self::new(kind.as_str(), keys)
    }

    /// The address set of the pods that such a rule is about. `family`: `v4` or `v6`.
    pub fn rule_set(kind: CustomKind, namespace: &str, priority: &str, family: &str) -> Self {
        let keys = [(NAME, namespace), (PRIORITY, priority), (IP_FAMILY, family)];
        Self::new(kind.as_str(), keys.map(|(key, value)| (key, value.to_owned())))
    }

    /// An ACL about multicast in the whole cluster. `kind`: `DefaultDeny` or `AllowInterNode`.
    pub fn multicast(kind: &str, direction: &str) -> Self {
        Self::new(MULTICAST_CLUSTER, [("type", kind.to_owned()), (DIRECTION, direction.to_owned())])
    }

    /// The ACL of a namespace's group that allows its pods' multicast in a direction: `Ingress` or
    /// `Egress`.
    pub fn multicast_of(namespace: &str, direction: &str) -> Self {
        let keys = [(NAME, namespace.to_owned()), (DIRECTION, direction.to_owned())];
        Self::new(MULTICAST_NAMESPACE, keys)
    }

    /// The ACL that limits addresses of a Service's load balancer to some clients. `family`: `v4`
    /// or `v6`.
    pub fn source_ranges(service: &ServiceKey, family: &str) -> Self {
        let name = format!("{}:{}", service.namespace(), service.name());
        Self::new(SOURCE_RANGES, [(NAME, name), (IP_FAMILY, family.to_owned())])
    }

    /// The ACL about what this tier of OVN does not decide.
    pub fn next_tier(tier: i64) -> Self {
        Self::new(NEXT_TIER, [(NAME, tier.to_string())])
    }

    /// The ACL that lets a pod reach itself through a Service.
    pub fn allow_hairpin(direction: &str) -> Self {
        let keys = [(NAME, "allow-hairpinning".to_owned()), (DIRECTION, direction.to_owned())];
        Self::new("NetpolDefault", keys)
    }

    /// An address set. `owner_type`: one of the kinds of sets above; `family`: `v4` or `v6`.
    pub fn address_set(owner_type: &'static str, name: &str, family: &str) -> Self {
        Self::new(owner_type, [(NAME, name.to_owned()), (IP_FAMILY, family.to_owned())])
    }

    /// The `external_ids` of the row.
    pub fn external_ids(&self) -> BTreeMap<&'static str, String> {
        let fixed = [
            (ID, self.to_string()),
            (OWNER_CONTROLLER, CONTROLLER.to_owned()),
            (OWNER_TYPE, self.owner_type.to_owned()),
        ];
        fixed.into_iter().chain(self.keys.iter().cloned()).collect()
    }

    /// The name of a port group or address set with this id.
    pub fn hashed(&self) -> String {
        hash(&self.to_string())
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{CONTROLLER}:{}", self.owner_type)?;
        self.keys.iter().try_for_each(|(_, value)| write!(f, ":{value}"))
    }
}

fn of_policy(policy: &PolicyKey) -> String {
    format!("{}:{}", policy.namespace(), policy.name())
}

/// A name for any text: `a`, followed by the decimal 64-bit FNV-1a.
pub fn hash(text: &str) -> String {
    format!("a{}", fnv1a(text.bytes()))
}
