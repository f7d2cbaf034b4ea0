//! The addresses of nodes by their labels: of rules of EgressFirewalls, which list them, and of sets that
//! policies of the whole cluster name.
//!
//! A start may meet a node whose annotations cannot be read. Its addresses are then among those that the
//! database has for the rule or the set. Of these, the ones that no readable node has stay until all nodes
//! can be read.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use super::{Store, selector::Selector, selectors::SelectorId, sets::drop_from};
use crate::{
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    observation::Kind,
};

/// What has addresses of nodes in the database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodesOf {
    /// The rule with this index in the EgressFirewall of the namespace.
    Rule(Arc<str>, usize),
    /// The set of a selector, by its canonical text.
    Set(Arc<str>),
}

impl NodesOf {
    fn key(&self) -> Key {
        match self {
            Self::Rule(namespace, _) => Key::EgressFirewall(Arc::clone(namespace)),
            Self::Set(text) => Key::Set(SetId::Nodes(Arc::clone(text))),
        }
    }
}

/// The sets of nodes' addresses, and what the database had at the start.
#[derive(Debug, Default)]
pub(super) struct NodeAddresses {
    /// By the canonical text of their selectors.
    sets: HashMap<Arc<str>, NodeSet>,
    /// The same, by selector: texts may differ in the order of their requirements.
    by_selector: HashMap<SelectorId, BTreeSet<Arc<str>>>,
    /// Without addresses of nodes that have been read since.
    found: BTreeMap<NodesOf, BTreeSet<IpAddr>>,
}

#[derive(Debug)]
struct NodeSet {
    selector: SelectorId,
    policies: BTreeSet<AnyPolicy>,
}

impl NodeAddresses {
    pub(super) fn contains(&self, text: &str) -> bool {
        self.sets.contains_key(text)
    }

    /// The canonical texts of all sets.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        self.sets.keys()
    }

    /// Adds a policy to a set that exists. Returns whether it does.
    pub(super) fn join(&mut self, text: &str, policy: &AnyPolicy) -> bool {
        let set = self.sets.get_mut(text);
        set.map(|set| set.policies.insert(policy.clone())).is_some()
    }

    pub(super) fn add(&mut self, text: &Arc<str>, selector: SelectorId, policy: &AnyPolicy) {
        self.by_selector.entry(selector).or_default().insert(Arc::clone(text));
        let set = NodeSet { selector, policies: BTreeSet::from([policy.clone()]) };
        self.sets.insert(Arc::clone(text), set);
    }

    pub(super) fn leave(&mut self, text: &str, policy: &AnyPolicy) {
        if let Some(set) = self.sets.get_mut(text) {
            set.policies.remove(policy);
        }
    }

    /// Removes a set that no policy names. Returns its selector.
    pub(super) fn remove_unused(&mut self, text: &Arc<str>) -> Option<SelectorId> {
        self.sets.get(text).filter(|set| set.policies.is_empty())?;
        let NodeSet { selector, .. } = self.sets.remove(text)?;
        drop_from(&mut self.by_selector, &selector, text);
        Some(selector)
    }
}

impl Store {
    /// Registers addresses that the database has, whatever nodes they are of. To be called when
    /// [`found_port`](Self::found_port) is.
    pub fn found_addresses(&mut self, of: NodesOf, addresses: impl IntoIterator<Item = IpAddr>) {
        self.node_addresses.found.entry(of).or_default().extend(addresses);
    }

    /// The addresses of the nodes that a rule of the namespace's EgressFirewall selects.
    pub fn addresses_of_rule(&self, namespace: &str, index: usize, selector: &Selector) -> BTreeSet<IpAddr> {
        let id = self.selector_of_rule(namespace, selector);
        id.map(|id| self.addresses_of_nodes(id, &NodesOf::Rule(namespace.into(), index))).unwrap_or_default()
    }

    /// The addresses of the set with this canonical text.
    pub(super) fn addresses_of_node_set(&self, text: &Arc<str>) -> BTreeSet<IpAddr> {
        let set = self.node_addresses.sets.get(text);
        let of = NodesOf::Set(Arc::clone(text));
        set.map(|set| self.addresses_of_nodes(set.selector, &of)).unwrap_or_default()
    }

    fn addresses_of_nodes(&self, id: SelectorId, of: &NodesOf) -> BTreeSet<IpAddr> {
        let mut addresses = BTreeSet::new();
        let mut is_unknown = false;
        for node in self.nodes.selectors.matching(id).filter_map(|name| self.node(name)) {
            addresses.extend(node.host_addresses.iter().copied());
            is_unknown |= node.lacks_host_addresses();
        }
        if is_unknown {
            addresses.extend(self.node_addresses.found.get(of).into_iter().flatten().copied());
        }
        addresses
    }

    /// The nodes with these selectors, or their addresses, are others now.
    pub(super) fn follow_selected_nodes(&self, selectors: BTreeSet<SelectorId>, dirty: &mut Dirty<'_>) {
        for id in selectors {
            let firewalls = self.egress_firewalls.of_nodes(id);
            firewalls.for_each(|name| dirty(Key::EgressFirewall(Arc::clone(name)), Scope::Whole));
            let sets = self.node_addresses.by_selector.get(&id).into_iter().flatten();
            sets.for_each(|text| dirty(Key::Set(SetId::Nodes(Arc::clone(text))), Scope::Whole));
        }
    }

    /// A node has been read that has these addresses: they are not those of a node that cannot be.
    pub(super) fn forget_found_addresses(&mut self, known: &[IpAddr], dirty: &mut Dirty<'_>) {
        for (of, found) in &mut self.node_addresses.found {
            let before = found.len();
            found.retain(|address| !known.contains(address));
            if found.len() != before {
                dirty(of.key(), Scope::Whole);
            }
        }
    }

    /// What was found at the start is not needed any more once all nodes can be read. A node that comes later
    /// and cannot be read has nothing in the database.
    pub(super) fn forget_found_if_all_are_read(&mut self) {
        let is_any = !self.node_addresses.found.is_empty() && self.listed.contains(Kind::Node);
        if is_any && !self.nodes.iter().any(super::Node::lacks_host_addresses) {
            self.node_addresses.found.clear();
        }
    }
}
