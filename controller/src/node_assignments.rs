//! The cluster manager's assignments to nodes: a subnet of each family, an id, and the addresses
//! that derive from the id.
//!
//! A node's annotations are the record; all of them are read before anything is assigned. A node
//! keeps its assignment as long as the Node object exists, even if its annotations are lost or
//! garbled: they are written again. Two nodes never share an assignment: a node that claims another
//! node's subnet or id is left as it is, and gets an event. The subnets of a node that is gone are
//! kept for its name, while pods have addresses in them and for ten minutes at least: the machine
//! may be registered again, and its pods run on.

mod former;
mod ids;
mod wish;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contract::{
    node_annotation::{LEGACY_SUBNET, NODE_ID, NODE_SUBNETS, PerNetwork},
    ovn,
};
use ipnet::IpNet;
use kube::core::{Selector, SelectorExt as _};
use kubeapi::object::Object;

use crate::{
    allocate::subnets::{Overlap, Subnets},
    cluster_id::ClusterId,
    config::ClusterConfig,
    key::NodeName,
    kinds::node::{object::Node, problem::NodeProblem},
    node_assignments::{
        former::{FormerSubnets, KEPT, Lack},
        ids::Ids,
    },
    problem::{Family, Problem},
    safety_brake::{ClusterIdentity, Example, HeldLists, Rule, SafetyBrake},
    watch_event::Seen,
};

pub use crate::node_assignments::former::{FormerNode, FormerNodes};

/// `action` of the events.
const ASSIGN_SUBNET: &str = "AssignSubnet";

/// Rules for the assignment, beside the cluster's settings.
#[derive(Debug, Clone, Default)]
pub struct NodeRules {
    /// Nodes that get no subnet: `--no-hostsubnet-nodes`.
    pub without_subnet: Option<Selector>,
}

/// All nodes and their assignments.
#[derive(Debug)]
pub struct NodeAssignments {
    config: ClusterConfig,
    rules: NodeRules,
    nodes: BTreeMap<NodeName, KnownNode>,
    subnets: Subnets,
    ids: Ids,
    listed: bool,
    /// The safety brake: it holds back a list that lacks many known nodes.
    doubt: SafetyBrake<NodeName>,
    identity: ClusterIdentity,
    /// Subnets that pods show to be a node's, although its annotations do not.
    recalled: BTreeMap<NodeName, Vec<IpNet>>,
    former: FormerSubnets,
    /// What the last leader recorded of nodes that were gone, until the first list.
    restored: BTreeMap<NodeName, FormerNode>,
    /// Seconds since 1970.
    now: i64,
    outbox: BTreeSet<NodeName>,
    arisen: Vec<Problem>,
}

/// A node and its assignment, whether its annotations show it yet or not.
#[derive(Debug)]
struct KnownNode {
    node: Node,
    subnets: Vec<IpNet>,
    id: Option<u16>,
    /// The last readable texts of the annotations with entries of several networks.
    readable: BTreeMap<&'static str, String>,
    /// Annotations that were handed out to be written, and have not been observed since.
    sent: BTreeMap<&'static str, String>,
    /// The version of the node that they were decided on.
    sent_for: Arc<str>,
    overruled: Overruled,
    /// Claims of its annotations that cannot be granted.
    contested: Vec<NodeProblem>,
    /// `contested`, and the reasons for what the node lacks. Each of them has been reported.
    troubles: Vec<NodeProblem>,
}

/// What a node's annotations claim of other nodes, although this process had assigned something
/// else before they arrived: a late request of a former leader, which is overwritten. Such a
/// request has the subnets and the id, with the addresses that derive from it. Between zones, also
/// an id that is another node's, or no tunnel key.
#[derive(Debug, Clone, Copy, Default)]
struct Overruled {
    subnets: bool,
    id: bool,
}

/// Annotations to write on a node. The patch applies only to the node with this UID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAnnotation {
    pub node: NodeName,
    pub uid: Arc<str>,
    /// `resourceVersion`: the patch applies only to this version.
    pub version: Arc<str>,
    pub annotations: BTreeMap<&'static str, String>,
}

