//! What the rows of an object cost, known from counts before any of them is made. Knows the shape
//! of rows, and not their words.

use contract::limits::{
    CLUSTER_POLICY_ACLS, CLUSTER_POLICY_ELEMENTS, EGRESS_FIREWALL_ELEMENTS, Exceeded,
    NETWORK_POLICIES_ACLS, NETWORK_POLICIES_BYTES, NETWORK_POLICIES_ELEMENTS,
    NETWORK_POLICIES_SETS, NETWORK_POLICY_ACLS, NETWORK_POLICY_BYTES, NETWORK_POLICY_ELEMENTS,
    NETWORK_POLICY_SETS, PORT_NUMBERS,
};

use crate::{
    frozen::FrozenSet,
    select::peer::{Number, Port},
};

/// Families of addresses: a set has one row of each, and a match names both.
pub(crate) const FAMILIES: usize = 2;
/// The numbers that a port's name stands for in the price of a rule. Each is an alternative of the
/// match, which repeats the peers.
const NUMBERS: usize = PORT_NUMBERS.most;
/// More alternatives than so many are not written one by one, but as one match that repeats
/// nothing.
const ALTERNATIVES: usize = 32;

/// The cost of a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Price {
    /// Of its specification.
    pub(crate) bytes: usize,
    pub(crate) acls: usize,
    /// Networks, sets and ports in matches. ovn-controller makes about a flow of each.
    pub(crate) elements: usize,
    /// Sets of addresses that are there because of it.
    pub(crate) sets: usize,
}

impl Price {
    /// Of a rule whose peers are of so many kinds: each is in an ACL of its own for each protocol.
    pub(crate) fn of_matches(peers: usize, kinds: usize, ports: Option<&FrozenSet<Port>>) -> Self {
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

    pub(crate) fn add(&mut self, Self { bytes, acls, elements, sets }: Self) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.acls = self.acls.saturating_add(acls);
        self.elements = self.elements.saturating_add(elements);
        self.sets = self.sets.saturating_add(sets);
    }

    pub(crate) fn take(&mut self, Self { bytes, acls, elements, sets }: Self) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.acls = self.acls.saturating_sub(acls);
        self.elements = self.elements.saturating_sub(elements);
        self.sets = self.sets.saturating_sub(sets);
    }

    /// # Errors
    ///
    /// Policies of a namespace of this price together are beyond a limit.
    pub(crate) fn check_namespace(self) -> Result<(), Exceeded> {
        let Self { bytes, acls, elements, sets } = self;
        NETWORK_POLICIES_BYTES.check(bytes)?;
        NETWORK_POLICIES_ACLS.check(acls)?;
        NETWORK_POLICIES_ELEMENTS.check(elements)?;
        NETWORK_POLICIES_SETS.check(sets)
    }

    /// # Errors
    ///
    /// A policy of the cluster of this price is beyond a limit.
    pub(crate) fn check_cluster_policy(self) -> Result<(), Exceeded> {
        CLUSTER_POLICY_ACLS.check(self.acls)?;
        CLUSTER_POLICY_ELEMENTS.check(self.elements)
    }

    /// # Errors
    ///
    /// An EgressFirewall of this price is beyond a limit.
    pub(crate) fn check_firewall(self) -> Result<(), Exceeded> {
        EGRESS_FIREWALL_ELEMENTS.check(self.elements)
    }

    /// # Errors
    ///
    /// A policy of this price is beyond a limit.
    pub(crate) fn check(self) -> Result<(), Exceeded> {
        let Self { bytes, acls, elements, sets } = self;
        NETWORK_POLICY_BYTES.check(bytes)?;
        NETWORK_POLICY_ACLS.check(acls)?;
        NETWORK_POLICY_ELEMENTS.check(elements)?;
        NETWORK_POLICY_SETS.check(sets)
    }
}
