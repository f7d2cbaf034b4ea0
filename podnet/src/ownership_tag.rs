//! The ownership tag of a link, in its alias. DEL and GC read it if no row in Open vSwitch names
//! the owner; the server reads it if the database was lost. Pure.
//!
//! ```text
//! ovn-k8s:<network>:<interface in the pod>:<container id>[:<pod namespace>/<pod name>:<pod uid>]
//! ```
//!
//! The part in brackets was added later: links of older plugins lack it, and older plugins know
//! links by the part before it. It is written only if all of it fits.

use contract::names::{Network, PodKey};

use crate::plan::{Attachment, Identity, LONGEST_ALIAS};

/// The beginning of the aliases of this project's links.
const OURS: &str = "ovn-k8s";

/// The contents of an ownership tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipTag {
    /// Without the name of a network other than the cluster's own: it is not in the alias, and
    /// empty here.
    pub identity: Identity,
    /// `None` on links of older plugins, and if the names were too long.
    pub pod: Option<TaggedPod>,
}

/// The pod behind a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedPod {
    pub key: PodKey,
    /// Empty if the plugin did not know it.
    pub uid: String,
}

/// The alias of an attachment's link.
pub fn alias(attachment: &Attachment) -> String {
    let Attachment { identity, pod, pod_uid, .. } = attachment;
    let short = identity.alias();
    let long = format!("{short}:{pod}:{pod_uid}");
    if long.len() <= LONGEST_ALIAS && pod_uid.bytes().all(|byte| byte.is_ascii_graphic()) {
        long
    } else {
        short
    }
}

impl OwnershipTag {
    /// Reads a link's alias; `None` if it is not one of this project.
    pub fn read(alias: &str) -> Option<Self> {
        let mut parts = alias.splitn(6, ':');
        let mut part = || parts.next();
        if part()? != OURS {
            return None;
        }
        let network = match part()? {
            key if key == Network::Default.annotation_key() => Network::Default,
            nad => Network::Attachment { name: String::new(), nad: nad.to_owned() },
        };
        let (if_name, sandbox) = (part()?.parse().ok()?, part()?.parse().ok()?);
        let pod = part().zip(part()).and_then(|(pod, uid)| {
            let (namespace, name) = pod.split_once('/')?;
            Some(TaggedPod { key: PodKey::new(namespace, name).ok()?, uid: uid.to_owned() })
        });
        // Without the pod, an alias of nearly full length may lack the end of the container id, cut
        // before a character of up to four bytes. It identifies no sandbox.
        let is_whole = pod.is_some() || alias.len() + 3 < LONGEST_ALIAS;
        is_whole.then_some(Self { identity: Identity { sandbox, if_name, network }, pod })
    }
}

#[cfg(test)]
mod tests;