impl NodeAssignments {
    pub fn new(config: ClusterConfig, rules: NodeRules) -> Self {
        Self {
            subnets: Subnets::new(&config.cluster_subnets),
            ids: Ids::new(config.is_connected()),
            config,
            rules,
            nodes: BTreeMap::new(),
            listed: false,
            doubt: SafetyBrake::new(Rule::Nodes),
            identity: ClusterIdentity::default(),
            recalled: BTreeMap::new(),
            former: FormerSubnets::default(),
            restored: BTreeMap::new(),
            now: 0,
            outbox: BTreeSet::new(),
            arisen: Vec::new(),
        }
    }

    /// Takes the identity of this cluster from other evidence than the API server's word. Before
    /// the first observation: an API server of another cluster may have been asked first.
    pub fn works_for(&mut self, own: Arc<str>) {
        self.identity = ClusterIdentity::of(own);
    }

    /// Takes the identity of the API server's cluster. It is read before the first list, and again
    /// before each second look while a list is held back.
    pub fn cluster(&mut self, id: ClusterId) {
        self.identity.see(id);
        match self.identity.other_cluster() {
            Some(_) => self.doubt.hold(),
            None => self.doubt.time_passed(),
        }
    }

    /// What is held back at the moment, if anything is.
    pub fn doubted(&self) -> Option<HeldLists> {
        let doubted = || HeldLists {
            nodes: self.doubt.missing(),
            other_cluster: self.identity.other_cluster(),
            example: self.nodes.iter().next().map(|(name, known)| Example {
                name: Arc::clone(name),
                uid: Some(Arc::clone(&known.node.uid)),
            }),
            ..HeldLists::default()
        };
        self.doubt.is_held().then(doubted)
    }

    /// Takes the time, in seconds since 1970. Before an observation.
    pub fn at(&mut self, now: i64) {
        self.now = now;
    }

    /// Takes the nodes that were gone in the last leader's time. Before the first observation.
    pub fn restore(&mut self, former: FormerNodes) {
        self.restored = former.into_iter().map(|(name, former)| (name.into(), former)).collect();
    }

    /// Whether a list will be the first one, and of this cluster: what no annotation says has to be
    /// found before it is observed.
    pub fn needs_evidence(&self) -> bool {
        !self.listed && self.identity.other_cluster().is_none()
    }

    /// The nodes of a first list whose subnets are recorded, readably or not.
    pub fn with_record(nodes: &[Node]) -> impl Iterator<Item = &NodeName> {
        let has_record = |node: &&Node| {
            !node.subnets.is_empty() || node.unreadable(&[NODE_SUBNETS, LEGACY_SUBNET]).is_some()
        };
        nodes.iter().filter(has_record).map(|node| &node.name)
    }

    /// The nodes of a first list that were assigned something before, and whose subnets are
    /// recorded nowhere: the annotation was lost while no cluster manager ran. Their pods still
    /// have addresses of the subnets ([`recall`](Self::recall)); others would cut them off.
    pub fn without_record(&self, nodes: &[Node]) -> Vec<NodeName> {
        let recorded: BTreeSet<&NodeName> = Self::with_record(nodes).collect();
        let was_assigned =
            |node: &&Node| node.id.is_some() || !node.join.is_empty() || !node.transit.is_empty();
        let nodes = nodes.iter().filter(|node| !self.listed && !recorded.contains(&node.name));
        nodes.filter(was_assigned).map(|node| Arc::clone(&node.name)).collect()
    }

    /// Nodes that are gone, whose pods should be looked for ([`left`](Self::left)).
    pub fn due(&self) -> Vec<NodeName> {
        let has_none = |why: &NodeProblem| matches!(why, NodeProblem::NoFreeSubnet { .. });
        let lacks = self.nodes.values().any(|known| known.troubles.iter().any(has_none));
        self.former.due(self.now, if lacks { Lack::OfSubnets } else { Lack::Nothing })
    }

