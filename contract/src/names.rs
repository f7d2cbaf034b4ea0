//! The names that identify a pod's network, and their rules.
//!
//! Each name is checked once, here, when it enters a program. The rules of CNI names are those of
//! the Go library's `skel` and `utils`; the rules of Kubernetes names are those of DNS-1123.

use std::{fmt, str::FromStr, sync::Arc};

use crate::definition::{
    ADMIN_NETWORK_POLICY, BASELINE_ADMIN_NETWORK_POLICY, CLUSTER_NETWORK_POLICY, CUSTOM_NAME,
    CustomKind, Definition,
};

/// Longest name of a network interface in the kernel, in bytes (`IFNAMSIZ` less the final zero).
const MAX_IFNAME: usize = 15;

/// Names that no pod's interface may have: `all` and `default` are directories beside the
/// interfaces in /proc/sys/net, and each namespace has its own `lo`.
const RESERVED: [&str; 5] = [".", "..", "lo", "all", "default"];

/// The key of the cluster's own network in the annotation `k8s.ovn.org/pod-networks`.
const DEFAULT_KEY: &str = "default";

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} {rule}")]
pub struct BadName {
    /// What the name is for: `container id`, `pod name` and so on.
    pub what: &'static str,
    /// The first 64 characters of the refused name.
    pub value: String,
    /// The broken rule, to be read after the value.
    pub rule: &'static str,
}

impl BadName {
    fn new(what: &'static str, value: &str, rule: &'static str) -> Self {
        Self { what, value: value.chars().take(64).collect(), rule }
    }
}

/// Id of a sandbox: `CNI_CONTAINERID`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId(String);

impl SandboxId {
    /// The id as the runtime spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host end of the veth of the cluster's own network: the first 15 characters of the id, or
    /// fewer if the id is shorter. An id that is no valid interface name (`lo`, `all`, `default`)
    /// gets a `_` appended.
    pub fn host_if_name(&self) -> IfName {
        let name: String = self.0.chars().take(MAX_IFNAME).collect();
        IfName(if RESERVED.contains(&name.as_str()) { name + "_" } else { name })
    }

    /// The host end of the veth of another network: as much of the id as leaves room for `_` and
    /// the index of the pod's end.
    pub fn host_if_name_with(&self, pod_if_index: u32) -> IfName {
        let suffix = format!("_{pod_if_index}");
        let id: String = self.0.chars().take(MAX_IFNAME - suffix.len()).collect();
        IfName(id + &suffix)
    }

    /// The host end of the veth, if its name is known before the veth exists. On another network
    /// the name contains an interface index that the kernel assigns.
    pub fn host_if_name_beforehand(&self, network: &Network) -> Option<IfName> {
        match network {
            Network::Default => Some(self.host_if_name()),
            Network::Attachment { .. } => None,
        }
    }
}

impl FromStr for SandboxId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = |rule| Err(BadName::new("container id", text, rule));
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return bad("does not start with a letter or digit");
        }
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)) {
            return bad("has characters other than letters, digits, '_', '.' and '-'");
        }
        if text.len() > 255 {
            return bad("is longer than 255 characters");
        }
        Ok(Self(text.to_owned()))
    }
}

/// Name of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IfName(String);

impl IfName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IfName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let bad = |rule| Err(BadName::new("interface name", text, rule));
        if text.is_empty() || text.len() > MAX_IFNAME {
            return bad("is not 1 to 15 bytes long");
        }
        if RESERVED.contains(&text) {
            return bad("is reserved");
        }
        if text.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) {
            return bad("has a '/', a ':', white space or a control character");
        }
        Ok(Self(text.to_owned()))
    }
}

/// Namespace and name of an object, as `namespace/name`. A clone shares the text.
///
/// The place of the '/' is not stored: a key of two words is in a dozen tables of the controller
/// for each pod, and a third word would be 1.5 MB for 10,000 pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Namespaced(Arc<str>);

