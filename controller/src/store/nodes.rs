//! The nodes, their subnets by address, and the claims that overlap another node's subnet.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contract::node_annotation::{LEGACY_SUBNET, NODE_SUBNETS};
use ipnet::IpNet;

use super::{
    Node, Store,
    claims::{Claims, Standing},
    fanout::{self, NodePorts},
    selectors::Selectors,
};
use crate::{
    key::{Dirty, NodeName},
    trouble::{NodeTrouble, Trouble},
};

/// The known nodes. No two of them have subnets that overlap.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    all: BTreeMap<NodeName, Node>,
    /// The nodes' subnets, by network address.
    subnets: BTreeMap<IpAddr, (IpNet, NodeName)>,
    /// Claims of nodes whose annotations overlap another node's subnet.
    contested: BTreeMap<NodeName, Vec<IpNet>>,
    /// Nodes whose rows cannot be computed, and which may have some: a text is no annotation, or a node that
    /// had rows at the start lacks annotations.
    unreadable: BTreeSet<NodeName>,
    /// Chassis that nodes had, or that have variables in the database. Their variables stay while a node's
    /// chassis is not known: it may be one of them.
    abandoned: BTreeSet<Arc<str>>,
    /// Who has which chassis, and which address on the join switch.
    chassis: Claims<String>,
    joins: Claims<IpAddr>,
    /// Nodes that were told that another has what they claim, and what they were told.
    told_of_others: BTreeMap<NodeName, BTreeSet<String>>,
    pub(super) selectors: Selectors<NodeName>,
}

/// What nodes claim and may have changed hands.
#[derive(Debug)]
struct Concerned {
    chassis: BTreeSet<String>,
    joins: BTreeSet<IpAddr>,
    /// Nodes that have got or lost an address on the join switch.
    moved: BTreeSet<NodeName>,
}