    /// Pods in these networks are left of a node that is gone. Without one in a subnet of the node,
    /// its subnets are free. Pods of another name, or elsewhere, keep nothing.
    pub fn left(&mut self, node: &NodeName, networks: &[IpNet]) {
        if self.former.has(node, networks) {
            self.former.extend(node, self.now);
        } else if let Some(former) = self.former.take(node) {
            former.subnets.iter().for_each(|subnet| self.subnets.release(node, subnet));
            self.retry();
        }
    }

    /// The record of nodes that are gone, if it has changed since the last call.
    pub fn take_former(&mut self) -> Option<FormerNodes> {
        self.former.take_record()
    }

    /// Takes the networks that addresses of a node's pods are in, the most frequent one first. They
    /// count in the place of its annotations, except those that no node would be assigned, or that
    /// another node has: a pod's creator may have chosen its address.
    pub fn recall(&mut self, node: NodeName, mut networks: Vec<IpNet>) {
        networks.retain(|network| self.subnets.is_part(network));
        if !networks.is_empty() {
            self.recalled.insert(node, networks);
        }
    }

    /// Applies a watch event. Nothing is assigned before the first complete list.
    pub fn observe(&mut self, seen: Seen<NodeName, Node>) {
        match seen {
            Seen::All(nodes) if !self.believes(&nodes) => {}
            // Dropped while a list is held back: the next accepted list contains the node's latest
            // state.
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
            // Nodes are in every cluster.
            Seen::Unlisted(_) => {}
        }
    }

    /// Annotations to write, each returned once. The writer retries until the node is gone, has
    /// another UID or another version. They are returned again if the node changes before they
    /// arrive, or loses them later.
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