impl Namespaced {
    /// `what`: the words for namespace and name in an error.
    fn new(what: [&'static str; 2], namespace: &str, name: &str) -> Result<Self, BadName> {
        check_dns_name(what[0], namespace, 63)?;
        check_dns_name(what[1], name, 253)?;
        Ok(Self(format!("{namespace}/{name}").into()))
    }

    fn namespace(&self) -> &str {
        self.parts().0
    }

    fn name(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').expect("`new` puts a '/' between namespace and name")
    }
}

/// A pod: its namespace and name. A clone shares the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey(Namespaced);

impl PodKey {
    /// Both must be names of Kubernetes objects. These never contain `_`, which separates the two
    /// in [`IfaceId`].
    ///
    /// # Errors
    /// Kubernetes would not accept one of the two; the error says which one and why.
    pub fn new(namespace: &str, name: &str) -> Result<Self, BadName> {
        Namespaced::new(["pod namespace", "pod name"], namespace, name).map(Self)
    }

    /// The namespace, without the name.
    pub fn namespace(&self) -> &str {
        self.0.namespace()
    }

    /// The name, without the namespace.
    pub fn name(&self) -> &str {
        self.0.name()
    }
}

/// A Service: its namespace and name. A clone shares the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey(Namespaced);

impl ServiceKey {
    /// Both must be names of Kubernetes objects. These never contain `_`, which separates the parts
    /// of a load balancer's name.
    ///
    /// # Errors
    /// Kubernetes would not accept one of the two; the error says which one and why.
    pub fn new(namespace: &str, name: &str) -> Result<Self, BadName> {
        Namespaced::new(["service namespace", "service name"], namespace, name).map(Self)
    }

    /// The namespace, without the name.
    pub fn namespace(&self) -> &str {
        self.0.namespace()
    }

    /// The name, without the namespace.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.0.0
    }
}

impl FromStr for ServiceKey {
    type Err = BadName;

    /// Reads `namespace/name`.
    fn from_str(text: &str) -> Result<Self, BadName> {
        let (namespace, name) =
            text.split_once('/').ok_or_else(|| BadName::new("service", text, "has no '/'"))?;
        Self::new(namespace, name)
    }
}

/// An EndpointSlice: its namespace, which is that of its Service, and its name. A clone shares the
/// text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SliceKey(Namespaced);

impl SliceKey {
    /// Both must be names of Kubernetes objects.
    ///
    /// # Errors
    /// Kubernetes would not accept one of the two; the error says which one and why.
    pub fn new(namespace: &str, name: &str) -> Result<Self, BadName> {
        Namespaced::new(["EndpointSlice namespace", "EndpointSlice name"], namespace, name)
            .map(Self)
    }

    /// The namespace, without the name.
    pub fn namespace(&self) -> &str {
        self.0.namespace()
    }
}

/// A NetworkPolicy: its namespace and name. A clone shares the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyKey(Namespaced);

impl PolicyKey {
    /// Both must be names of Kubernetes objects. These never contain `:`, which separates the parts
    /// of an id.
    ///
    /// # Errors
    /// Kubernetes would not accept one of the two; the error says which one and why.
    pub fn new(namespace: &str, name: &str) -> Result<Self, BadName> {
        Namespaced::new(["policy namespace", "policy name"], namespace, name).map(Self)
    }

    /// The namespace, without the name.
    pub fn namespace(&self) -> &str {
        self.0.namespace()
    }

    /// The name, without the namespace.
    pub fn name(&self) -> &str {
        self.0.name()
    }
}

impl fmt::Display for PolicyKey {
    /// `namespace/name`, as kubectl prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.0)
    }
}

/// A kind of policy of the whole cluster, of the group `policy.networking.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterPolicyKind {
    /// Of both tiers.
    ClusterNetworkPolicy,
    /// The predecessor of those in the tier before NetworkPolicies.
    AdminNetworkPolicy,
    /// The predecessor of those in the tier behind NetworkPolicies.
    BaselineAdminNetworkPolicy,
}

impl ClusterPolicyKind {
    pub const ALL: [Self; 3] =
        [Self::ClusterNetworkPolicy, Self::AdminNetworkPolicy, Self::BaselineAdminNetworkPolicy];

    /// `kind` in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterNetworkPolicy => "ClusterNetworkPolicy",
            Self::AdminNetworkPolicy => "AdminNetworkPolicy",
            Self::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
        }
    }

    /// Where the API has the kind.
    pub fn definition(self) -> &'static Definition {
        match self {
            Self::ClusterNetworkPolicy => &CLUSTER_NETWORK_POLICY,
            Self::AdminNetworkPolicy => &ADMIN_NETWORK_POLICY,
            Self::BaselineAdminNetworkPolicy => &BASELINE_ADMIN_NETWORK_POLICY,
        }
    }
}

