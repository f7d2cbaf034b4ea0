//! Applies observations to the store. An object that a full list does not name is gone.

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
    /// Applies an observation, and returns the changes.
    ///
    /// A complete list replaces the known objects: those that it does not name are gone, unless it lacks so
    /// many that it is held back ([`doubted`](Self::doubted)). No address is assigned before every kind has
    /// been listed once; the observation that completes the lists also returns the changes of pods that get
    /// addresses then.
    pub fn observe(&mut self, observation: Observation) -> Vec<Change> {
        let mut changes = match observation {
            Observation::Cluster(id) => {
                self.doubts.cluster(id);
                Vec::new()
            }
            Observation::Nodes(Seen::All(nodes)) if !self.believes_nodes(&nodes) => Vec::new(),
            Observation::Pods(Seen::All(pods)) if !self.believes_pods(&pods) => Vec::new(),
            // Dropped while a list is held back: the next accepted list contains the object's latest state.
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

    /// Removes nodes first, and then adds the others in the order of creation: a removed node must not block
    /// a claim, and the older of two nodes gets a subnet that both claim.
    fn replace_nodes(&mut self, mut nodes: Vec<Node>) -> Vec<Change> {
        nodes.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let there: BTreeSet<NodeName> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        let gone: Vec<NodeName> = self.nodes.keys().filter(|name| !there.contains(*name)).cloned().collect();
        let mut changes: Vec<Change> = gone.iter().flat_map(|name| self.remove_node(name)).collect();
        changes.extend(nodes.into_iter().flat_map(|node| self.put_node(node)));
        changes
    }

    /// Removes pods first, and then adds the others in the order of creation: the older of two pods gets an
    /// address that both claim.
    fn replace_pods(&mut self, mut pods: Vec<(PodKey, Pod)>) -> Vec<Change> {
        let there: BTreeSet<&PodKey> = pods.iter().map(|(key, _)| key).collect();
        let gone: Vec<PodKey> = self.pods.keys().filter(|key| !there.contains(key)).cloned().collect();
        let mut changes: Vec<Change> = gone.iter().flat_map(|key| self.remove_pod(key)).collect();
        pods.sort_by(|(a_key, a), (b_key, b)| (a.created, a_key).cmp(&(b.created, b_key)));
        changes.extend(pods.into_iter().flat_map(|(key, pod)| self.put_pod(key, pod)));
        changes
    }

    fn put_node(&mut self, mut node: Node) -> Vec<Change> {
        // No row depends on labels, and they are the largest part of a node.
        node.labels = Arc::default();
        let name = Arc::clone(&node.name);
        let same = self.nodes.get(&name).filter(|before| before.uid == node.uid);
        let told: Vec<NodeTrouble> = same.into_iter().flat_map(Node::troubles).collect();
        let subnets_of_before = same.map(|before| before.subnets.clone()).unwrap_or_default();
        if let Some(before) = same {
            node.keep(before);
        }
        if let Some(trouble) = self.overlap(&node) {
            // A contested claim counts as an unreadable one: a node that has a subnet keeps it.
            if self.contested.insert(Arc::clone(&name), node.subnets.clone()).as_ref() != Some(&node.subnets)
            {
                self.outbox.tell_node(Trouble {
                    subject: Arc::clone(&name),
                    uid: Arc::clone(&node.uid),
                    why: trouble,
                });
            }
            node.subnets = subnets_of_before;
        } else {
            self.contested.remove(&name);
        }
        for why in node.troubles().filter(|trouble| !told.contains(trouble)) {
            self.outbox.tell_node(Trouble { subject: Arc::clone(&name), uid: Arc::clone(&node.uid), why });
        }
        // The stored node is compared, because missing annotations have been filled in above.
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
            // The node has given up a subnet, which another node may have claimed before.
            if self
                .nodes
                .get(&name)
                .is_some_and(|now| subnets_before.iter().any(|subnet| !now.subnets.contains(subnet)))
            {
                changes.extend(self.give_contested());
            }
        }
        changes
    }

    /// The first subnet of the node that overlaps another node's, as a problem of the node.
    fn overlap(&self, node: &Node) -> Option<NodeTrouble> {
        node.subnets.iter().find_map(|subnet| {
            let (other, by) = self.overlapping(subnet).find(|(_, owner)| *owner != node.name)?;
            let annotation =
                if node.annotations.contains_key(NODE_SUBNETS) { NODE_SUBNETS } else { LEGACY_SUBNET };
            Some(NodeTrouble::SubnetTaken { annotation, subnet: *subnet, other: *other, by: Arc::clone(by) })
        })
    }

    /// A subnet is free: retries the contested claims, the oldest node's first.
    fn give_contested(&mut self) -> Vec<Change> {
        let claims = self.contested.clone();
        let claims = claims
            .into_iter()
            .filter_map(|(name, subnets)| Some(Node { subnets, ..self.nodes.get(&name)?.clone() }));
        let mut claims: Vec<Node> = claims.collect();
        claims.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        claims
            .into_iter()
            .flat_map(|node| if self.overlap(&node).is_none() { self.put_node(node) } else { Vec::new() })
            .collect()
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
        // Before the comparisons below: the stored networks are in the compact form, too.
        if let Annotated::Network { network, .. } = &mut pod.annotated {
            Arc::make_mut(network).shorten(&self.config);
        }
        match self.pods.get_mut(&key) {
            Some(known) if known.pod.is_same(&pod) => {
                self.absent.remove(&key);
                let same = (&known.pod.annotated, &known.pod.other_networks)
                    == (&pod.annotated, &pod.other_networks);
                if same && known.pod.texts == Texts::Right {
                    pod.texts = Texts::Right;
                }
                if known.pod == pod {
                    return Vec::new();
                }
                // The arrival of this controller's own annotation changes no row.
                let is_another_mirror = known.pod.uid != pod.uid;
                changed = is_another_mirror
                    || (known.pod.phase, known.pod.host_network) != (pod.phase, pod.host_network);
                if is_another_mirror
                    || (!same || known.pod.texts != pod.texts) && known.announced == Announced::Sent
                {
                    // The annotation on its way has arrived, or it cannot be applied any more: another
                    // program has changed the text that the patch tests, or the mirror has another UID.
                    // `assign` below tells these cases apart, and queues it again if need be.
                    known.announced = Announced::No;
                }
                // Equal values share one allocation.
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
            // A new pod, or another one of the same name, which must not inherit the network.
            _ => {
                self.forget_pod(&key);
                if let Some(node) = &mut pod.node {
                    *node = self
                        .nodes
                        .get_key_value(node)
                        .map_or_else(|| Arc::clone(node), |(name, _)| Arc::clone(name));
                    self.pods_of.entry(Arc::clone(node)).or_default().insert(key.clone());
                }
                self.pods.insert(key.clone(), Known { pod, network: None, announced: Announced::default() });
            }
        }
        changed |= self.assign(&key);
        changed.then_some(Change::Pod(key)).into_iter().collect()
    }

    /// Removes a pod. A static pod keeps its network for now: its containers run on, and the kubelet may
    /// create its mirror again.
    fn remove_pod(&mut self, key: &PodKey) -> Vec<Change> {
        match self.pods.get(key) {
            Some(Known {
                pod: Pod { config_hash: Some(_), phase: Phase::Active, .. },
                network: Some(_),
                ..
            }) => {
                self.absent.insert(key.clone());
                Vec::new()
            }
            Some(_) | None => self.forget_pod(key),
        }
    }

    /// Static pods whose mirrors are missing. The caller passes each to [`is_gone`](Self::is_gone) after a
    /// grace period.
    pub fn absent(&self) -> &BTreeSet<PodKey> {
        &self.absent
    }

    /// Removes a static pod whose mirror has not come back.
    pub fn is_gone(&mut self, key: &PodKey) -> Vec<Change> {
        if self.absent.contains(key) { self.forget_pod(key) } else { Vec::new() }
    }

    /// Removes a pod from all indexes. Its addresses stay taken until its key is settled.
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