    /// Problems that arose since the last call, for events.
    pub fn take_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.arisen)
    }

    /// Nodes that lack something and why, for metrics.
    pub fn troubles(&self) -> impl Iterator<Item = (&NodeName, &NodeProblem)> {
        self.nodes
            .iter()
            .flat_map(|(name, known)| known.troubles.iter().map(move |trouble| (name, trouble)))
    }

    fn believes(&mut self, list: &[Node]) -> bool {
        let known = self
            .nodes
            .values()
            .map(|KnownNode { node, .. }| (Arc::clone(&node.name), Some(Arc::clone(&node.uid))));
        let listed = list.iter().map(|node| (&node.name, &node.uid)).collect();
        self.identity.other_cluster().is_none() && self.doubt.believes(known, &listed)
    }

    /// Removes nodes first, then reads all records, the oldest node's first, and only then assigns
    /// anything.
    fn replace(&mut self, mut nodes: Vec<Node>) {
        let there: BTreeSet<&NodeName> = nodes.iter().map(|node| &node.name).collect();
        let gone: Vec<NodeName> =
            self.nodes.keys().filter(|name| !there.contains(name)).cloned().collect();
        gone.iter().for_each(|name| self.remove(name));
        nodes.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let names: Vec<NodeName> = nodes.iter().map(|node| Arc::clone(&node.name)).collect();
        self.listed = true;
        // All records before any assignment: a later node may have what looks free now, and an
        // earlier one may claim what a later one has given up.
        let freed = nodes.into_iter().fold(false, |freed, node| self.put(node) | freed);
        self.restore_former();
        if freed {
            self.read_contested_again();
        }
        names.iter().for_each(|name| self.settle(name));
    }

    /// Stores a node and reads its annotations. Returns whether a subnet or an id has become free.
    fn put(&mut self, node: Node) -> bool {
        let name = Arc::clone(&node.name);
        let mut known = match self.nodes.remove(&name) {
            Some(known) if known.node.uid == node.uid => KnownNode { node, ..known },
            // Another node of the same name inherits the subnets: its pods may be those of the
            // former one.
            before => {
                before.iter().for_each(|before| self.give_back(before));
                KnownNode {
                    node,
                    subnets: Vec::new(),
                    id: None,
                    readable: BTreeMap::new(),
                    sent: BTreeMap::new(),
                    sent_for: Arc::from(""),
                    overruled: Overruled::default(),
                    contested: Vec::new(),
                    troubles: Vec::new(),
                }
            }
        };
        // Remembered as the base for a repair: a garbled text may have had entries of other
        // networks.
        for annotation in wish::SHARED {
            let text = known
                .node
                .annotations
                .get(annotation)
                .filter(|text| PerNetwork::parse(text).is_ok());
            known.readable.extend(text.map(|text| (annotation, text.clone())));
        }
        known.contested.clear();
        known.overruled = Overruled::default();
        // Both have to be read, so there is no short circuit.
        let freed = self.read_subnets(&mut known) | self.read_id(&mut known);
        self.nodes.insert(name, known);
        freed
    }

    /// The annotation counts, unless it has no subnet, or one that overlaps another node's. Returns
    /// whether a subnet has become free.
    fn read_subnets(&mut self, known: &mut KnownNode) -> bool {
        let name = &known.node.name;
        // Without a readable annotation the node keeps its subnets, and `settle` has them written
        // again.
        if known.node.subnets.is_empty()
            || known.node.subnets.iter().all(|subnet| known.subnets.contains(subnet))
        {
            return false;
        }
        // Released first: the new subnets may overlap the old ones.
        let before = std::mem::take(&mut known.subnets);
        before.iter().for_each(|subnet| self.subnets.release(name, subnet));
        for subnet in &known.node.subnets {
            match Self::claim(&mut self.subnets, &mut self.former, &self.nodes, name, *subnet) {
                Ok(()) => known.subnets.push(*subnet),
                Err(Overlap { subnet, other, by }) => {
                    let annotation = if known.node.annotations.contains_key(NODE_SUBNETS) {
                        NODE_SUBNETS
                    } else {
                        LEGACY_SUBNET
                    };
                    known.contested.push(NodeProblem::SubnetTaken {
                        annotation,
                        subnet,
                        other,
                        by,
                    });
                }
            }
        }
        if known.contested.is_empty() || before.is_empty() {
            return !before.is_empty();
        }
        // A node whose claim fails keeps what it had: its pods have addresses of it. Nothing else
        // was assigned meanwhile, so the old subnets are still free.
        known.subnets.drain(..).for_each(|subnet| self.subnets.release(name, &subnet));
        known.subnets =
            before.into_iter().filter(|subnet| self.subnets.claim(name, *subnet).is_ok()).collect();
        // This process has assigned them, and the node does not show them yet: they count, and are
        // written again.
        known.overruled.subnets = known.sent.contains_key(NODE_SUBNETS);
        if known.overruled.subnets {
            known.contested.clear();
        }
        false
    }

    /// The same for the id.
    fn read_id(&mut self, known: &mut KnownNode) -> bool {
        let name = &known.node.name;
        let Some(id) = known.node.id.filter(|id| known.id != Some(*id)) else { return false };
        // Between zones, no node is reached whose number cannot be a key: it gets another.
        if self.config.is_connected() && !Ids::is_key(id) {
            known.overruled.id = true;
            return false;
        }
        if !Ids::is_for_nodes(id) {
            known.contested.push(NodeProblem::IdReserved { id });
            return false;
        }
        // Claimed before the old id is released: a node whose claim fails keeps its id.
        match self.ids.claim(name, id) {
            Ok(()) => known.id.replace(id).map(|before| self.ids.release(name, before)).is_some(),
            // Assigned by this process, and not shown yet.
            Err(_) if known.id.is_some() && known.sent.contains_key(NODE_ID) => {
                known.overruled.id = true;
                false
            }
            // Between zones, both would have one key and one address, and none of them be reached:
            // the one that came later gets another id.
            Err(_) if self.config.is_connected() => {
                known.overruled.id = true;
                false
            }
            Err(by) => {
                known.contested.push(NodeProblem::IdTaken { id, by });
                false
            }
        }
    }

    fn remove(&mut self, name: &NodeName) {
        if let Some(known) = self.nodes.remove(name) {
            self.give_back(&known);
        }
    }

    /// Frees the id of a node that is gone. Its subnets are kept.
    fn give_back(&mut self, known: &KnownNode) {
        let name = &known.node.name;
        known.id.into_iter().for_each(|id| self.ids.release(name, id));
        if !known.subnets.is_empty() {
            self.keep(Arc::clone(name), known.subnets.clone(), self.now + KEPT);
        }
    }

    /// Keeps subnets for a name. They are its own already.
    fn keep(&mut self, node: NodeName, subnets: Vec<IpNet>, until: i64) {
        if let Some((name, former)) = self.former.keep(node, subnets, until) {
            former.subnets.iter().for_each(|subnet| self.subnets.release(&name, subnet));
        }
    }

    /// Keeps what the last leader recorded of nodes that are gone, and what their pods show, as far
    /// as no node has it. After the records of the nodes have been read.
    fn restore_former(&mut self) {
        let recorded = std::mem::take(&mut self.restored);
        let mut former = recorded.clone();
        let gone: Vec<NodeName> =
            self.recalled.keys().filter(|name| !self.nodes.contains_key(*name)).cloned().collect();
        for name in gone {
            let subnets = self.recalled.remove(&name).unwrap_or_default();
            former.entry(name).or_insert_with(|| FormerNode::due(subnets, self.now));
        }
        for (name, FormerNode { mut subnets, until, .. }) in former.into_iter().take(former::MOST) {
            subnets.retain(|subnet| self.subnets.claim(&name, *subnet).is_ok());
            if !subnets.is_empty() {
                // A clock that was wrong keeps nothing for ever.
                self.keep(name, subnets, until.min(self.now + KEPT));
            }
        }
        self.former.is_recorded(&recorded);
    }

    /// Takes a subnet that a node's annotation claims. What is kept for a node that is gone is no
    /// obstacle.
    fn claim(
        subnets: &mut Subnets,
        former: &mut FormerSubnets,
        nodes: &BTreeMap<NodeName, KnownNode>,
        name: &NodeName,
        subnet: IpNet,
    ) -> Result<(), Overlap> {
        loop {
            let overlap = match subnets.claim(name, subnet) {
                Err(overlap) if !nodes.contains_key(&overlap.by) => overlap,
                result => return result,
            };
            let Some(kept) = former.take(&overlap.by) else { return Err(overlap) };
            kept.subnets.iter().for_each(|subnet| subnets.release(&overlap.by, subnet));
        }
    }

    /// Something has become free: reads and settles all nodes with problems again, in the order of
    /// names.
    fn retry(&mut self) {
        let lacking = self.names(|known| !known.troubles.is_empty());
        // Claims first: what a node's annotation says goes before what another node lacks.
        self.read_contested_again();
        lacking.iter().for_each(|name| self.settle(name));
    }

    /// Reads the nodes again whose claims could not be granted, until no node gives anything up for
    /// its claim.
    fn read_contested_again(&mut self) {
        loop {
            let again = self.names(|known| !known.contested.is_empty()).into_iter().fold(
                false,
                |freed, name| {
                    let node = self.nodes.get(&name).map(|known| known.node.clone());
                    node.is_some_and(|node| self.put(node)) | freed
                },
            );
            if !again {
                return;
            }
        }
    }

    fn names(&self, which: impl Fn(&KnownNode) -> bool) -> Vec<NodeName> {
        self.nodes
            .iter()
            .filter(|(_, known)| which(known))
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }

    /// Assigns what the node lacks, and queues the annotations that do not show its assignment yet.
    fn settle(&mut self, name: &NodeName) {
        if !self.listed {
            return;
        }
        let Some(mut known) = self.nodes.remove(name) else { return };
        let told = std::mem::replace(&mut known.troubles, known.contested.clone());
        self.give_subnets(&mut known);
        self.give_id(&mut known);
        // A change of `--cluster-subnets` does not renumber existing nodes.
        let outside = known.subnets.iter().filter(|subnet| {
            !self.config.cluster_subnets.iter().any(|range| range.cidr.contains(*subnet))
        });
        known
            .troubles
            .extend(outside.map(|subnet| NodeProblem::OutsideOfRanges { subnet: *subnet }));
        let (annotations, too_small) = wish::annotations(
            &self.config,
            &known.node,
            &known.readable,
            &known.subnets,
            known.id,
            known.overruled,
        );
        known.troubles.extend(too_small);
        // A patch for an older version of the node is on its way: the API server answers it with
        // 409.
        let lost = !annotations.is_empty() && known.sent_for != known.node.version;
        if annotations != known.sent || lost {
            self.outbox.insert(Arc::clone(name));
            known.sent = annotations;
            known.sent_for = Arc::clone(&known.node.version);
        }
        // Each problem is reported once, when it arises.
        let new = known.troubles.iter().filter(|trouble| !told.contains(trouble));
        let uid = &known.node.uid;
        self.arisen.extend(new.map(|why| Problem {
            action: ASSIGN_SUBNET,
            message: "cannot assign all that a node needs",
            ..Problem::new(Object::Node(Arc::clone(name)), uid, why)
        }));
        self.nodes.insert(Arc::clone(name), known);
    }

    fn give_subnets(&mut self, known: &mut KnownNode) {
        let name = &known.node.name;
        if let Some(unreadable) = known.node.unreadable(&[NODE_SUBNETS, LEGACY_SUBNET]) {
            // A known assignment is written over the text. Without one, a new subnet might differ
            // from the one that the text means, so the node waits.
            known.troubles.extend(known.subnets.is_empty().then_some(unreadable));
            return;
        }
        let excluded = self
            .rules
            .without_subnet
            .as_ref()
            .is_some_and(|selector| selector.matches(&known.node.labels));
        let contested = known
            .contested
            .iter()
            .any(|trouble| matches!(trouble, NodeProblem::SubnetTaken { .. }));
        // After a contested claim an administrator has to decide first.
        if excluded || contested {
            return;
        }
        for subnet in self.former.take(name).map(|former| former.subnets).unwrap_or_default() {
            let family = Family::of(&subnet.network());
            if known.subnets.contains(&subnet) {
                continue;
            }
            if known.subnets.iter().any(|known| Family::of(&known.network()) == family) {
                self.subnets.release(name, &subnet);
            } else {
                known.subnets.push(subnet);
            }
        }
        for subnet in self.recalled.remove(name).unwrap_or_default() {
            let family = Family::of(&subnet.network());
            let has_one = known.subnets.iter().any(|known| Family::of(&known.network()) == family);
            if !has_one && self.subnets.claim(name, subnet).is_ok() {
                known.subnets.push(subnet);
            }
        }
        for family in self.subnets.families() {
            if known.subnets.iter().any(|subnet| Family::of(&subnet.network()) == family) {
                continue;
            }
            match self.subnets.give(name, family) {
                Some(subnet) => known.subnets.push(subnet),
                None => known.troubles.push(NodeProblem::NoFreeSubnet { family }),
            }
        }
    }

    fn give_id(&mut self, known: &mut KnownNode) {
        if let Some(unreadable) = known.node.unreadable(&[NODE_ID]) {
            known.troubles.extend(known.id.is_none().then_some(unreadable));
        } else if known.id.is_none() && !known.contested.iter().any(NodeProblem::is_of_id) {
            let ClusterConfig { join_subnets, transit_subnets, .. } = &self.config;
            let is_room = |id: u16| {
                let mut subnets = join_subnets.iter().chain(transit_subnets);
                subnets.all(|subnet| ovn::nth(subnet, id.into()).is_some())
            };
            known.id = self.ids.give(&known.node.name, is_room);
            if known.id.is_none() {
                known.troubles.push(NodeProblem::NoFreeId { most: ids::MOST });
            }
        }
    }
}

#[cfg(test)]
mod tests;
