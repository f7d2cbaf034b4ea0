//! What the API server said, as far as it matters, with the indexes that features need. One task owns it; nobody locks it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use contract::{annotation::PodNetwork, names::PodKey};
use ipnet::IpNet;

use crate::{
    config::{ClusterConfig, Zone},
    key::{Change, Key, NodeName},
    observation::{Observation, Seen},
};

/// What is known of the cluster.
#[derive(Debug)]
pub struct Store {
    pub config: ClusterConfig,
    nodes: BTreeMap<NodeName, Node>,
    pods: HashMap<PodKey, Pod>,
    pods_of: HashMap<NodeName, BTreeSet<PodKey>>,
    assigned: HashMap<PodKey, Arc<PodNetwork>>,
    nodes_listed: bool,
    pods_listed: bool,
}

/// What to write on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAnnotation {
    pub pod: PodKey,
    pub uid: Arc<str>,
    pub annotations: BTreeMap<&'static str, String>,
}

/// A node, as its annotations describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: NodeName,
    /// Of each family at most one; empty as long as the cluster manager has given none.
    pub subnets: Vec<IpNet>,
    /// OVN's name of the node's chassis; none as long as the node has not said it.
    pub chassis: Option<String>,
    pub zone: Zone,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub uid: Arc<str>,
    pub node: Option<NodeName>,
    pub host_network: bool,
    pub phase: Phase,
    /// What its annotation says; it may be another program's, of before, or preset by the pod's owner.
    pub annotated: Annotated,
}

/// Whether a pod needs its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Active,
    /// Succeeded or failed: its containers will never run again.
    Ended,
}

/// The network that a pod's annotation gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Annotated {
    Nothing,
    Network(Arc<PodNetwork>),
    /// It cannot be used, and why.
    Unusable(String),
}

impl Store {
    pub fn new(config: ClusterConfig) -> Self {
        Self {
            config,
            nodes: BTreeMap::new(),
            pods: HashMap::new(),
            pods_of: HashMap::new(),
            assigned: HashMap::new(),
            nodes_listed: false,
            pods_listed: false,
        }
    }

    pub fn pod(&self, key: &PodKey) -> Option<&Pod> {
        self.pods.get(key)
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The network that a pod has: from its annotation, or given to it here.
    pub fn assigned(&self, key: &PodKey) -> Option<&PodNetwork> {
        self.assigned.get(key).map(|network| &**network)
    }

    /// Whether the node's full rows belong into this zone's database.
    pub fn is_local(&self, node: &str) -> bool {
        self.node(node).is_some_and(|node| node.zone == self.config.zone)
    }

    pub fn pods_of<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        self.pods_of.get(node).into_iter().flatten()
    }

    /// Takes a node as it is now; what became different.
    pub fn put_node(&mut self, node: Node) -> Option<Change> {
        let name = Arc::clone(&node.name);
        let before = self.nodes.insert(Arc::clone(&name), node);
        let now = &self.nodes[&name];
        (before.as_ref() != Some(now))
            .then(|| Change::Node { subnets: before.is_none_or(|before| before.subnets != now.subnets || before.zone != now.zone), name })
    }

    /// Takes a pod as it is now; what became different.
    pub fn put_pod(&mut self, key: PodKey, pod: Pod) -> Option<Change> {
        if self.pods.get(&key) == Some(&pod) {
            return None;
        }
        self.remove_pod(&key);
        if let Some(node) = &pod.node {
            self.pods_of.entry(Arc::clone(node)).or_default().insert(key.clone());
        }
        if let Annotated::Network(network) = &pod.annotated {
            self.assigned.insert(key.clone(), Arc::clone(network));
        }
        self.pods.insert(key.clone(), pod);
        Some(Change::Pod(key))
    }

    fn remove_pod(&mut self, key: &PodKey) -> Option<Change> {
        let pod = self.pods.remove(key)?;
        self.assigned.remove(key);
        if let Some(node) = &pod.node {
            self.pods_of.entry(Arc::clone(node)).or_default().remove(key);
        }
        Some(Change::Pod(key.clone()))
    }

    fn remove_node(&mut self, name: &NodeName) -> Option<Change> {
        self.nodes.remove(name).map(|node| Change::Node { name: node.name, subnets: true })
    }

    /// Takes what a watch saw; what became different.
    pub fn observe(&mut self, observation: Observation) -> Vec<Change> {
        match observation {
            Observation::Nodes(Seen::All(nodes)) => {
                self.nodes_listed = true;
                let listed: BTreeSet<NodeName> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
                let gone: Vec<NodeName> = self.nodes.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                let mut changes: Vec<Change> = gone.iter().filter_map(|name| self.remove_node(name)).collect();
                changes.extend(nodes.into_iter().filter_map(|node| self.put_node(node)));
                changes
            }
            Observation::Nodes(Seen::Applied(node)) => self.put_node(node).into_iter().collect(),
            Observation::Nodes(Seen::Deleted(name)) => self.remove_node(&name).into_iter().collect(),
            Observation::Pods(Seen::All(pods)) => {
                self.pods_listed = true;
                let listed: BTreeSet<PodKey> = pods.iter().map(|(key, _)| key.clone()).collect();
                let gone: Vec<PodKey> = self.pods.keys().filter(|key| !listed.contains(*key)).cloned().collect();
                let mut changes: Vec<Change> = gone.iter().filter_map(|key| self.remove_pod(key)).collect();
                changes.extend(pods.into_iter().filter_map(|(key, pod)| self.put_pod(key, pod)));
                changes
            }
            Observation::Pods(Seen::Applied((key, pod))) => self.put_pod(key, pod).into_iter().collect(),
            Observation::Pods(Seen::Deleted(key)) => self.remove_pod(&key).into_iter().collect(),
        }
    }

    /// Whether every watch has told its first list.
    pub fn is_complete(&self) -> bool {
        self.nodes_listed && self.pods_listed
    }

    /// Everything that could have rows.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.nodes.keys().cloned().map(Key::Node).chain(self.pods.keys().cloned().map(Key::Pod))
    }

    /// The database shows the rows of this key as they should be.
    pub fn settled(&mut self, _key: &Key) -> Vec<Change> {
        Vec::new()
    }

    /// What was decided for pods since the last call.
    pub fn take_annotations(&mut self) -> Vec<PodAnnotation> {
        Vec::new()
    }
}
