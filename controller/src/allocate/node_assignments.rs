//! What the cluster manager gives to nodes: a subnet of each family, a number, and the addresses that follow from the number.
//!
//! A node's annotations are the record; this reads them all before it gives anything. What a node has it keeps as long as it is there,
//! even if its annotations get lost or garbled: they are written again. Two nodes never have the same: who claims what another has is
//! left as it is, and told.

mod ids;
mod wish;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contract::node_annotation::{LEGACY_SUBNET, NODE_ID, NODE_SUBNETS, PerNetwork};
use ipnet::IpNet;
use kubeapi::selector::LabelSelector;

use super::subnets::{Overlap, Subnets};
use crate::{
    cluster_id::ClusterId,
    config::ClusterConfig,
    doubt::{Doubt, Doubted, Identity, Rule},
    key::NodeName,
    observation::Seen,
    store::Node,
    trouble::{Family, NodeTrouble, Trouble},
};
use ids::Ids;

/// How nodes get what they get, beside the cluster's settings.
#[derive(Debug, Clone, Default)]
pub struct NodeRules {
    /// Nodes that get no subnet: `--no-hostsubnet-nodes`.
    pub without_subnet: Option<LabelSelector>,
}

/// All nodes and what they have.
#[derive(Debug)]
pub struct NodeAssignments {
    config: ClusterConfig,
    rules: NodeRules,
    nodes: BTreeMap<NodeName, Known>,
    subnets: Subnets,
    ids: Ids,
    listed: bool,
    /// Lists that lack much are not believed at first.
    doubt: Doubt<NodeName>,
    identity: Identity,
    outbox: BTreeSet<NodeName>,
    arisen: Vec<Trouble<NodeName, NodeTrouble>>,
}

/// A node, and what it has whether its annotations say so or not.
#[derive(Debug)]
struct Known {
    node: Node,
    subnets: Vec<IpNet>,
    id: Option<u16>,
    /// The annotations with entries of several networks, as they were when they could be read last.
    readable: BTreeMap<&'static str, String>,
    /// What was given out to be written, and was not seen since.
    sent: BTreeMap<&'static str, String>,
    /// The version of the node that this was for.
    sent_for: Arc<str>,
    /// Its annotation says what another node has, and came after what this process has given it: a request of a former leader that was late.
    overrules: bool,
    /// What its annotations claim in vain.
    contested: Vec<NodeTrouble>,
    /// Those, and what it lacks; all of it was told.
    troubles: Vec<NodeTrouble>,
}

/// Annotations that a node is to have. They go to the node with this uid or to none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAnnotation {
    pub node: NodeName,
    pub uid: Arc<str>,
    /// And to this version of it.
    pub version: Arc<str>,
    pub annotations: BTreeMap<&'static str, String>,
}

impl NodeAssignments {
    pub fn new(config: ClusterConfig, rules: NodeRules) -> Self {
        Self {
            subnets: Subnets::new(&config.cluster_subnets),
            ids: Ids::default(),
            config,
            rules,
            nodes: BTreeMap::new(),
            listed: false,
            doubt: Doubt::new(Rule::Nodes),
            identity: Identity::default(),
            outbox: BTreeSet::new(),
            arisen: Vec::new(),
        }
    }

    /// Which cluster the API server is: asked before the first list, and after some time as long as something is doubted.
    pub fn cluster(&mut self, id: ClusterId) {
        self.identity.see(id);
        match self.identity.other_cluster() {
            Some(_) => self.doubt.hold(),
            None => self.doubt.time_passed(),
        }
    }

    /// What is not believed at the moment.
    pub fn doubted(&self) -> Option<Doubted> {
        let doubted = || Doubted {
            nodes: self.doubt.missing(),
            pods: 0,
            other_cluster: self.identity.other_cluster(),
            example: self.nodes.keys().next().cloned(),
        };
        self.doubt.is_held().then(doubted)
    }

    /// Takes what a watch of nodes saw. Nothing is given before the first complete list.
    pub fn observe(&mut self, seen: Seen<NodeName, Node>) {
        match seen {
            Seen::All(nodes) if !self.believes(&nodes) => {}
            // The list that is believed will have it.
            Seen::Applied(_) | Seen::Deleted(_) if self.doubt.is_held() => {}
            Seen::All(nodes) => self.replace(nodes),
            Seen::Applied(node) => {
                let name = Arc::clone(&node.name);
                let freed = self.put(node);
                self.settle(&name);
                if freed {
                    self.retry();
                }
            }
            Seen::Deleted(name) => {
                self.remove(&name);
                self.retry();
            }
        }
    }

