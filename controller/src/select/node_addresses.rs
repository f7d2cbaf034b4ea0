//! The addresses of nodes by their labels: of sets that rules of EgressFirewalls and policies of
//! the whole cluster name.
//!
//! Upstream lists the addresses in each rule of an EgressFirewall. A rule of the database that does
//! so keeps its list as long as that is right, and names the set from then on. A rule that selects
//! no address has no row, and a set that only such rules would name has none either.
//!
//! A start may meet a node whose annotations cannot be read. Its addresses are then among those
//! that the database has for the set or in a list. Of these, the ones that no readable node has
//! stay until all nodes can be read.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::{
    key::{AnyPolicy, SetId},
    select::{
        peer::canonical,
        selector::{Selector, SelectorError},
        selectors::SelectorId,
        sets::drop_from,
    },
};

/// Nodes by their labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodePeer {
    /// The selector as a text, as upstream spells selectors. Equal texts select the same nodes.
    pub text: Arc<str>,
    pub nodes: Selector,
}

impl NodePeer {
    pub(crate) fn new(nodes: &LabelSelector) -> Result<Self, SelectorError> {
        Ok(Self { nodes: Selector::new(None, nodes)?, text: canonical(nodes).into() })
    }
}

/// A rule of an EgressFirewall: its namespace, and its index.
pub type FirewallRuleId = (Arc<str>, usize);

/// How a rule of an EgressFirewall names the addresses of nodes.
#[derive(Debug, PartialEq, Eq)]
pub enum RuleNodes {
    /// There are none.
    None,
    /// One by one, as the database has had them since the start.
    List(BTreeSet<IpAddr>),
    Set(SetId),
}

/// The sets of nodes' addresses, and what the database had at the start.
#[derive(Debug, Default)]
pub(crate) struct NodeAddresses {
    /// By the canonical text of their selectors.
    pub(crate) sets: HashMap<Arc<str>, NodeSet>,
    /// The same, by selector: texts may differ in the order of their requirements.
    pub(crate) by_selector: HashMap<SelectorId, BTreeSet<Arc<str>>>,
    /// The addresses in rules that list them in the database.
    pub(crate) lists: BTreeMap<FirewallRuleId, BTreeSet<IpAddr>>,
    /// Whether the nodes are known, so that a list that differs from them is wrong.
    pub(crate) are_lists_decided: bool,
    /// What the sets had at the start, without addresses of nodes that have been read since.
    pub(crate) found: BTreeMap<Arc<str>, BTreeSet<IpAddr>>,
    /// The same of all lists.
    pub(crate) found_in_lists: BTreeSet<IpAddr>,
}

#[derive(Debug)]
pub(crate) struct NodeSet {
    pub(crate) selector: SelectorId,
    /// Those that name the set.
    pub(crate) policies: BTreeSet<AnyPolicy>,
    /// Rules with this selector that list the addresses.
    pub(crate) lists: BTreeSet<FirewallRuleId>,
    pub(crate) has_addresses: bool,
}

impl NodeSet {
    /// The EgressFirewalls that name the set.
    pub(crate) fn firewalls(&self) -> Vec<Arc<str>> {
        let name = |policy: &AnyPolicy| match policy {
            AnyPolicy::Custom(_, namespace) => Some(Arc::clone(namespace)),
            AnyPolicy::Namespaced(_) | AnyPolicy::Cluster(_) | AnyPolicy::Multicast(_) => None,
        };
        self.policies.iter().filter_map(name).collect()
    }

    /// Whether a row names the set. Rules of EgressFirewalls have none without addresses.
    fn is_named(&self) -> bool {
        let of_firewall = |policy: &AnyPolicy| matches!(policy, AnyPolicy::Custom(..));
        self.policies.iter().any(|policy| self.has_addresses || !of_firewall(policy))
    }
}

impl NodeAddresses {
    /// Whether an object names the nodes of the set, or did before its rows were written.
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.sets.contains_key(text)
    }

    /// Whether a row names the set.
    pub(crate) fn is_named(&self, text: &str) -> bool {
        self.sets.get(text).is_some_and(NodeSet::is_named)
    }

    /// The canonical texts of all sets that a row names.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        self.sets.iter().filter(|(_, set)| set.is_named()).map(|(text, _)| text)
    }

    pub(crate) fn add(&mut self, text: &Arc<str>, selector: SelectorId) {
        self.by_selector.entry(selector).or_default().insert(Arc::clone(text));
        let set = NodeSet {
            selector,
            policies: BTreeSet::new(),
            lists: BTreeSet::new(),
            has_addresses: false,
        };
        self.sets.insert(Arc::clone(text), set);
    }

    pub(crate) fn leave(&mut self, text: &str, policy: &AnyPolicy) {
        if let Some(set) = self.sets.get_mut(text) {
            set.policies.remove(policy);
        }
    }

    /// Removes a set that nothing names. Returns its selector.
    pub(crate) fn remove_unused(&mut self, text: &Arc<str>) -> Option<SelectorId> {
        self.sets.get(text).filter(|set| set.policies.is_empty() && set.lists.is_empty())?;
        let NodeSet { selector, .. } = self.sets.remove(text)?;
        drop_from(&mut self.by_selector, &selector, text);
        Some(selector)
    }
}
