//! What the rows of an EgressFirewall cost.

use contract::limits::EGRESS_FIREWALL_ELEMENTS;

use crate::{
    kinds::egress_firewall::object::{Destination, FirewallRule},
    object::price::{FAMILIES, Price},
};

/// Addresses of nodes in the price of a rule about nodes, with a flow of each: 128 rules have as
/// many as an object may. Not those that there are, because no node that joins may close an
/// EgressFirewall.
const NODES: usize = EGRESS_FIREWALL_ELEMENTS.most / 128;

impl Price {
    pub(crate) fn of_firewall(rules: &[FirewallRule]) -> Self {
        let of_ports = |rule: &FirewallRule| rule.ports.as_ref().map_or(0, |ports| ports.len());
        let of_peers = |rule: &FirewallRule| match rule.to {
            Destination::Nodes(_) => NODES,
            Destination::Anywhere | Destination::Net(_) | Destination::Name(_) => FAMILIES,
        };
        let elements = rules.iter().map(|rule| of_peers(rule) + of_ports(rule)).sum();
        Self { acls: rules.len(), elements, ..Self::default() }
    }
}