    /// Annotations to be written, each once. The writer repeats what fails until the node is gone or has another uid; they are given
    /// out again if they were there once and are there no more.
    pub fn take_annotations(&mut self) -> Vec<NodeAnnotation> {
        let names = std::mem::take(&mut self.outbox);
        let annotation = |name: NodeName| {
            let known = self.nodes.get(&name).filter(|known| !known.sent.is_empty())?;
            Some(NodeAnnotation {
                uid: Arc::clone(&known.node.uid),
                version: Arc::clone(&known.sent_for),
                annotations: known.sent.clone(),
                node: name,
            })
        };
        names.into_iter().filter_map(annotation).collect()
    }

    /// Troubles that arose since the last call, for events.
    pub fn take_troubles(&mut self) -> Vec<Trouble<NodeName, NodeTrouble>> {
        std::mem::take(&mut self.arisen)
    }

    /// Nodes that lack something and why, for metrics.
    pub fn troubles(&self) -> impl Iterator<Item = (&NodeName, &NodeTrouble)> {
        self.nodes.iter().flat_map(|(name, known)| known.troubles.iter().map(move |trouble| (name, trouble)))
    }

    fn believes(&mut self, list: &[Node]) -> bool {
        let known = self.nodes.values().map(|Known { node, .. }| (Arc::clone(&node.name), Some(Arc::clone(&node.uid))));
        let listed = list.iter().map(|node| (&node.name, &node.uid)).collect();
        self.identity.other_cluster().is_none() && self.doubt.believes(known, &listed)
    }

    /// What is gone goes first; then all records are read, the oldest node's before others'; only then is anything given.
    fn replace(&mut self, mut nodes: Vec<Node>) {
        let there: BTreeSet<&NodeName> = nodes.iter().map(|node| &node.name).collect();
        let gone: Vec<NodeName> = self.nodes.keys().filter(|name| !there.contains(name)).cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
        nodes.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let names: Vec<NodeName> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        self.listed = true;
        for node in nodes {
            self.put(node);
        }
        names.iter().for_each(|name| self.settle(name));
    }

    /// Takes a node as it is, with what its annotations say. Whether something became free.
    fn put(&mut self, node: Node) -> bool {
        let name = Arc::clone(&node.name);
        let mut known = match self.nodes.remove(&name) {
            Some(known) if known.node.uid == node.uid => Known { node, ..known },
            // Another node of that name keeps nothing of the former.
            before => {
                before.iter().for_each(|before| self.give_back(before));
                Known {
                    node,
                    subnets: Vec::new(),
                    id: None,
                    readable: BTreeMap::new(),
                    sent: BTreeMap::new(),
                    sent_for: Arc::from(""),
                    overrules: false,
                    contested: Vec::new(),
                    troubles: Vec::new(),
                }
            }
        };
        for annotation in wish::SHARED {
            let text = known.node.annotations.get(annotation).filter(|text| PerNetwork::parse(text).is_ok());
            known.readable.extend(text.map(|text| (annotation, text.clone())));
        }
        known.contested.clear();
        known.overrules = false;
        let freed = self.read_subnets(&mut known) | self.read_id(&mut known);
        self.nodes.insert(name, known);
        freed
    }

    /// What the annotation says counts, unless it says nothing or what another node has.
    fn read_subnets(&mut self, known: &mut Known) -> bool {
        let name = &known.node.name;
        if known.node.subnets.is_empty() || known.node.subnets.iter().all(|subnet| known.subnets.contains(subnet)) {
            return false;
        }
        let before = std::mem::take(&mut known.subnets);
        before.iter().for_each(|subnet| self.subnets.release(name, subnet));
        for subnet in &known.node.subnets {
            match self.subnets.claim(name, *subnet) {
                Ok(()) => known.subnets.push(*subnet),
                // Given by this process and not seen on the node yet: that counts.
                Err(_) if !before.is_empty() && known.sent.contains_key(NODE_SUBNETS) => {
                    known.subnets.drain(..).for_each(|subnet| self.subnets.release(name, &subnet));
                    known.subnets = before.into_iter().filter(|subnet| self.subnets.claim(name, *subnet).is_ok()).collect();
                    known.overrules = true;
                    return false;
                }
                Err(Overlap { subnet, other, by }) => {
                    let annotation = if known.node.annotations.contains_key(NODE_SUBNETS) { NODE_SUBNETS } else { LEGACY_SUBNET };
                    known.contested.push(NodeTrouble::SubnetTaken { annotation, subnet, other, by });
                }
            }
        }
        !before.is_empty()
    }

