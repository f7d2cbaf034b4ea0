//! What the API server said, as far as it matters, with the indexes that features need, and the networks that pods have.
//!
//! One task owns it; nobody locks it. It does no I/O: observations go in, changes and annotations to write come out.
//!
//! | module | what it is about |
//! |---|---|
//! | [`wire`] | objects of the API, reduced while they are read |
//! | `node`, `pod` | what is kept of them |
//! | `observe` | an observation becomes a change |
//! | `doubts` | lists that lack much are not believed at first |
//! | `assign` | pods get addresses, keep them, wait for them, give them back |
//! | `foreign` | addresses of ports that are not ours |
//! | `announce` | annotations to write, troubles to tell |

mod announce;
mod assign;
mod doubts;
mod foreign;
mod node;
mod observe;
mod pod;
pub mod wire;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::{annotation::PodNetwork, names::PodKey, node_annotation::ZONE};
use ipnet::IpNet;

pub use announce::PodAnnotation;
pub use assign::FoundPort;
pub use foreign::ForeignAddress;
pub use node::{Node, Unreadable};
pub use pod::{Annotated, Phase, Pod, Spelled, Texts};

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
    /// What nodes claim that others have.
    contested: BTreeMap<NodeName, Vec<IpNet>>,
    pods: HashMap<PodKey, Known>,
    pods_of: HashMap<NodeName, BTreeSet<PodKey>>,
    /// Static pods without a mirror at the moment.
    absent: BTreeSet<PodKey>,
    addresses: Addresses,
    /// Addresses that pods no longer use, while their ports may still be there.
    leaving: assign::Leaving,
    found: assign::Found,
    foreign: foreign::ForeignAddresses,
    waiting: assign::Waiting,
    outbox: announce::Outbox,
    listed: Listed,
    doubts: doubts::Doubts,
}

/// Whose database has a node's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    Elsewhere,
    Unknown,
}

/// Rows that stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Nothing,
    /// A node's port on the cluster's router.
    RouterPort,
    All,
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
            contested: BTreeMap::new(),
            pods: HashMap::new(),
            pods_of: HashMap::new(),
            absent: BTreeSet::new(),
            addresses: Addresses::default(),
            leaving: assign::Leaving::default(),
            found: assign::Found::default(),
            foreign: foreign::ForeignAddresses::default(),
            waiting: assign::Waiting::default(),
            outbox: announce::Outbox::default(),
            listed: Listed::default(),
            doubts: doubts::Doubts::default(),
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
        self.node(node).is_some_and(|node| self.place(node) == Place::Here)
    }

    fn place(&self, node: &Node) -> Place {
        match &node.zone {
            Some(zone) if *zone == self.config.zone => Place::Here,
            Some(_) => Place::Elsewhere,
            // Without zones nobody speaks of them. Where there are some, the node will say it in a moment.
            None if self.config.zone == Zone::default() && !node.is_unreadable(&[ZONE]) => Place::Here,
            None => Place::Unknown,
        }
    }

    /// What of a key's rows stays as it is, because something that decides on them is not known: its annotation got lost or cannot be read
    /// (and was not read before, by this process). Only that an object is gone, or is readably otherwise, takes rows away.
    pub fn kept(&self, key: &Key) -> Kept {
        match key {
            Key::Cluster => Kept::Nothing,
            Key::Node(name) => match self.node(name) {
                Some(node) if self.place(node) == Place::Elsewhere => Kept::Nothing,
                Some(node) if !self.is_decided(node) => Kept::All,
                Some(Node { chassis: None, .. }) => Kept::RouterPort,
                Some(_) | None => Kept::Nothing,
            },
            Key::Pod(key) => {
                let node = self.pod(key).filter(|pod| pod.needs_network()).and_then(|pod| self.node(pod.node.as_ref()?));
                match node {
                    Some(node) if self.place(node) != Place::Elsewhere && !self.is_decided(node) => Kept::All,
                    Some(_) | None => Kept::Nothing,
                }
            }
        }
    }

    /// Whether it is known what the node's rows are made of.
    fn is_decided(&self, node: &Node) -> bool {
        self.place(node) == Place::Here && !node.subnets.is_empty()
    }

    /// Of the object that the key is about, for events on it.
    pub fn uid(&self, key: &Key) -> Option<Arc<str>> {
        match key {
            Key::Cluster => None,
            Key::Node(name) => self.node(name).map(|node| Arc::clone(&node.uid)),
            Key::Pod(key) => self.pod(key).map(|pod| Arc::clone(&pod.uid)),
        }
    }

    pub fn pods_of<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        self.pods_of.get(node).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;