impl Nodes {
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.all.get(name)
    }

    /// The stored name, so that equal names share one allocation.
    pub(super) fn name(&self, name: &str) -> Option<&NodeName> {
        self.all.get_key_value(name).map(|(name, _)| name)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Whether there is a node whose rows cannot be computed, and which may have some.
    pub(super) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Whether the rows of the node cannot be computed, and it may have some.
    pub(super) fn cannot_be_read(&self, node: &str) -> bool {
        self.unreadable.contains(node)
    }

    /// These nodes, which are about to be put, have rows in the database.
    pub(super) fn await_annotations(&mut self, nodes: impl IntoIterator<Item = NodeName>) {
        self.unreadable.extend(nodes);
    }

    /// In the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.all.values()
    }

    /// Adds or replaces a node. Returns the node as it was before.
    fn insert(&mut self, node: Node) -> Option<Node> {
        let (name, subnets) = (Arc::clone(&node.name), node.subnets.clone());
        let before = self.all.insert(Arc::clone(&name), node);
        if let Some(before) = &before {
            self.forget_subnets(before, &subnets);
        }
        let indexed = subnets.into_iter().map(|subnet| (subnet.network(), (subnet, Arc::clone(&name))));
        self.subnets.extend(indexed);
        before
    }

    fn remove(&mut self, name: &str) -> Option<Node> {
        let node = self.all.remove(name)?;
        self.contested.remove(name);
        self.forget_subnets(&node, &[]);
        Some(node)
    }

    /// Removes the subnets of a node from the index, except those that it still has.
    fn forget_subnets(&mut self, node: &Node, except: &[IpNet]) {
        for subnet in node.subnets.iter().filter(|subnet| !except.contains(subnet)) {
            // Another node may have the subnet by now.
            if self.subnets.get(&subnet.network()).is_some_and(|(_, owner)| *owner == node.name) {
                self.subnets.remove(&subnet.network());
            }
        }
    }

    /// The node's subnet that an address is in.
    pub(super) fn at(&self, address: IpAddr) -> Option<&(IpNet, NodeName)> {
        self.subnets
            .range(..=address)
            .next_back()
            .map(|(_, subnet)| subnet)
            .filter(|(subnet, _)| subnet.contains(&address))
    }

    /// The node whose host has the address.
    pub(super) fn with_host_address(&self, address: IpAddr) -> Option<&Node> {
        self.iter().find(|node| node.host_addresses.contains(&address))
    }

    /// The nodes' subnets that overlap this one. The nodes' subnets do not overlap each other, so at most one
    /// of them begins before this one and reaches into it.
    fn overlapping(&self, subnet: &IpNet) -> impl Iterator<Item = &(IpNet, NodeName)> {
        let (first, last) = (subnet.network(), subnet.broadcast());
        let around = self.subnets.range(..first).next_back().filter(|(_, (used, _))| used.contains(&first));
        around.into_iter().chain(self.subnets.range(first..=last)).map(|(_, used)| used)
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

    /// Notes a claim that overlaps another node's subnet. Returns whether it is a new one.
    fn contest(&mut self, node: &Node) -> bool {
        let before = self.contested.insert(Arc::clone(&node.name), node.subnets.clone());
        before.as_ref() != Some(&node.subnets)
    }

    /// Whether another node has the chassis that the node names.
    pub(super) fn has_lost_chassis(&self, node: &Node) -> bool {
        node.chassis.is_none() && self.chassis.of(&node.name).next().is_some()
    }

    /// Whether nothing is known of the node's chassis.
    pub(super) fn lacks_chassis(&self, node: &Node) -> bool {
        node.chassis.is_none() && !self.has_lost_chassis(node)
    }

    /// Whether no other node has the node's addresses on the join switch.
    pub(super) fn has_its_join(&self, node: &Node) -> bool {
        self.joins.of(&node.name).all(|address| self.joins.holder(address) == Some(&node.name))
    }

    /// The chassis that the node names, unless another node has it.
    fn own_chassis(&self, name: &NodeName) -> Option<String> {
        self.chassis.of(name).find(|chassis| self.chassis.holder(chassis) == Some(name)).cloned()
    }

    /// Notes what the node claims, and decides who has it. Returns what may have another holder now, or has
    /// another claimant.
    fn claim(&mut self, node: &Node, chassis: Option<String>, join_subnets: &[IpNet]) -> Concerned {
        let joins = node.join_addresses(join_subnets).iter().map(IpNet::addr).collect();
        let chassis = self.chassis.claim(&node.name, chassis.into_iter().collect());
        let joins = self.joins.claim(&node.name, joins);
        let standing = Standing { is_unreachable: node.is_unreachable, created: node.created };
        self.decide(chassis, joins, Some((&node.name, standing)))
    }

    fn give_up_claims(&mut self, name: &NodeName) -> Concerned {
        self.told_of_others.remove(name);
        let chassis = self.chassis.claim(name, BTreeSet::new());
        let joins = self.joins.claim(name, BTreeSet::new());
        self.decide(chassis, joins, None)
    }

    /// `now`: a node that is about to be inserted.
    fn decide(
        &mut self,
        of_chassis: BTreeSet<String>,
        on_join: BTreeSet<IpAddr>,
        now: Option<(&NodeName, Standing)>,
    ) -> Concerned {
        let Self { all, chassis, joins, .. } = self;
        let standing = |name: &NodeName| match now.filter(|(of, _)| *of == name) {
            Some((_, standing)) => standing,
            // One that is in the list that is being read and was not inserted yet is younger.
            None => all.get(name).map_or(Standing { is_unreachable: false, created: i64::MAX }, |node| {
                Standing { is_unreachable: node.is_unreachable, created: node.created }
            }),
        };
        for thing in &of_chassis {
            chassis.decide(thing, standing);
        }
        // An unreachable node keeps its address: another node has another number.
        let in_any_case = |name: &NodeName| Standing { is_unreachable: false, ..standing(name) };
        let moved = on_join.iter().filter_map(|thing| {
            let before = joins.decide(thing, in_any_case)?;
            Some([Some(before), joins.holder(thing).cloned()])
        });
        let moved = moved.flatten().flatten().collect();
        Concerned { chassis: of_chassis, joins: on_join, moved }
    }

    /// What to tell the nodes about what more than one of them claims. A node of which nothing is contested
    /// any more is told again, should it come to that.
    fn contests(&mut self, claims: &Concerned) -> Vec<(NodeName, NodeTrouble)> {
        let mut contests = Vec::new();
        for chassis in &claims.chassis {
            let Some(holder) = self.chassis.holder(chassis).cloned() else { continue };
            let others: Vec<NodeName> = self.chassis.others(chassis).cloned().collect();
            if others.is_empty() {
                self.told_of_others.remove(&holder);
            }
            for other in others {
                let (chassis, by) = (chassis.clone(), Arc::clone(&other));
                contests.push((
                    Arc::clone(&holder),
                    NodeTrouble::ChassisClaimed { chassis: chassis.clone(), by },
                ));
                contests.push((other, NodeTrouble::ChassisTaken { chassis, by: Arc::clone(&holder) }));
            }
        }
        for address in &claims.joins {
            let Some(holder) = self.joins.holder(address) else { continue };
            let trouble = || NodeTrouble::JoinAddressTaken { address: *address, by: Arc::clone(holder) };
            contests.extend(self.joins.others(address).map(|other| (Arc::clone(other), trouble())));
        }
        contests
    }

    /// The nodes with contested claims as they would be with their claims, the oldest node first.
    fn claimants(&self) -> Vec<Node> {
        let with_claim = |(name, subnets): (&NodeName, &Vec<IpNet>)| {
            Some(Node { subnets: subnets.clone(), ..self.get(name)?.clone() })
        };
        let mut claimants: Vec<Node> = self.contested.iter().filter_map(with_claim).collect();
        claimants.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        claimants
    }
}

