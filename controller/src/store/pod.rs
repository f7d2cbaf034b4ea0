//! A pod, as its object describes it.

use std::sync::Arc;

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
        }
    }

    /// Whether it is to have an address and a port of its node's switch, once it has a node.
    pub fn needs_network(&self) -> bool {
        self.phase == Phase::Active && !self.host_network
    }
}
