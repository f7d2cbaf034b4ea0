//! What the API server said, as far as it matters, with the indexes that features need, and the addresses that pods have.
//!
//! One task owns it; nobody locks it. It does no I/O: observations go in, changes and annotations to write come out.

mod node;
mod pod;
pub mod wire;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use contract::{annotation::PodNetwork, names::PodKey};

pub use node::{Node, Unreadable};
pub use pod::{Annotated, Phase, Pod, Spelled};

use crate::{
    config::ClusterConfig,
    key::{Change, Key, NodeName},
    observation::{Observation, Seen},
    trouble::{PodTrouble, Trouble},
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

/// Annotations that a pod is to have. They go to the pod with this uid or to none: a pod of the same name that came later gets its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAnnotation {
    pub pod: PodKey,
    pub uid: Arc<str>,
    pub annotations: BTreeMap<&'static str, String>,
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

    /// Takes what was seen; what became different.
    ///
    /// A complete list replaces what was known: what is not in it is gone. No address is given before every kind was listed once;
    /// the observation that completes the lists also reports the pods that get theirs then.
    pub fn observe(&mut self, observation: Observation) -> Vec<Change> {
        match observation {
            Observation::Nodes(Seen::All(nodes)) => {
                self.nodes_listed = true;
                nodes.into_iter().filter_map(|node| self.put_node(node)).collect()
            }
            Observation::Nodes(Seen::Applied(node)) => self.put_node(node).into_iter().collect(),
            Observation::Nodes(Seen::Deleted(name)) => {
                self.nodes.remove(&name).map(|_| Change::Node { name, pods: true }).into_iter().collect()
            }
            Observation::Pods(Seen::All(pods)) => {
                self.pods_listed = true;
                pods.into_iter().filter_map(|(key, pod)| self.put_pod(key, pod)).collect()
            }
            Observation::Pods(Seen::Applied((key, pod))) => self.put_pod(key, pod).into_iter().collect(),
            Observation::Pods(Seen::Deleted(key)) => self.pods.remove(&key).map(|_| Change::Pod(key)).into_iter().collect(),
        }
    }

    /// Whether every kind was listed once. Before that nothing may be removed, and nothing is given.
    pub fn is_complete(&self) -> bool {
        self.nodes_listed && self.pods_listed
    }

    /// All owners of rows, at this moment.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let nodes = self.nodes.keys().cloned().map(Key::Node);
        std::iter::once(Key::Cluster).chain(nodes).chain(self.pods.keys().cloned().map(Key::Pod))
    }

    /// The northbound database has exactly the rows that `key` should have now: what the rows stopped using is free.
    ///
    /// To be called only if nothing dirtied the key since its rows were computed. The changes are of pods that waited for what is free now.
    pub fn settled(&mut self, _key: &Key) -> Vec<Change> {
        Vec::new()
    }

    /// A port of this pod was found in the northbound database with these addresses: nobody else gets them before the key is settled.
    ///
    /// To be called for every port before [`is_complete`](Self::is_complete), so that a pod that went while nobody looked keeps its
    /// addresses until its port has gone too.
    pub fn found_port(&mut self, _key: &PodKey, _addresses: &[std::net::IpAddr]) {}

    /// Annotations to be written, each once. The writer repeats what fails until the object is gone or has another uid; the store
    /// gives an annotation out again if it was there once and is there no more.
    pub fn take_annotations(&mut self) -> Vec<PodAnnotation> {
        Vec::new()
    }

    /// Troubles that arose since the last call, for events.
    pub fn take_troubles(&mut self) -> Vec<Trouble<PodKey, PodTrouble>> {
        Vec::new()
    }

    /// Pods that wait for addresses and why, for metrics and the curious.
    pub fn troubles(&self) -> impl Iterator<Item = (&PodKey, &PodTrouble)> {
        std::iter::empty()
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

    fn put_node(&mut self, node: Node) -> Option<Change> {
        let name = Arc::clone(&node.name);
        let before = self.nodes.insert(Arc::clone(&name), node);
        let now = &self.nodes[&name];
        (!before.as_ref().is_some_and(|before| before.same_rows(now)))
            .then(|| Change::Node { pods: !before.is_some_and(|before| before.same_for_pods(now)), name })
    }

    fn put_pod(&mut self, key: PodKey, pod: Pod) -> Option<Change> {
        if self.pods.get(&key) == Some(&pod) {
            return None;
        }
        if let Some(node) = &pod.node {
            self.pods_of.entry(Arc::clone(node)).or_default().insert(key.clone());
        }
        if let Annotated::Network { network, .. } = &pod.annotated {
            self.assigned.insert(key.clone(), Arc::clone(network));
        }
        self.pods.insert(key.clone(), pod);
        Some(Change::Pod(key))
    }
}