impl Store {
    /// Removes nodes first, and then adds the others in the order of creation: a removed node must not block
    /// a claim, and the older of two nodes gets a subnet that both claim.
    pub(super) fn replace_nodes(&mut self, mut nodes: Vec<Node>, dirty: &mut Dirty<'_>) {
        nodes.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let there: BTreeSet<&NodeName> = nodes.iter().map(|node| &node.name).collect();
        let gone: Vec<NodeName> =
            self.nodes.all.keys().filter(|name| !there.contains(name)).cloned().collect();
        gone.iter().for_each(|name| self.remove_node(name, dirty));
        // All claims before the first decision: who had a chassis may come later in the list.
        for node in nodes.iter().filter(|node| node.chassis.is_some()) {
            self.nodes.chassis.claim(&node.name, node.chassis.iter().cloned().collect());
        }
        nodes.into_iter().for_each(|node| self.put_node(node, dirty));
        self.forget_found_if_all_are_read();
    }

    pub(super) fn put_node(&mut self, mut node: Node, dirty: &mut Dirty<'_>) {
        let name = Arc::clone(&node.name);
        // They are the largest part of a node: only selectors need them.
        let labels = std::mem::take(&mut node.labels);
        let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut selectors = BTreeSet::new();
        self.nodes.selectors.put(&name, None, labels, &mut |id, _| {
            selectors.insert(id);
        });
        let before = self.accept_node(node, dirty);
        let now = self.node(&name);
        let own = |node: Option<&Node>| node.map(|node| node.own_addresses.clone()).unwrap_or_default();
        let (own_before, own_now) = (own(before.as_ref()), own(now));
        self.own_addresses_changed(&own_before, &own_now, dirty);
        let now = self.node(&name);
        let is_same = |(before, now): (&Node, &Node)| before.same_host(now);
        if !before.as_ref().zip(now).is_some_and(is_same) {
            selectors.extend(self.nodes.selectors.matched_by(&name));
            let known = now.map(|node| node.host_addresses.clone()).unwrap_or_default();
            self.forget_found_addresses(&known, dirty);
            self.host_changed(&name, dirty);
        }
        self.follow_selected_nodes(selectors, dirty);
    }

