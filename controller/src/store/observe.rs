//! An observation becomes a change of what is known. Knows what is gone by what a list does not name.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::PodKey;

use super::{Known, Node, Pod, Store, announce::Announced};
use crate::{
    key::{Change, NodeName},
    observation::{Observation, Seen},
};

impl Store {
    /// Takes what was seen; what became different.
    ///
    /// A complete list replaces what was known: what is not in it is gone. No address is given before every kind was listed once;
    /// the observation that completes the lists also reports the pods that get theirs then.
    pub fn observe(&mut self, observation: Observation) -> Vec<Change> {
        let mut changes = match observation {
            Observation::Nodes(Seen::All(nodes)) => {
                self.listed.nodes = true;
                self.replace_nodes(nodes)
            }
            Observation::Nodes(Seen::Applied(node)) => self.put_node(node),
            Observation::Nodes(Seen::Deleted(name)) => self.remove_node(&name),
            Observation::Pods(Seen::All(pods)) => {
                self.listed.pods = true;
                self.replace_pods(pods)
            }
            Observation::Pods(Seen::Applied((key, pod))) => self.put_pod(key, pod),
            Observation::Pods(Seen::Deleted(key)) => self.remove_pod(&key),
        };
        if !self.listed.all && self.listed.nodes && self.listed.pods {
            self.listed.all = true;
            changes.extend(self.assign_all());
        }
        changes
    }

    fn replace_nodes(&mut self, nodes: Vec<Node>) -> Vec<Change> {
        let there: BTreeSet<NodeName> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let gone: Vec<NodeName> = self.nodes.keys().filter(|name| !there.contains(*name)).cloned().collect();
        let mut changes: Vec<Change> = gone.iter().flat_map(|name| self.remove_node(name)).collect();
        changes.extend(nodes.into_iter().flat_map(|node| self.put_node(node)));
        changes
    }

    /// What is gone goes first, and what is there comes in the order of creation: an address that one lost is its next owner's.
    fn replace_pods(&mut self, mut pods: Vec<(PodKey, Pod)>) -> Vec<Change> {
        let there: BTreeSet<&PodKey> = pods.iter().map(|(key, _)| key).collect();
        let gone: Vec<PodKey> = self.pods.keys().filter(|key| !there.contains(key)).cloned().collect();
        let mut changes: Vec<Change> = gone.iter().flat_map(|key| self.remove_pod(key)).collect();
        pods.sort_by(|(a_key, a), (b_key, b)| (a.created, a_key).cmp(&(b.created, b_key)));
        changes.extend(pods.into_iter().flat_map(|(key, pod)| self.put_pod(key, pod)));
        changes
    }

    fn put_node(&mut self, node: Node) -> Vec<Change> {
        let name = Arc::clone(&node.name);
        let before = self.nodes.insert(Arc::clone(&name), node);
        let now = &self.nodes[&name];
        if before.as_ref().is_some_and(|before| before.same_rows(now)) {
            return Vec::new();
        }
        let pods = !before.as_ref().is_some_and(|before| before.same_for_pods(now));
        let subnets_before = before.map(|before| before.subnets).unwrap_or_default();
        let mut changes = vec![Change::Node { name: Arc::clone(&name), pods }];
        if pods {
            changes.extend(self.subnets_changed(&name, &subnets_before));
        }
        changes
    }

    fn remove_node(&mut self, name: &NodeName) -> Vec<Change> {
        let Some(node) = self.nodes.remove(name) else { return Vec::new() };
        let mut changes = vec![Change::Node { name: Arc::clone(name), pods: true }];
        changes.extend(self.subnets_changed(name, &node.subnets));
        changes
    }

    fn put_pod(&mut self, key: PodKey, mut pod: Pod) -> Vec<Change> {
        let mut changed = true;
        match self.pods.get_mut(&key) {
            Some(known) if known.pod.uid == pod.uid && known.pod.node == pod.node => {
                if known.pod == pod {
                    return Vec::new();
                }
                // That an annotation arrived that was sent from here is no change of anything.
                changed = (known.pod.phase, known.pod.host_network) != (pod.phase, pod.host_network);
                // One copy of what is the same.
                pod.node.clone_from(&known.pod.node);
                pod.uid = Arc::clone(&known.pod.uid);
                known.pod = pod;
            }
            _ => {
                self.remove_pod(&key);
                if let Some(node) = &mut pod.node {
                    *node = self.nodes.get_key_value(node).map_or_else(|| Arc::clone(node), |(name, _)| Arc::clone(name));
                    self.pods_of.entry(Arc::clone(node)).or_default().insert(key.clone());
                }
                self.pods.insert(key.clone(), Known { pod, network: None, announced: Announced::default() });
            }
        }
        changed |= self.assign(&key);
        changed.then_some(Change::Pod(key)).into_iter().collect()
    }

    fn remove_pod(&mut self, key: &PodKey) -> Vec<Change> {
        self.retire(key);
        let Some(known) = self.pods.remove(key) else { return Vec::new() };
        if let Some(node) = &known.pod.node
            && let Some(pods) = self.pods_of.get_mut(node)
        {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_of.remove(node);
            }
        }
        vec![Change::Pod(key.clone())]
    }
}