/// A policy of the whole cluster: its kind and name. A clone shares the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterPolicyKey {
    pub kind: ClusterPolicyKind,
    name: Arc<str>,
}

impl ClusterPolicyKey {
    /// # Errors
    /// Kubernetes would not accept the name; the error says why.
    pub fn new(kind: ClusterPolicyKind, name: &str) -> Result<Self, BadName> {
        check_dns_name("policy name", name, 253)?;
        Ok(Self { kind, name: name.into() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ClusterPolicyKey {
    /// `Kind name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// The namespace of an object of which a namespace has one.
///
/// # Errors
/// Kubernetes would not accept the namespace, or the object has another name than [`CUSTOM_NAME`].
pub fn of_custom(kind: CustomKind, namespace: &str, name: &str) -> Result<Arc<str>, BadName> {
    check_dns_name("namespace", namespace, 63)?;
    if name != CUSTOM_NAME {
        return Err(BadName::new(kind.as_str(), name, "has no effect: its name has to be default"));
    }
    Ok(namespace.into())
}

/// Whether a Node object can have this name.
///
/// # Errors
/// It is no DNS-1123 subdomain.
pub fn check_node_name(text: &str) -> Result<(), BadName> {
    check_dns_name("node name", text, 253)
}

/// A DNS-1123 subdomain of this length at most.
fn check_dns_name(what: &'static str, text: &str, longest: usize) -> Result<(), BadName> {
    if text.is_empty() {
        return Err(BadName::new(what, text, "is empty"));
    }
    if text.len() > longest {
        return Err(BadName::new(what, text, "is too long"));
    }
    if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
    {
        return Err(BadName::new(
            what,
            text,
            "has characters other than lower-case letters, digits, '-' and '.'",
        ));
    }
    // This also refuses `..`, which a path or a URL of the API would take for the parent directory.
    let is_end = |c: char| c.is_ascii_alphanumeric();
    if !text.split('.').all(|label| label.starts_with(is_end) && label.ends_with(is_end)) {
        return Err(BadName::new(
            what,
            text,
            "has a part that does not begin and end with a letter or digit",
        ));
    }
    Ok(())
}

/// A network that a pod can be attached to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Network {
    /// The cluster's own.
    Default,
    /// The network of a network attachment definition.
    Attachment {
        /// The network's name in the configuration.
        name: String,
        /// `<namespace>/<name>` of the definition: its key in the pod's annotation.
        nad: String,
    },
}

impl Network {
    /// The network with this key in the annotation, and with this name if it is one of a
    /// definition.
    pub fn of_key(key: String, name: String) -> Self {
        match key.as_str() {
            // Empty in answers and requests of older programs.
            "" | DEFAULT_KEY => Self::Default,
            _ => Self::Attachment { name, nad: key },
        }
    }

    /// The key of this network in the annotation `k8s.ovn.org/pod-networks`.
    pub fn annotation_key(&self) -> &str {
        match self {
            Self::Default => DEFAULT_KEY,
            Self::Attachment { nad, .. } => nad,
        }
    }
}

/// Name of a logical switch port, and `iface-id` of the interface that is bound to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IfaceId(String);

impl IfaceId {
    /// `<namespace>_<pod>`. For networks other than the cluster's own, prefixed with
    /// `<nad with '-' and '/' as '.'>_`.
    pub fn new(pod: &PodKey, network: &Network) -> Self {
        let (namespace, name) = (pod.namespace(), pod.name());
        Self(match network {
            Network::Default => format!("{namespace}_{name}"),
            Network::Attachment { nad, .. } => {
                format!("{}_{namespace}_{name}", nad.replace(['-', '/'], "."))
            }
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for IfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for IfaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PodKey {
    /// `namespace/name`, as kubectl prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.0)
    }
}

impl fmt::Display for ServiceKey {
    /// `namespace/name`, as kubectl prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.0)
    }
}

impl fmt::Display for SliceKey {
    /// `namespace/name`, as kubectl prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.0)
    }
}

#[cfg(test)]
mod tests;
