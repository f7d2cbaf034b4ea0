//! Whose a link is, as its alias says it: for DEL and GC when no row in Open vSwitch says so, and for the server when the database was
//! lost. Pure.
//!
//! ```text
//! ovn-k8s:<network>:<interface in the pod>:<container id>[:<pod namespace>/<pod name>:<pod uid>]
//! ```
//!
//! What is in brackets came later: links of older plugins lack it, and older plugins know links by what is before it. It is there only
//! if all of it fits.

use contract::names::{Network, PodKey};

use crate::plan::{Attachment, Identity, LONGEST_ALIAS};

/// How the aliases of this program's links begin.
const OURS: &str = "ovn-k8s";

/// What an alias says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The name of a network other than the cluster's own is not in it, and empty here.
    pub identity: Identity,
    /// None on links of older plugins, and where the names were too long.
    pub pod: Option<MarkedPod>,
}

/// The pod behind a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedPod {
    pub key: PodKey,
    /// Empty if the plugin did not know it.
    pub uid: String,
}

/// The alias of an attachment's link.
pub fn alias(attachment: &Attachment) -> String {
    let Attachment { identity, pod, pod_uid, .. } = attachment;
    let short = identity.alias();
    let long = format!("{short}:{pod}:{pod_uid}");
    if long.len() <= LONGEST_ALIAS && pod_uid.bytes().all(|byte| byte.is_ascii_graphic()) { long } else { short }
}

impl Mark {
    /// What a link's alias says, if it is one of ours.
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
            Some(MarkedPod { key: PodKey::new(namespace, name).ok()?, uid: uid.to_owned() })
        });
        // One that may have had no room for the end of the container id, or for a letter of up to four bytes, names nobody.
        let is_whole = pod.is_some() || alias.len() + 3 < LONGEST_ALIAS;
        is_whole.then_some(Self { identity: Identity { sandbox, if_name, network }, pod })
    }
}

#[cfg(test)]
mod tests;
