//! An observation becomes a change of what is known. Knows what is gone by what a list does not name.

use std::{collections::BTreeSet, sync::Arc};

use contract::{
    names::PodKey,
    node_annotation::{LEGACY_SUBNET, NODE_SUBNETS},
};

use super::{Annotated, Known, Node, Phase, Pod, Store, Texts, announce::Announced};
use crate::{
    key::{Change, NodeName},
    observation::{Observation, Seen},
    trouble::{NodeTrouble, Trouble},
};

impl Store {
    /// Takes what was seen; what became different.
    ///
    /// A complete list replaces what was known: what is not in it is gone, unless that is much ([`doubted`](Self::doubted)). No address is given before every kind was listed once;
    /// the observation that completes the lists also reports the pods that get theirs then.
    pub fn observe(&mut self, observation: Observation) -> Vec<Change> {
        let mut changes = match observation {
            Observation::Cluster(id) => {
                self.doubts.cluster(id);
                Vec::new()
            }
            Observation::Nodes(Seen::All(nodes)) if !self.believes_nodes(&nodes) => Vec::new(),
            Observation::Pods(Seen::All(pods)) if !self.believes_pods(&pods) => Vec::new(),
            // The list that is believed will have it.
            Observation::Nodes(Seen::Applied(_) | Seen::Deleted(_)) if self.doubts.hold_nodes() => Vec::new(),
            Observation::Pods(Seen::Applied(_) | Seen::Deleted(_)) if self.doubts.hold_pods() => Vec::new(),
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

    /// What is gone goes first, and what is there comes in the order of creation: who claims what an older node has has it not.
    fn replace_nodes(&mut self, mut nodes: Vec<Node>) -> Vec<Change> {
        nodes.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
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

    fn put_node(&mut self, mut node: Node) -> Vec<Change> {
        // No row follows from them, and they are the largest part of a node.
        node.labels = Arc::default();
        let name = Arc::clone(&node.name);
        let same = self.nodes.get(&name).filter(|before| before.uid == node.uid);
        let told: Vec<NodeTrouble> = same.into_iter().flat_map(Node::troubles).collect();
        let subnets_of_before = same.map(|before| before.subnets.clone()).unwrap_or_default();
        if let Some(before) = same {
            node.keep(before);
        }
        if let Some(trouble) = self.overlap(&node) {
            // As if it could not be read: a node that has a subnet keeps it.
            if self.contested.insert(Arc::clone(&name), node.subnets.clone()).as_ref() != Some(&node.subnets) {
                self.outbox.tell_node(Trouble { subject: Arc::clone(&name), uid: Arc::clone(&node.uid), why: trouble });
            }
            node.subnets = subnets_of_before;
        } else {
            self.contested.remove(&name);
        }
        for why in node.troubles().filter(|trouble| !told.contains(trouble)) {
            self.outbox.tell_node(Trouble { subject: Arc::clone(&name), uid: Arc::clone(&node.uid), why });
        }
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
            if self.nodes.get(&name).is_some_and(|now| subnets_before.iter().any(|subnet| !now.subnets.contains(subnet))) {
                changes.extend(self.give_contested());
            }
        }
        changes
    }

    /// What the node claims in vain.
    fn overlap(&self, node: &Node) -> Option<NodeTrouble> {
        node.subnets.iter().find_map(|subnet| {
            let (other, by) = self.overlapping(subnet).find(|(_, owner)| *owner != node.name)?;
            let annotation = if node.annotations.contains_key(NODE_SUBNETS) { NODE_SUBNETS } else { LEGACY_SUBNET };
            Some(NodeTrouble::SubnetTaken { annotation, subnet: *subnet, other: *other, by: Arc::clone(by) })
        })
    }

    /// A subnet is free: those who claim it may have it, the oldest first.
    fn give_contested(&mut self) -> Vec<Change> {
        let claims = self.contested.clone();
        let claims = claims.into_iter().filter_map(|(name, subnets)| Some(Node { subnets, ..self.nodes.get(&name)?.clone() }));
        let mut claims: Vec<Node> = claims.collect();
        claims.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        claims.into_iter().flat_map(|node| if self.overlap(&node).is_none() { self.put_node(node) } else { Vec::new() }).collect()
    }

    fn remove_node(&mut self, name: &NodeName) -> Vec<Change> {
        let Some(node) = self.nodes.remove(name) else { return Vec::new() };
        let mut changes = vec![Change::Node { name: Arc::clone(name), pods: true }];
        self.contested.remove(name);
        changes.extend(self.subnets_changed(name, &node.subnets));
        changes.extend(self.give_contested());
        changes
    }

    fn put_pod(&mut self, key: PodKey, mut pod: Pod) -> Vec<Change> {
        let mut changed = true;
        match self.pods.get_mut(&key) {
            Some(known) if known.pod.is_same(&pod) => {
                self.absent.remove(&key);
                let same = (&known.pod.annotated, &known.pod.other_networks) == (&pod.annotated, &pod.other_networks);
                if same && known.pod.texts == Texts::Right {
                    pod.texts = Texts::Right;
                }
                if known.pod == pod {
                    return Vec::new();
                }
                // That an annotation arrived that was sent from here is no change of anything.
                let is_another_mirror = known.pod.uid != pod.uid;
                changed = is_another_mirror || (known.pod.phase, known.pod.host_network) != (pod.phase, pod.host_network);
                if is_another_mirror || (!same || known.pod.texts != pod.texts) && known.announced == Announced::Sent {
                    // Somebody wrote what is on its way is not meant for, or it arrived; which of both is seen in a moment.
                    known.announced = Announced::No;
                }
                // One copy of what is the same.
                pod.node.clone_from(&known.pod.node);
                if !is_another_mirror {
                    pod.uid = Arc::clone(&known.pod.uid);
                }
                if let (Annotated::Network { network, .. }, Some(own)) = (&mut pod.annotated, &known.network)
                    && network == own
                {
                    *network = Arc::clone(own);
                }
                known.pod = pod;
            }
            _ => {
                self.forget_pod(&key);
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

    /// The pod is gone. The mirror of a static pod may come back in a moment, and the pod has its network meanwhile.
    fn remove_pod(&mut self, key: &PodKey) -> Vec<Change> {
        match self.pods.get(key) {
            Some(Known { pod: Pod { config_hash: Some(_), phase: Phase::Active, .. }, network: Some(_), .. }) => {
                self.absent.insert(key.clone());
                Vec::new()
            }
            Some(_) | None => self.forget_pod(key),
        }
    }

    /// Static pods whose mirrors are gone. Each is to be told to [`is_gone`](Self::is_gone) after a while.
    pub fn absent(&self) -> &BTreeSet<PodKey> {
        &self.absent
    }

    /// No mirror came back: the static pod is gone.
    pub fn is_gone(&mut self, key: &PodKey) -> Vec<Change> {
        if self.absent.contains(key) { self.forget_pod(key) } else { Vec::new() }
    }

    fn forget_pod(&mut self, key: &PodKey) -> Vec<Change> {
        self.absent.remove(key);
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