    /// Takes a node without its labels. Returns the node as it was before.
    fn accept_node(&mut self, mut node: Node, dirty: &mut Dirty<'_>) -> Option<Node> {
        let name = Arc::clone(&node.name);
        let same = self.nodes.get(&name).filter(|before| before.uid == node.uid);
        let told: Vec<NodeTrouble> = same.into_iter().flat_map(Node::troubles).collect();
        let subnets_of_before = same.map(|before| before.subnets.clone()).unwrap_or_default();
        node.refuse_others_interface();
        let claim = node.chassis.take().or_else(|| same.and(self.nodes.chassis.of(&name).next().cloned()));
        if let Some(before) = same {
            node.keep(before);
        }
        if let Some(trouble) = self.nodes.overlap(&node) {
            // A contested claim counts as an unreadable one: a node that has a subnet keeps it.
            if self.nodes.contest(&node) {
                self.outbox.tell_node(Trouble {
                    subject: Arc::clone(&name),
                    uid: Arc::clone(&node.uid),
                    why: trouble,
                });
            }
            node.subnets = subnets_of_before;
        } else {
            self.nodes.contested.remove(&name);
        }
        for why in node.troubles().filter(|trouble| !told.contains(trouble)) {
            self.outbox.tell_node(Trouble { subject: Arc::clone(&name), uid: Arc::clone(&node.uid), why });
        }
        let claims = self.nodes.claim(&node, claim, &self.config.join_subnets);
        node.chassis = self.nodes.own_chassis(&name);
        let before = self.insert_node(node, dirty);
        self.follow_claims(&claims, dirty);
        before
    }

    /// Takes a node of which everything is decided. Returns the node as it was before.
    fn insert_node(&mut self, node: Node, dirty: &mut Dirty<'_>) -> Option<Node> {
        let name = Arc::clone(&node.name);
        let templates = self.template_addresses();
        let was_local = self.nodes.get(&name).is_some_and(|before| self.is_decided(before));
        let before = self.nodes.insert(node);
        if let Some(before) = before.as_ref().filter(|_| was_local) {
            self.node_port_addresses.take(before);
        }
        if let Some(now) = self.nodes.get(&name)
            && self.is_decided(now)
        {
            self.node_port_addresses.add(now);
        }
        let node_ports = self.node_ports(templates);
        // The stored node counts, because missing annotations have been filled in above. A text that is gone
        // is no answer to what it should have said.
        let waits = self.nodes.unreadable.contains(&name);
        if self.nodes.get(&name).is_some_and(|node| self.is_unreadable(node) || waits && self.is_open(node)) {
            self.nodes.unreadable.insert(Arc::clone(&name));
        } else {
            self.readable(&name, dirty);
        }
        let Some(now) = self.nodes.get(&name) else { return before };
        let change = fanout::Change {
            before: before.as_ref(),
            after: Some(now),
            is_local: [was_local, self.is_decided(now)],
            has_gateway_router: self.has_gateway_router(&name),
            snat_per_pod: self.config.snat_per_pod,
        };
        fanout::node(&name, change, &self.pods, &self.services, node_ports, dirty);
        self.follow_variables(fanout::has_variables(change, &self.services), dirty);
        self.abandon(before.as_ref(), dirty);
        let Some(now) = self.nodes.get(&name) else { return before };
        if before.as_ref().is_some_and(|before| before.same_for_pods(now)) {
            return before;
        }
        let subnets = before.iter().flat_map(|before| &before.subnets).copied();
        let gone: Vec<IpNet> = subnets.filter(|subnet| !now.subnets.contains(subnet)).collect();
        self.subnets_changed(&name, &gone, dirty);
        // The node has given up a subnet, which another node may have claimed before.
        if !gone.is_empty() {
            self.give_contested(dirty);
        }
        before
    }

    pub(super) fn remove_node(&mut self, name: &NodeName, dirty: &mut Dirty<'_>) {
        let mut selectors = BTreeSet::new();
        self.nodes.selectors.remove(name, &mut |id, _| {
            selectors.insert(id);
        });
        self.follow_selected_nodes(selectors, dirty);
        let templates = self.template_addresses();
        let Some(node) = self.nodes.remove(name) else { return };
        if self.is_decided(&node) {
            self.node_port_addresses.take(&node);
        }
        let node_ports = self.node_ports(templates);
        self.readable(name, dirty);
        let change = fanout::Change {
            before: Some(&node),
            after: None,
            is_local: [self.is_decided(&node), false],
            has_gateway_router: self.has_gateway_router(name),
            snat_per_pod: self.config.snat_per_pod,
        };
        fanout::node(name, change, &self.pods, &self.services, node_ports, dirty);
        self.follow_variables(fanout::has_variables(change, &self.services), dirty);
        self.abandon(Some(&node), dirty);
        self.subnets_changed(name, &node.subnets, dirty);
        self.own_addresses_changed(&node.own_addresses, &[], dirty);
        self.give_contested(dirty);
        let claims = self.nodes.give_up_claims(name);
        self.follow_claims(&claims, dirty);
    }