    fn read_id(&mut self, known: &mut Known) -> bool {
        let name = &known.node.name;
        let Some(id) = known.node.id.filter(|id| known.id != Some(*id)) else { return false };
        if !Ids::is_for_nodes(id) {
            known.contested.push(NodeTrouble::IdReserved { id });
            return false;
        }
        match self.ids.claim(name, id) {
            Ok(()) => known.id.replace(id).map(|before| self.ids.release(name, before)).is_some(),
            Err(by) => {
                known.contested.push(NodeTrouble::IdTaken { id, by });
                false
            }
        }
    }

    fn remove(&mut self, name: &NodeName) {
        if let Some(known) = self.nodes.remove(name) {
            self.give_back(&known);
        }
    }

    fn give_back(&mut self, known: &Known) {
        let name = &known.node.name;
        known.subnets.iter().for_each(|subnet| self.subnets.release(name, subnet));
        known.id.into_iter().for_each(|id| self.ids.release(name, id));
    }

    /// Something is free: whoever lacks it may have it now, in the order of names.
    fn retry(&mut self) {
        let lacking: Vec<NodeName> =
            self.nodes.iter().filter(|(_, known)| !known.troubles.is_empty()).map(|(name, _)| Arc::clone(name)).collect();
        for name in lacking {
            if let Some(known) = self.nodes.get(&name) {
                let node = known.node.clone();
                self.put(node);
            }
            self.settle(&name);
        }
    }

    /// Gives the node what it lacks, and has the annotations written that do not say so yet.
    fn settle(&mut self, name: &NodeName) {
        if !self.listed {
            return;
        }
        let Some(mut known) = self.nodes.remove(name) else { return };
        let told = std::mem::replace(&mut known.troubles, known.contested.clone());
        self.give_subnets(&mut known);
        self.give_id(&mut known);
        let outside = known.subnets.iter().filter(|subnet| !self.config.cluster_subnets.iter().any(|range| range.cidr.contains(*subnet)));
        known.troubles.extend(outside.map(|subnet| NodeTrouble::OutsideOfRanges { subnet: *subnet }));
        let (annotations, too_small) =
            wish::annotations(&self.config, &known.node, &known.readable, &known.subnets, known.id, known.overrules);
        known.troubles.extend(too_small);
        // On its way to an older version, it does not arrive.
        let lost = !annotations.is_empty() && known.sent_for != known.node.version;
        if annotations != known.sent || lost {
            self.outbox.insert(Arc::clone(name));
            known.sent = annotations;
            known.sent_for = Arc::clone(&known.node.version);
        }
        let new = known.troubles.iter().filter(|trouble| !told.contains(trouble));
        let uid = &known.node.uid;
        self.arisen.extend(new.map(|why| Trouble { subject: Arc::clone(name), uid: Arc::clone(uid), why: why.clone() }));
        self.nodes.insert(Arc::clone(name), known);
    }

    fn give_subnets(&mut self, known: &mut Known) {
        let name = &known.node.name;
        if let Some(unreadable) = known.node.unreadable(&[NODE_SUBNETS, LEGACY_SUBNET]) {
            // What the node has is written over it, if it is known from before.
            known.troubles.extend(known.subnets.is_empty().then_some(unreadable));
            return;
        }
        let excluded = self.rules.without_subnet.as_ref().is_some_and(|selector| selector.matches(&known.node.labels));
        let contested = known.contested.iter().any(|trouble| matches!(trouble, NodeTrouble::SubnetTaken { .. }));
        if excluded || contested {
            return;
        }
        for family in self.subnets.families() {
            if known.subnets.iter().any(|subnet| Family::of(&subnet.network()) == family) {
                continue;
            }
            match self.subnets.give(name, family) {
                Some(subnet) => known.subnets.push(subnet),
                None => known.troubles.push(NodeTrouble::NoFreeSubnet { family }),
            }
        }
    }

    fn give_id(&mut self, known: &mut Known) {
        if let Some(unreadable) = known.node.unreadable(&[NODE_ID]) {
            known.troubles.extend(known.id.is_none().then_some(unreadable));
        } else if known.id.is_none() && !known.contested.iter().any(NodeTrouble::is_of_id) {
            known.id = self.ids.give(&known.node.name);
            if known.id.is_none() {
                known.troubles.push(NodeTrouble::NoFreeId { most: ids::MOST });
            }
        }
    }
}

#[cfg(test)]
mod tests;
