//! What the rows of a NetworkPolicy cost.

use std::collections::HashSet;

use contract::limits::NETWORK_POLICY_ELEMENTS;

use crate::{
    kinds::network_policy::{
        object::{Peer, Policy, Rule},
        state::NAMED_NAMESPACES,
    },
    object::price::{FAMILIES, Price},
};

impl Price {
    pub(crate) fn of_policy(policy: &Policy) -> Self {
        let mut price = Self::default();
        for rule in policy.all_rules() {
            price.add(Self::of_rule(rule));
        }
        let mut peers = HashSet::new();
        let mut namespaces = HashSet::new();
        for peer in policy.peers() {
            match peer {
                Peer::Block(_) => {}
                Peer::Namespaces(selector) => drop(namespaces.insert(selector)),
                Peer::Pods(peer) => drop(peers.insert(&peer.text)),
            }
        }
        let names: HashSet<_> = policy.port_names().collect();
        price.sets = peers.len() + namespaces.len() + names.len();
        price
    }

    /// Of one rule. Blocks and sets are in different ACLs, and so are protocols.
    fn of_rule(rule: &Rule) -> Self {
        let (mut networks, mut sets) = (0, 0);
        for peer in rule.peers.iter().flatten() {
            match peer {
                Peer::Block(block) => networks += block.size(NETWORK_POLICY_ELEMENTS.most),
                Peer::Namespaces(_) => sets += FAMILIES * NAMED_NAMESPACES,
                Peer::Pods(_) => sets += FAMILIES,
            }
            // It is too dear already.
            if networks + sets > NETWORK_POLICY_ELEMENTS.most {
                break;
            }
        }
        let kinds = match &rule.peers {
            None => 1,
            Some(_) => usize::from(networks > 0) + usize::from(sets > 0),
        };
        Self::of_matches(networks + sets, kinds, rule.ports.as_ref())
    }
}