    /// Another node may have these now: each node of whom that is true is compared with what it has, and those
    /// that claim what another has are told, as is the one that has it.
    fn follow_claims(&mut self, claims: &Concerned, dirty: &mut Dirty<'_>) {
        let chassis = claims.chassis.iter().flat_map(|chassis| self.nodes.chassis.claimants(chassis));
        for name in chassis.cloned().collect::<BTreeSet<_>>() {
            let chassis = self.nodes.own_chassis(&name);
            let moved = self.nodes.get(&name).filter(|node| node.chassis != chassis).cloned();
            if let Some(node) = moved {
                self.insert_node(Node { chassis, ..node }, dirty);
            }
        }
        for name in &claims.moved {
            fanout::gateway(name, &self.pods, self.config.snat_per_pod, dirty);
        }
        for (name, why) in self.nodes.contests(claims) {
            let Some(node) = self.nodes.get(&name) else { continue };
            let uid = Arc::clone(&node.uid);
            if self.nodes.told_of_others.entry(Arc::clone(&name)).or_default().insert(why.to_string()) {
                self.outbox.tell_node(Trouble { subject: name, uid, why });
            }
        }
    }

    /// The chassis was the node's at the start, as far as the database shows. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_chassis_of(&mut self, node: NodeName, chassis: String) {
        self.nodes.chassis.found(chassis, node);
    }

    /// The node is not one that cannot be read: load balancers that are not wanted any more stay on it no
    /// longer.
    fn readable(&mut self, name: &NodeName, dirty: &mut Dirty<'_>) {
        if self.nodes.unreadable.remove(name) {
            fanout::services(&self.services, dirty);
        }
    }

    /// Variables of this chassis are in the database.
    pub fn found_chassis(&mut self, name: Arc<str>) {
        self.nodes.abandoned.insert(name);
    }

    /// A node may have another chassis now. Once those of all nodes are known, the variables of the others
    /// go.
    fn abandon(&mut self, before: Option<&Node>, dirty: &mut Dirty<'_>) {
        let chassis = before.filter(|_| self.templates).and_then(|node| node.chassis.as_deref());
        self.nodes.abandoned.extend(chassis.map(Arc::from));
        // Without the complete list of nodes, all keys are compared later.
        if self.is_complete() && !self.nodes.abandoned.is_empty() && !self.has_unknown_chassis() {
            let mut abandoned = std::mem::take(&mut self.nodes.abandoned);
            for chassis in self.local_nodes().filter_map(|node| node.chassis.as_deref()) {
                abandoned.remove(chassis);
            }
            fanout::chassis(abandoned, dirty);
        }
    }

    /// Whether any chassis may be that of a node whose annotations are missing.
    pub(super) fn has_unknown_chassis(&self) -> bool {
        let mut nodes = self.nodes.iter().filter(|node| !self.is_elsewhere(node));
        nodes.any(|node| !self.is_decided(node) || self.nodes.lacks_chassis(node))
    }

    /// What NodePorts depend on. `before`: the numbers of addresses before the change.
    fn node_ports(&self, before: [usize; 2]) -> NodePorts {
        if self.uses_templates() {
            NodePorts::Templates { more_or_fewer: before != self.template_addresses() }
        } else {
            NodePorts::ByNode
        }
    }

    /// A subnet is free: retries the contested claims, the oldest node's first.
    fn give_contested(&mut self, dirty: &mut Dirty<'_>) {
        for node in self.nodes.claimants() {
            if self.nodes.overlap(&node).is_none() {
                self.accept_node(node, dirty);
            }
        }
    }
}
