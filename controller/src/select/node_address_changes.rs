//! What a change of a node changes in the addresses of nodes that rules select.

use std::{collections::BTreeSet, mem, net::IpAddr, sync::Arc};

use contract::definition::CustomKind;

use crate::{
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    select::{
        node_addresses::{FirewallRuleId, NodeAddresses, NodePeer, NodeSet, RuleNodes},
        selectors::SelectorId,
    },
    watch_event::Kind,
    world::Store,
};

const FIREWALL: CustomKind = CustomKind::EgressFirewall;

impl Store {
    /// Registers a rule that lists addresses in the database, whatever nodes they are of. To be
    /// called when [`found_port`](Self::found_port) is.
    pub fn found_list(
        &mut self,
        rule: FirewallRuleId,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) {
        let addresses: BTreeSet<IpAddr> = addresses.into_iter().collect();
        self.node_addresses.found_in_lists.extend(addresses.iter().copied());
        self.node_addresses.lists.insert(rule, addresses);
        self.node_addresses.are_lists_decided = false;
    }

    /// The same of a set.
    pub(crate) fn found_node_set(
        &mut self,
        text: Arc<str>,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) {
        self.node_addresses.found.entry(text).or_default().extend(addresses);
    }

    /// Decides which rules keep the list that the database has. To be called while all keys are
    /// about to be compared.
    pub fn decide_on_lists_of_nodes(&mut self) {
        self.node_addresses.are_lists_decided = true;
        let texts: Vec<Arc<str>> = self.node_addresses.sets.keys().cloned().collect();
        texts.iter().for_each(|text| self.follow_node_set(text, &mut |_, _| ()));
        let Self { node_addresses, custom, .. } = self;
        let firewalls = &custom.egress_firewalls;
        node_addresses.lists.retain(|(namespace, _), _| firewalls.contains(namespace));
    }

    /// How the rule with these nodes names their addresses.
    pub fn nodes_of_rule(&self, namespace: &Arc<str>, index: usize, peer: &NodePeer) -> RuleNodes {
        let NodeAddresses { sets, lists, .. } = &self.node_addresses;
        if lists.contains_key(&(Arc::clone(namespace), index)) {
            return RuleNodes::List(self.addresses_of_node_set(&peer.text));
        }
        match sets.get(&peer.text) {
            Some(set) if set.has_addresses => RuleNodes::Set(SetId::Nodes(Arc::clone(&peer.text))),
            Some(_) | None => RuleNodes::None,
        }
    }

    /// The policy names the set.
    pub(crate) fn join_node_set(&mut self, peer: &NodePeer, policy: &AnyPolicy) {
        self.with_node_set(peer, |set| {
            set.policies.insert(policy.clone());
        });
    }

    /// Changes a set, which is there from now on.
    fn with_node_set(&mut self, peer: &NodePeer, change: impl FnOnce(&mut NodeSet)) {
        let is_new = !self.node_addresses.sets.contains_key(&peer.text);
        if is_new {
            let selector = self.nodes.selectors.refer_to(&peer.nodes);
            self.node_addresses.add(&peer.text, selector);
        }
        if let Some(set) = self.node_addresses.sets.get_mut(&peer.text) {
            change(set);
        }
        if is_new {
            let has_addresses = !self.addresses_of_node_set(&peer.text).is_empty();
            if let Some(set) = self.node_addresses.sets.get_mut(&peer.text) {
                set.has_addresses = has_addresses;
            }
        }
    }

    /// Replaces the nodes in the rules of an EgressFirewall. The sets of its former rules stay
    /// until the rules are written.
    pub(crate) fn change_nodes_of_firewall(
        &mut self,
        namespace: &Arc<str>,
        before: &[(usize, NodePeer)],
        now: &[(usize, NodePeer)],
        dirty: &mut Dirty<'_>,
    ) {
        let user = AnyPolicy::Custom(FIREWALL, Arc::clone(namespace));
        let texts = |rules: &[(usize, NodePeer)]| -> BTreeSet<Arc<str>> {
            rules.iter().map(|(_, peer)| Arc::clone(&peer.text)).collect()
        };
        let mut named = BTreeSet::new();
        for text in &texts(before) {
            let Some(set) = self.node_addresses.sets.get_mut(text) else { continue };
            set.lists.retain(|(of, _)| of != namespace);
            // Without addresses, no row names it.
            if set.policies.remove(&user) && set.has_addresses {
                named.insert(Arc::clone(text));
            }
        }
        for (index, peer) in now {
            let rule = (Arc::clone(namespace), *index);
            if self.node_addresses.lists.contains_key(&rule) {
                self.with_node_set(peer, |set| {
                    set.lists.insert(rule);
                });
            } else {
                self.join_node_set(peer, &user);
            }
        }
        if self.node_addresses.are_lists_decided {
            let rules: BTreeSet<usize> = now.iter().map(|(index, _)| *index).collect();
            self.node_addresses
                .lists
                .retain(|(of, index), _| of != namespace || rules.contains(index));
        }
        for text in texts(before).union(&texts(now)) {
            let is_user = |set: &NodeSet| {
                set.policies.contains(&user) || set.lists.iter().any(|(of, _)| of == namespace)
            };
            if self.node_addresses.sets.get(text).is_some_and(is_user) {
                self.follow_node_set(text, dirty);
            } else if named.contains(text) {
                self.policies.sets.hold(&user, SetId::Nodes(Arc::clone(text)));
            } else {
                self.remove_unused_node_set(text);
            }
        }
    }

