//! The names that identify a pod's network: who gave them, and what they may look like.
//!
//! Each is checked once, here, when it enters a program. Rules of the CNI names are those of the Go library's `skel` and `utils`;
//! rules of Kubernetes names are those of DNS-1123.

use std::{fmt, str::FromStr, sync::Arc};

/// Longest name of a network interface in the kernel, in bytes (`IFNAMSIZ` less the final zero).
const MAX_IFNAME: usize = 15;

/// `all` and `default` are directories beside the interfaces in /proc/sys/net; `lo` is every namespace's own.
const RESERVED: [&str; 5] = [".", "..", "lo", "all", "default"];

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} {rule}")]
pub struct BadName {
    pub what: &'static str,
    pub value: String,
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
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Host end of the veth of the cluster's own network: the first 15 characters of the id; shorter ids work too. An id that no
    /// interface may be called by (`lo`, `all`, `default`) gets a `_` behind it.
    pub fn host_if_name(&self) -> IfName {
        let name: String = self.0.chars().take(MAX_IFNAME).collect();
        IfName(if RESERVED.contains(&name.as_str()) { name + "_" } else { name })
    }

    /// Host end of the veth of another network: as much of the id as leaves room for `_` and the index of the pod's end.
    pub fn host_if_name_with(&self, pod_if_index: u32) -> IfName {
        let suffix = format!("_{pod_if_index}");
        let id: String = self.0.chars().take(MAX_IFNAME - suffix.len()).collect();
        IfName(id + &suffix)
    }

    /// Host end of the veth, if its name is known before there is one: that of another network says an index, and no two have the same.
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

/// A pod: its namespace and name. A copy costs a counter, not a text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    /// `namespace/name`.
    text: Arc<str>,
    /// Where the '/' is; no namespace is longer than 63 bytes.
    separator: u8,
}

impl PodKey {
    /// Both must be names of Kubernetes objects; `_`, which separates them in [`IfaceId`], is in neither.
    ///
    /// # Errors
    /// Which of the two Kubernetes would not take, and why.
    pub fn new(namespace: &str, name: &str) -> Result<Self, BadName> {
        check_dns_name("pod namespace", namespace, 63)?;
        check_dns_name("pod name", name, 253)?;
        let separator = u8::try_from(namespace.len()).map_err(|_| BadName::new("pod namespace", namespace, "is too long"))?;
        Ok(Self { text: format!("{namespace}/{name}").into(), separator })
    }

    pub fn namespace(&self) -> &str {
        &self.text[..self.separator.into()]
    }

    pub fn name(&self) -> &str {
        &self.text[usize::from(self.separator) + 1..]
    }
}

fn check_dns_name(what: &'static str, text: &str, longest: usize) -> Result<(), BadName> {
    if text.is_empty() {
        return Err(BadName::new(what, text, "is empty"));
    }
    if text.len() > longest {
        return Err(BadName::new(what, text, "is too long"));
    }
    if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.') {
        return Err(BadName::new(what, text, "has characters other than lower-case letters, digits, '-' and '.'"));
    }
    // Not `..` either, which a path or an address in the API would take for something else.
    if !(text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.ends_with(|c: char| c.is_ascii_alphanumeric())) {
        return Err(BadName::new(what, text, "does not begin and end with a letter or digit"));
    }
    Ok(())
}

/// A network that a pod can be attached to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Network {
    /// The cluster's own.
    Default,
    /// One of a network attachment definition.
    Attachment {
        /// Its name in the configuration.
        name: String,
        /// `<namespace>/<name>` of the definition: its key in the pod's annotation.
        nad: String,
    },
}

impl Network {
    /// The key of this network in the annotation `k8s.ovn.org/pod-networks`.
    pub fn annotation_key(&self) -> &str {
        match self {
            Self::Default => "default",
            Self::Attachment { nad, .. } => nad,
        }
    }
}

/// Name of a logical switch port, and `iface-id` of the interface that is bound to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IfaceId(String);

impl IfaceId {
    /// `<namespace>_<pod>`, behind `<nad with '-' and '/' as '.'>_` for networks other than the cluster's own.
    pub fn new(pod: &PodKey, network: &Network) -> Self {
        let (namespace, name) = (pod.namespace(), pod.name());
        Self(match network {
            Network::Default => format!("{namespace}_{name}"),
            Network::Attachment { nad, .. } => format!("{}_{namespace}_{name}", nad.replace(['-', '/'], ".")),
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
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
