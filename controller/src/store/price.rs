//! What the rows of an object cost, known from counts before any of them is made. Knows the shape of rows, and
//! not their words.

use std::collections::HashSet;

use contract::limits::{
    CLUSTER_POLICY_ACLS, CLUSTER_POLICY_ELEMENTS, EGRESS_FIREWALL_ELEMENTS, Exceeded, NETWORK_POLICIES_ACLS,
    NETWORK_POLICIES_BYTES, NETWORK_POLICIES_ELEMENTS, NETWORK_POLICIES_SETS, NETWORK_POLICY_ACLS,
    NETWORK_POLICY_BYTES, NETWORK_POLICY_ELEMENTS, NETWORK_POLICY_SETS, PORT_NUMBERS,
};

use super::{
    cluster_policy::{ClusterPeer, Effect},
    egress_firewall::{Destination, FirewallRule},
    policies::NAMED_NAMESPACES,
    policy::{Number, Peer, Policy, Port, Rule},
};
use crate::frozen::FrozenSet;

/// Families of addresses: a set has one row of each, and a match names both.
const FAMILIES: usize = 2;
/// The numbers that a port's name stands for in the price of a rule. Each is an alternative of the match, which
/// repeats the peers.
const NUMBERS: usize = PORT_NUMBERS.most;
/// More alternatives than so many are not written one by one, but as one match that repeats nothing.
const ALTERNATIVES: usize = 32;

/// Addresses of nodes in the price of a rule about nodes, which lists them: 128 rules have as many as an object may.
/// Not those that there are, because no node that joins may close an EgressFirewall.
const NODES: usize = EGRESS_FIREWALL_ELEMENTS.most / 128;

/// The cost of a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Price {
    /// Of its specification.
    pub(super) bytes: usize,
    pub(super) acls: usize,
    /// Networks, sets and ports in matches. ovn-controller makes about a flow of each.
    pub(super) elements: usize,
    /// Sets of addresses that are there because of it.
    pub(super) sets: usize,
}

impl Price {
    pub(super) fn of_policy(policy: &Policy) -> Self {
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

    pub(super) fn of_effect(effect: &Effect) -> Self {
        let mut price = Self::default();
        for rule in effect.ingress.iter().chain(&effect.egress) {
            let (mut networks, mut sets) = (0, 0);
            for peer in rule.peers.iter().flatten() {
                match peer {
                    ClusterPeer::Network(_) => networks += 1,
                    ClusterPeer::Pods(_) | ClusterPeer::Nodes(_) | ClusterPeer::Name(_) => sets += FAMILIES,
                }
            }
            let kinds = match &rule.peers {
                None => 1,
                Some(_) => usize::from(networks > 0) + usize::from(sets > 0),
            };
            price.add(Self::of_matches(networks + sets, kinds, rule.ports.as_ref()));
        }
        price
    }

    pub(super) fn of_firewall(rules: &[FirewallRule]) -> Self {
        let of_ports = |rule: &FirewallRule| rule.ports.as_ref().map_or(0, |ports| ports.len());
        let of_peers = |rule: &FirewallRule| match rule.to {
            Destination::Nodes(_) => NODES,
            Destination::Anywhere | Destination::Net(_) | Destination::Name(_) => FAMILIES,
        };
        let elements = rules.iter().map(|rule| of_peers(rule) + of_ports(rule)).sum();
        Self { acls: rules.len(), elements, ..Self::default() }
    }

    /// Of a rule whose peers are of so many kinds: each is in an ACL of its own for each protocol.
    fn of_matches(peers: usize, kinds: usize, ports: Option<&FrozenSet<Port>>) -> Self {
        let of_protocol = |ports: &[Port]| {
            let names = ports.iter().filter(|port| matches!(port.number, Number::Named(_))).count();
            let alternatives = (1 + names * NUMBERS).min(ALTERNATIVES);
            let of_ports = ports.len() + names * NUMBERS * FAMILIES;
            let elements = peers * alternatives + kinds * of_ports;
            Self { acls: kinds, elements, ..Self::default() }
        };
        let mut price = Self::default();
        match ports {
            None => price.add(of_protocol(&[])),
            Some(ports) => {
                let protocols = ports.chunk_by(|one, other| one.protocol == other.protocol);
                protocols.for_each(|own| price.add(of_protocol(own)));
            }
        }
        price
    }

    pub(super) fn add(&mut self, Self { bytes, acls, elements, sets }: Self) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.acls = self.acls.saturating_add(acls);
        self.elements = self.elements.saturating_add(elements);
        self.sets = self.sets.saturating_add(sets);
    }

    pub(super) fn take(&mut self, Self { bytes, acls, elements, sets }: Self) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.acls = self.acls.saturating_sub(acls);
        self.elements = self.elements.saturating_sub(elements);
        self.sets = self.sets.saturating_sub(sets);
    }

    /// # Errors
    ///
    /// Policies of a namespace of this price together are beyond a limit.
    pub(super) fn check_namespace(self) -> Result<(), Exceeded> {
        let Self { bytes, acls, elements, sets } = self;
        NETWORK_POLICIES_BYTES.check(bytes)?;
        NETWORK_POLICIES_ACLS.check(acls)?;
        NETWORK_POLICIES_ELEMENTS.check(elements)?;
        NETWORK_POLICIES_SETS.check(sets)
    }

    /// # Errors
    ///
    /// A policy of the cluster of this price is beyond a limit.
    pub(super) fn check_cluster_policy(self) -> Result<(), Exceeded> {
        CLUSTER_POLICY_ACLS.check(self.acls)?;
        CLUSTER_POLICY_ELEMENTS.check(self.elements)
    }

    /// # Errors
    ///
    /// An EgressFirewall of this price is beyond a limit.
    pub(super) fn check_firewall(self) -> Result<(), Exceeded> {
        EGRESS_FIREWALL_ELEMENTS.check(self.elements)
    }

    /// # Errors
    ///
    /// A policy of this price is beyond a limit.
    pub(super) fn check(self) -> Result<(), Exceeded> {
        let Self { bytes, acls, elements, sets } = self;
        NETWORK_POLICY_BYTES.check(bytes)?;
        NETWORK_POLICY_ACLS.check(acls)?;
        NETWORK_POLICY_ELEMENTS.check(elements)?;
        NETWORK_POLICY_SETS.check(sets)
    }
}