    /// Forgets a set that nothing names or holds.
    pub(crate) fn remove_unused_node_set(&mut self, text: &Arc<str>) {
        let is_held = self.policies.sets.is_held(&SetId::Nodes(Arc::clone(text)));
        if !is_held && let Some(selector) = self.node_addresses.remove_unused(text) {
            self.nodes.selectors.release(selector);
        }
    }

    /// The addresses of the set with this canonical text.
    pub(crate) fn addresses_of_node_set(&self, text: &Arc<str>) -> BTreeSet<IpAddr> {
        let mut addresses = BTreeSet::new();
        let NodeAddresses { sets, lists, found, found_in_lists, .. } = &self.node_addresses;
        let Some(set) = sets.get(text) else { return addresses };
        let mut is_unknown = false;
        for node in self.nodes.selectors.matching(set.selector).filter_map(|name| self.node(name)) {
            addresses.extend(node.host_addresses.iter().copied());
            is_unknown |= node.lacks_host_addresses();
        }
        if is_unknown {
            let in_lists = set.lists.iter().filter_map(|rule| lists.get(rule)).flatten();
            let in_lists = in_lists.filter(|address| found_in_lists.contains(address));
            addresses.extend(found.get(text).into_iter().flatten().chain(in_lists).copied());
        }
        addresses
    }

    /// The nodes with these selectors, or their addresses, are others now.
    pub(crate) fn follow_selected_nodes(
        &mut self,
        selectors: BTreeSet<SelectorId>,
        dirty: &mut Dirty<'_>,
    ) {
        let sets = &self.node_addresses.by_selector;
        let texts: Vec<Arc<str>> =
            selectors.iter().filter_map(|id| sets.get(id)).flatten().cloned().collect();
        texts.iter().for_each(|text| self.follow_node_set(text, dirty));
    }

    /// The addresses of a set may be others now.
    fn follow_node_set(&mut self, text: &Arc<str>, dirty: &mut Dirty<'_>) {
        let addresses = self.addresses_of_node_set(text);
        let NodeAddresses { sets, lists, are_lists_decided, found, found_in_lists, .. } =
            &mut self.node_addresses;
        let Some(set) = sets.get_mut(text) else { return };
        let id = SetId::Nodes(Arc::clone(text));
        dirty(Key::Set(id.clone()), Scope::Whole);
        let had_addresses = mem::replace(&mut set.has_addresses, !addresses.is_empty());
        if had_addresses != set.has_addresses {
            for namespace in set.firewalls() {
                // Until its rows are written, the database's rules name it.
                if had_addresses {
                    self.policies
                        .sets
                        .hold(&AnyPolicy::Custom(FIREWALL, Arc::clone(&namespace)), id.clone());
                }
                dirty(Key::custom(FIREWALL, namespace), Scope::Whole);
            }
        }
        if !*are_lists_decided {
            return;
        }
        let is_wrong = |rule: &FirewallRuleId| lists.get(rule) != Some(&addresses);
        let wrong: Vec<FirewallRuleId> =
            set.lists.iter().filter(|rule| is_wrong(rule)).cloned().collect();
        for rule in wrong {
            set.lists.remove(&rule);
            let list = lists.remove(&rule).unwrap_or_default();
            let mut unknown = list.intersection(found_in_lists).copied().peekable();
            if unknown.peek().is_some() {
                found.entry(Arc::clone(text)).or_default().extend(unknown);
            }
            let (namespace, _) = rule;
            set.policies.insert(AnyPolicy::Custom(FIREWALL, Arc::clone(&namespace)));
            dirty(Key::custom(FIREWALL, namespace), Scope::Whole);
        }
    }

    /// A node has been read that has these addresses: they are not those of a node that cannot be.
    pub(crate) fn forget_found_addresses(&mut self, known: &[IpAddr], dirty: &mut Dirty<'_>) {
        let NodeAddresses { sets, lists, found, found_in_lists, .. } = &mut self.node_addresses;
        let forget = |found: &mut BTreeSet<IpAddr>| -> Vec<IpAddr> {
            known.iter().filter(|address| found.remove(address)).copied().collect()
        };
        let in_lists = forget(found_in_lists);
        let mut changed: BTreeSet<Arc<str>> = found
            .iter_mut()
            .filter_map(|(text, found)| (!forget(found).is_empty()).then(|| Arc::clone(text)))
            .collect();
        if !in_lists.is_empty() {
            let lists_any = |set: &NodeSet| {
                let mut own = set.lists.iter().filter_map(|rule| lists.get(rule));
                own.any(|list| in_lists.iter().any(|address| list.contains(address)))
            };
            let with_list = sets.iter().filter(|(_, set)| lists_any(set));
            changed.extend(with_list.map(|(text, _)| Arc::clone(text)));
        }
        changed.iter().for_each(|text| self.follow_node_set(text, dirty));
    }

    /// What was found at the start is not needed any more once all nodes can be read. A node that
    /// comes later and cannot be read has nothing in the database.
    pub(crate) fn forget_found_if_all_are_read(&mut self) {
        let NodeAddresses { found, found_in_lists, .. } = &mut self.node_addresses;
        let is_any =
            !(found.is_empty() && found_in_lists.is_empty()) && self.listed.contains(Kind::Node);
        if is_any && !self.nodes.iter().any(crate::kinds::node::object::Node::lacks_host_addresses)
        {
            found.clear();
            found_in_lists.clear();
        }
    }
}
