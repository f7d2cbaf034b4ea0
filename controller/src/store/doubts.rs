//! Lists that lack much of what is known are not believed at first: the store stays as it is until a second look.
//!
//! At the start what is known is what the northbound database has.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::PodKey;

use super::{Node, Pod, Store};
use crate::{
    cluster_id::ClusterId,
    doubt::{Doubt, Doubted, Identity, Rule},
    key::NodeName,
};

/// What is doubted, and whose API server it is.
#[derive(Debug)]
pub(super) struct Doubts {
    nodes: Doubt<NodeName>,
    pods: Doubt<PodKey>,
    identity: Identity,
    /// Nodes with a switch at the start.
    found: BTreeSet<NodeName>,
}

impl Default for Doubts {
    fn default() -> Self {
        Self { nodes: Doubt::new(Rule::Nodes), pods: Doubt::new(Rule::Pods), identity: Identity::default(), found: BTreeSet::new() }
    }
}

impl Doubts {
    pub(super) fn hold_nodes(&self) -> bool {
        self.nodes.is_held()
    }

    pub(super) fn hold_pods(&self) -> bool {
        self.pods.is_held()
    }

    /// It is asked before the first lists, and after some time as long as something is doubted.
    pub(super) fn cluster(&mut self, id: ClusterId) {
        self.identity.see(id);
        if self.identity.other_cluster().is_some() {
            // What comes until it is the right one again says nothing.
            self.nodes.hold();
            self.pods.hold();
        } else {
            self.nodes.time_passed();
            self.pods.time_passed();
        }
    }
}

impl Store {
    /// What is not believed at the moment.
    pub fn doubted(&self) -> Option<Doubted> {
        let Doubts { nodes, pods, identity, found } = &self.doubts;
        let is_any = nodes.is_held() || pods.is_held();
        let example = || self.nodes.keys().chain(found).next().cloned();
        let other_cluster = || identity.other_cluster();
        is_any.then(|| Doubted { nodes: nodes.missing(), pods: pods.missing(), other_cluster: other_cluster(), example: example() })
    }

    /// The node has a switch in the northbound database. To be called as [`found_port`](Self::found_port).
    pub fn found_node(&mut self, name: NodeName) {
        self.doubts.found.insert(name);
    }

    /// The northbound database was written for this cluster. To be called as [`found_port`](Self::found_port).
    pub fn found_cluster(&mut self, id: Arc<str>) {
        self.doubts.identity = Identity::of(id);
    }

    /// The cluster that this process works for, if it is known and the API server's.
    pub fn cluster_id(&self) -> Option<&Arc<str>> {
        self.doubts.identity.own()
    }

    pub(super) fn believes_nodes(&mut self, list: &[Node]) -> bool {
        let listed = list.iter().map(|node| (&node.name, &node.uid)).collect();
        let Doubts { nodes, found, identity, .. } = &mut self.doubts;
        let known: Vec<_> = match self.listed.nodes {
            true => self.nodes.values().map(|node| (Arc::clone(&node.name), Some(Arc::clone(&node.uid)))).collect(),
            false => found.iter().map(|name| (Arc::clone(name), None)).collect(),
        };
        let believed = identity.other_cluster().is_none() && nodes.believes(known, &listed);
        if believed {
            found.clear();
        }
        believed
    }

    /// Only pods that have something to lose count.
    pub(super) fn believes_pods(&mut self, list: &[(PodKey, Pod)]) -> bool {
        let listed = list.iter().map(|(key, pod)| (key, &pod.uid)).collect();
        let known: Vec<_> = match self.listed.pods {
            true => {
                let with_network = self.pods.iter().filter(|(_, known)| known.network.is_some());
                with_network.map(|(key, known)| (key.clone(), Some(Arc::clone(&known.pod.uid)))).collect()
            }
            false => self.found.iter().map(|(key, port)| (key.clone(), port.uid.clone())).collect(),
        };
        self.doubts.identity.other_cluster().is_none() && self.doubts.pods.believes(known, &listed)
    }
}
