//! What the API server said, as far as it matters, with the indexes that features need, and the networks that pods have.
//!
//! One task owns it; nobody locks it. It does no I/O: observations go in, changes and annotations to write come out.
//!
//! | module | what it is about |
//! |---|---|
//! | [`wire`] | objects of the API, reduced while they are read |
//! | `node`, `pod` | what is kept of them |
//! | `observe` | an observation becomes a change |
//! | `assign` | pods get addresses, keep them, wait for them, give them back |
//! | `announce` | annotations to write, troubles to tell |

mod announce;
mod assign;
mod node;
mod observe;
mod pod;
pub mod wire;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::{annotation::PodNetwork, names::PodKey};
use ipnet::IpNet;

pub use announce::PodAnnotation;
pub use node::{Node, Unreadable};
pub use pod::{Annotated, Phase, Pod, Spelled};

use crate::{
    allocate::addresses::Addresses,
    config::{ClusterConfig, Zone},
    key::{Key, NodeName},
};

/// What is known of the cluster.
#[derive(Debug)]
pub struct Store {
    pub config: ClusterConfig,
    nodes: BTreeMap<NodeName, Node>,
    /// The nodes' subnets, by their first address.
    subnets: BTreeMap<IpAddr, (IpNet, NodeName)>,
    pods: HashMap<PodKey, Known>,
    pods_of: HashMap<NodeName, BTreeSet<PodKey>>,
    addresses: Addresses,
    /// Addresses that pods no longer use, while their ports may still be there.
    leaving: assign::Leaving,
    waiting: assign::Waiting,
    outbox: announce::Outbox,
    listed: Listed,
}

/// Which kinds were listed once, and whether all were.
#[derive(Debug, Default)]
struct Listed {
    nodes: bool,
    pods: bool,
    /// Both were, and what was listed is taken in.
    all: bool,
}

/// A pod, and what was decided for it.
#[derive(Debug)]
struct Known {
    pod: Pod,
    network: Option<Arc<PodNetwork>>,
    announced: announce::Announced,
}

impl Store {
    pub fn new(config: ClusterConfig) -> Self {
        Self {
            config,
            nodes: BTreeMap::new(),
            subnets: BTreeMap::new(),
            pods: HashMap::new(),
            pods_of: HashMap::new(),
            addresses: Addresses::default(),
            leaving: assign::Leaving::default(),
            waiting: assign::Waiting::default(),
            outbox: announce::Outbox::default(),
            listed: Listed::default(),
        }
    }

    /// Whether every kind was listed once. Before that nothing may be removed, and nothing is given.
    pub fn is_complete(&self) -> bool {
        self.listed.all
    }

    /// All owners of rows, at this moment.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let nodes = self.nodes.keys().cloned().map(Key::Node);
        std::iter::once(Key::Cluster).chain(nodes).chain(self.pods.keys().cloned().map(Key::Pod))
    }

    pub fn pod(&self, key: &PodKey) -> Option<&Pod> {
        self.pods.get(key).map(|known| &known.pod)
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The network that a pod has: from its annotation, or given to it here.
    pub fn assigned(&self, key: &PodKey) -> Option<&PodNetwork> {
        self.pods.get(key)?.network.as_deref()
    }

    /// Whether the node's full rows belong into this zone's database.
    pub fn is_local(&self, node: &str) -> bool {
        self.node(node).is_some_and(|node| self.is_of(&node.zone))
    }

    fn is_of(&self, zone: &Zone) -> bool {
        *zone == self.config.zone
    }

    pub fn pods_of<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        self.pods_of.get(node).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;
