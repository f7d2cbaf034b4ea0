//! An EgressFirewall (`k8s.ovn.org/v1`): which connections of a namespace's pods leave the cluster.

use std::net::IpAddr;

use crate::{
    Name, Node, Selector,
    connection::{Cidr, Place, Protocol},
};

#[derive(Debug, Clone, PartialEq)]
pub struct EgressFirewall<'a> {
    /// In the order in which they are asked.
    pub rules: Vec<FirewallRule<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FirewallRule<'a> {
    /// Its place in the object, which may have rules that cannot be used.
    pub index: usize,
    pub action: FirewallAction,
    pub to: Destination<'a>,
    /// Empty: all of them. A port without a number stands for all ports of its protocol.
    pub ports: Vec<(Protocol, Option<u16>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirewallAction {
    Allow,
    Deny,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Destination<'a> {
    Anywhere,
    Net(Cidr),
    Nodes(Selector<'a>),
    Name(&'a str),
}

/// What the rules say of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub rules: Vec<FirewallFit>,
    /// The index in `rules` of the one that decides. None: no rule does.
    pub by: Option<usize>,
    pub allows: bool,
}

/// What a rule says of the connection. It is about the connection if both fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirewallFit {
    pub index: usize,
    pub action: FirewallAction,
    pub destination: bool,
    pub port: bool,
}

impl FirewallFit {
    pub fn is_about_it(self) -> bool {
        self.destination && self.port
    }
}

impl EgressFirewall<'_> {
    /// What the rules say of a connection to an address outside of the cluster.
    ///
    /// "Traffic from a pod to an IP address outside the cluster will be checked against each
    /// EgressFirewallRule in the pod's namespace's EgressFirewall, in order. If no rule matches (or
    /// no EgressFirewall is present) then the traffic will be allowed by default."
    pub fn answer(
        &self,
        address: IpAddr,
        place: Place,
        nodes: &[Node<'_>],
        names: &[Name<'_>],
    ) -> Answer {
        let fit = |rule: &FirewallRule<'_>| FirewallFit {
            index: rule.index,
            action: rule.action,
            destination: rule.to.is(address, nodes, names),
            port: rule.has_port(place),
        };
        let rules: Vec<FirewallFit> = self.rules.iter().map(fit).collect();
        let by = rules.iter().position(|fit| fit.is_about_it());
        let allows = by.is_none_or(|by| rules[by].action == FirewallAction::Allow);
        Answer { rules, by, allows }
    }
}

impl FirewallRule<'_> {
    fn has_port(&self, place: Place) -> bool {
        let is_it = |(protocol, number): &(Protocol, Option<u16>)| {
            *protocol == place.protocol && number.is_none_or(|number| number == place.port)
        };
        self.ports.is_empty() || self.ports.iter().any(is_it)
    }
}

impl Destination<'_> {
    fn is(&self, address: IpAddr, nodes: &[Node<'_>], names: &[Name<'_>]) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Net(net) => net.contains(address),
            Self::Nodes(of) => {
                let mut selected = nodes.iter().filter(|node| of.selects(&node.labels));
                selected.any(|node| node.addresses.contains(&address))
            }
            Self::Name(of) => {
                names.iter().any(|name| name.name == *of && name.addresses.contains(&address))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(
        action: FirewallAction,
        to: Destination<'static>,
        port: Option<u16>,
    ) -> FirewallRule<'static> {
        let ports = port.map(|port| (Protocol::Tcp, Some(port))).into_iter().collect();
        FirewallRule { index: 7, action, to, ports }
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_without_one_the_connection_is_allowed() {
        let net = |text: &str, length| Destination::Net(Cidr(text.parse().unwrap(), length));
        let edge = Selector { match_labels: vec![("role", "edge")], match_expressions: Vec::new() };
        let firewall = EgressFirewall {
            rules: vec![
                rule(FirewallAction::Allow, net("192.0.2.0", 24), Some(80)),
                rule(FirewallAction::Allow, Destination::Name("www.example.org"), None),
                rule(FirewallAction::Deny, Destination::Nodes(edge), None),
                rule(FirewallAction::Deny, net("192.0.0.0", 8), None),
            ],
        };
        let nodes = [Node {
            labels: vec![("role", "edge")],
            addresses: vec!["172.30.0.11".parse().unwrap()],
        }];
        let names =
            [Name { name: "www.example.org", addresses: vec!["192.0.2.9".parse().unwrap()] }];
        for (address, port, expected) in [
            ("192.0.2.7", 80, (true, Some(0))),
            ("192.0.2.7", 81, (false, Some(3))),
            ("192.0.2.9", 81, (true, Some(1))),
            ("172.30.0.11", 80, (false, Some(2))),
            ("198.51.100.1", 80, (true, None)),
        ] {
            let place = Place { is_ipv6: false, protocol: Protocol::Tcp, port };
            let answer = firewall.answer(address.parse().unwrap(), place, &nodes, &names);
            assert_eq!((answer.allows, answer.by), expected, "{address} {port}");
        }
    }
}
