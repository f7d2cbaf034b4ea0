//! What an event of a node changes.

use std::{collections::BTreeSet, sync::Arc};

use ipnet::IpNet;
use kubeapi::object::Object;

use crate::{
    key::{Dirty, Key, NodeName, Scope},
    kinds::node::{
        fanout::{self, NodePorts},
        object::Node,
        problem::NodeProblem,
        state::Concerned,
    },
    problem::Problem,
    world::Store,
};

impl Store {
    /// Removes nodes first, and then adds the others in the order of creation: a removed node must
    /// not block a claim, and the older of two nodes gets a subnet that both claim. Before them
    /// come the nodes that have what they claim, as the database shows at the start: the packets
    /// for a node's pods go to no older one that names its subnet.
    pub(crate) fn replace_nodes(&mut self, mut nodes: Vec<Node>, dirty: &mut Dirty<'_>) {
        let found = std::mem::take(&mut self.nodes.found_networks);
        let claims_another = |node: &Node| {
            let found = found.get(&node.name);
            !found.is_some_and(|found| node.subnets.iter().all(|subnet| found.contains(subnet)))
        };
        nodes.sort_by_cached_key(|node| {
            (claims_another(node), node.created, Arc::clone(&node.name))
        });
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

    pub(crate) fn put_node(&mut self, mut node: Node, dirty: &mut Dirty<'_>) {
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
        let own =
            |node: Option<&Node>| node.map(|node| node.own_addresses.clone()).unwrap_or_default();
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
        let told: Vec<NodeProblem> = same.into_iter().flat_map(Node::troubles).collect();
        let subnets_of_before = same.map(|before| before.subnets.clone()).unwrap_or_default();
        node.refuse_others_interface();
        let claim =
            node.chassis.take().or_else(|| same.and(self.nodes.chassis.of(&name).next().cloned()));
        if let Some(before) = same {
            node.keep(before);
        }
        if let Some(trouble) = self.nodes.overlap(&node) {
            // A contested claim counts as an unreadable one: a node that has a subnet keeps it.
            if self.nodes.contest(&node) {
                let object = Object::Node(Arc::clone(&name));
                self.outbox.problems.push(Problem::new(object, &node.uid, &trouble));
            }
            node.subnets = subnets_of_before;
        } else {
            self.nodes.contested.remove(&name);
        }
        for why in node.troubles().filter(|trouble| !told.contains(trouble)) {
            let object = Object::Node(Arc::clone(&name));
            self.outbox.problems.push(Problem::new(object, &node.uid, &why));
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
        self.told_chassis.is_old = true;
        if let Some(before) = before.as_ref().filter(|_| was_local) {
            self.node_port_addresses.take(before);
        }
        if let Some(now) = self.nodes.get(&name)
            && self.is_decided(now)
        {
            self.node_port_addresses.add(now);
        }
        let node_ports = self.node_ports(templates);
        // The stored node counts, because missing annotations have been filled in above. A text
        // that is gone is no answer to what it should have said.
        let waits = self.nodes.unreadable.contains(&name);
        if self
            .nodes
            .get(&name)
            .is_some_and(|node| self.is_unreadable(node) || waits && self.is_open(node))
        {
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
        };
        fanout::node(&name, change, self, node_ports, dirty);
        self.follow_variables(fanout::has_variables(change, self), dirty);
        self.abandon(before.as_ref(), dirty);
        if before.as_ref().zip(self.nodes.get(&name)).is_some_and(|(a, b)| a.zone != b.zone) {
            self.withdraw_statuses();
        }
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

    pub(crate) fn remove_node(&mut self, name: &NodeName, dirty: &mut Dirty<'_>) {
        let mut selectors = BTreeSet::new();
        self.nodes.selectors.remove(name, &mut |id, _| {
            selectors.insert(id);
        });
        self.follow_selected_nodes(selectors, dirty);
        let templates = self.template_addresses();
        let Some(node) = self.nodes.remove(name) else { return };
        self.told_chassis.is_old = true;
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
        };
        fanout::node(name, change, self, node_ports, dirty);
        self.follow_variables(fanout::has_variables(change, self), dirty);
        self.abandon(Some(&node), dirty);
        self.subnets_changed(name, &node.subnets, dirty);
        self.own_addresses_changed(&node.own_addresses, &[], dirty);
        self.give_contested(dirty);
        let claims = self.nodes.give_up_claims(name);
        self.follow_claims(&claims, dirty);
        self.withdraw_statuses();
    }

    /// Another node may have these now: each node of whom that is true is compared with what it
    /// has, and those that claim what another has are told, as is the one that has it.
    fn follow_claims(&mut self, claims: &Concerned, dirty: &mut Dirty<'_>) {
        let chassis =
            claims.chassis.iter().flat_map(|chassis| self.nodes.chassis.claimants(chassis));
        for name in chassis.cloned().collect::<BTreeSet<_>>() {
            let chassis = self.nodes.own_chassis(&name);
            let moved = self.nodes.get(&name).filter(|node| node.chassis != chassis).cloned();
            if let Some(node) = moved {
                self.insert_node(Node { chassis, ..node }, dirty);
            }
        }
        for name in &claims.moved {
            fanout::gateway(name, self, dirty);
            fanout::transit(name, self, dirty);
        }
        for (name, why) in self.nodes.contests(claims) {
            let Some(node) = self.nodes.get(&name) else { continue };
            let uid = Arc::clone(&node.uid);
            if self
                .nodes
                .told_of_others
                .entry(Arc::clone(&name))
                .or_default()
                .insert(why.to_string())
            {
                self.outbox.problems.push(Problem::new(Object::Node(name), &uid, &why));
            }
        }
    }

    /// The node comes into this zone too often: it waits.
    pub(crate) fn report_zone_changes(&mut self, node: &Node) {
        let why = NodeProblem::ZoneChangesOften { zone: self.config.zone.0.clone() };
        let object = Object::Node(Arc::clone(&node.name));
        self.outbox.problems.push(Problem::new(object, &node.uid, &why));
    }

    /// The chassis was the node's at the start, as far as the database shows. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_chassis_of(&mut self, node: NodeName, chassis: String) {
        self.nodes.chassis.found(chassis, node);
    }

    /// The node had this network on the cluster router at the start, its subnet among others. To be
    /// called when [`found_port`](Self::found_port) is.
    pub fn found_network_of(&mut self, node: &NodeName, network: IpNet) {
        self.nodes.found_networks.entry(Arc::clone(node)).or_default().insert(network);
    }

    /// The node is not one that cannot be read: load balancers that are not wanted any more stay on
    /// it no longer.
    fn readable(&mut self, name: &NodeName, dirty: &mut Dirty<'_>) {
        if self.nodes.unreadable.remove(name) {
            self.services
                .iter()
                .for_each(|(service, _)| dirty(Key::Service(service.clone()), Scope::Whole));
            self.keys_on_switches().for_each(|key| dirty(key, Scope::Whole));
        }
    }

    /// Variables of this chassis are in the database.
    pub fn found_chassis(&mut self, name: Arc<str>) {
        self.nodes.abandoned.insert(name);
    }

    /// A node may have another chassis now. Once those of all nodes are known, the variables of the
    /// others go.
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
    pub(crate) fn has_unknown_chassis(&self) -> bool {
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

impl Store {
    /// Registers the nodes that have gateway routers. A router's load balancers are those of its
    /// node.
    pub fn gateway_routers(&mut self, nodes: BTreeSet<NodeName>, dirty: &mut Dirty<'_>) {
        if self.gateways != nodes {
            fanout::gateway_routers(self.gateways.symmetric_difference(&nodes), dirty);
            self.gateways = nodes;
            let node_ports = self.services.node_ports().filter(|_| !self.templates);
            let services = self.services.per_node().chain(node_ports);
            services.for_each(|service| dirty(Key::Service(service.clone()), Scope::Whole));
        }
    }
}
