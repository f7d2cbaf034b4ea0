//! A pod, as its object describes it.

use std::{collections::BTreeMap, sync::Arc};

use contract::annotation::PodNetwork;

use crate::key::NodeName;

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub uid: Arc<str>,
    /// Seconds since 1970; decides between two that claim the same address.
    pub created: i64,
    pub node: Option<NodeName>,
    pub host_network: bool,
    pub phase: Phase,
    /// What its annotation says; it may be another program's, of before, or preset by the pod's owner.
    pub annotated: Annotated,
    /// The annotation's text, if it speaks of networks other than the cluster's own: those entries are to stay.
    pub other_networks: Option<Arc<str>>,
    /// What its annotations are, for what is written over them.
    pub texts: Texts,
    /// Of the mirror of a static pod: the pod's own identity on the node. The mirror's UID is another after each time that somebody deletes
    /// the mirror, while the pod goes on.
    pub config_hash: Option<Arc<str>>,
}

/// A pod's annotations as they were read. A network that was decided on them is written over them and over no others: those are another
/// leader's, who decided later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Texts {
    /// The pod has no annotations at all.
    #[default]
    NoneAtAll,
    /// It has some; of those that say its network, these.
    These(Arc<BTreeMap<&'static str, String>>),
    /// They say what the pod has, so that nothing is written over them, and are not kept.
    Right,
}

/// Whether a pod needs its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Active,
    /// Succeeded or failed: its containers will never run again.
    Ended,
}

/// The network that a pod's annotations give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Annotated {
    Nothing,
    Network {
        network: Arc<PodNetwork>,
        spelled: Spelled,
    },
    /// It cannot be used, and why.
    Unusable(String),
}

/// Which annotations say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelled {
    /// `k8s.ovn.org/pod-networks`.
    Current,
    /// `ovn` alone, as in 2018.
    Legacy,
    Both,
}

impl Pod {
    /// A running pod of which only the identity is known.
    pub fn with_uid(uid: &str) -> Self {
        Self {
            uid: uid.into(),
            created: 0,
            node: None,
            host_network: false,
            phase: Phase::Active,
            annotated: Annotated::Nothing,
            other_networks: None,
            texts: Texts::default(),
            config_hash: None,
        }
    }

    /// Whether this is the same pod on the same node, under its name.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_static = self.config_hash.is_some() && self.config_hash == other.config_hash;
        (is_static || self.uid == other.uid) && self.node == other.node
    }

    /// Whether a port was made for this very pod, by the UID that the port says.
    pub(super) fn is_of(&self, port_uid: Option<&Arc<str>>) -> bool {
        port_uid == Some(&self.uid) || port_uid.is_none() && self.config_hash.is_some()
    }

    /// Whether it is to have an address and a port of its node's switch, once it has a node.
    pub fn needs_network(&self) -> bool {
        self.phase == Phase::Active && !self.host_network
    }
}
