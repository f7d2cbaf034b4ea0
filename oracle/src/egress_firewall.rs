//! What the definition of EgressFirewall (`k8s.ovn.org/v1`) says: which connections of a pod leave
//! the cluster.
//!
//! What decides is the package `verdict`. Here is what the control plane promises of rules that
//! cannot be used (docs/troubleshooting.md).

use std::net::IpAddr;

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};
use verdict::{
    Cidr, Place, Protocol, Selector,
    egress_firewall::{Destination, FirewallAction, FirewallRule},
};

use crate::{
    policies::{self, Pod},
    world::text_address,
};

/// Namespaces, pods and policies, and at most one EgressFirewall of each namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct World {
    pub policies: policies::World,
    pub firewalls: Vec<EgressFirewall>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EgressFirewall {
    pub namespace: &'static str,
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub action: Action,
    pub to: To,
    pub ports: Vec<(Protocol, u16)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum To {
    Cidr(Cidr),
    /// Nodes with this value of the label `role`; all nodes without a value.
    Nodes(Option<&'static str>),
    /// A text that is no network.
    Nonsense,
}

impl World {
    /// Whether the pod's connection may leave the cluster for the address. Both have to allow it,
    /// the policies and the EgressFirewall.
    pub fn may_leave(&self, pod: &Pod, address: IpAddr, place: Place) -> bool {
        self.policies.lets_out(pod, address, place) && self.firewall_allows(pod, address, place)
    }

    fn firewall_allows(&self, pod: &Pod, address: IpAddr, place: Place) -> bool {
        let firewall = self.firewalls.iter().find(|firewall| firewall.namespace == pod.namespace);
        let nodes: Vec<verdict::Node<'_>> =
            self.policies.nodes().iter().map(policies::verdict::node).collect();
        firewall.is_none_or(|firewall| firewall.facts().answer(address, place, &nodes, &[]).allows)
    }

    /// The EgressFirewalls, as the API server would deliver them.
    pub fn manifests(&self) -> Vec<Value> {
        self.firewalls.iter().map(EgressFirewall::manifest).collect()
    }
}

impl Rule {
    /// What is asked; none of a rule that is left out.
    fn facts(&self, index: usize) -> Option<FirewallRule<'static>> {
        let all = || Selector { match_labels: Vec::new(), match_expressions: Vec::new() };
        let to = match (self.to, self.action) {
            (To::Cidr(cidr), _) => Destination::Net(cidr),
            (To::Nodes(None), _) => Destination::Nodes(all()),
            (To::Nodes(Some(role)), _) => {
                Destination::Nodes(Selector { match_labels: vec![("role", role)], ..all() })
            }
            // What cannot be used fails closed.
            (To::Nonsense, Action::Deny) => Destination::Anywhere,
            (To::Nonsense, Action::Allow) => return None,
        };
        let action = match self.action {
            Action::Allow => FirewallAction::Allow,
            Action::Deny => FirewallAction::Deny,
        };
        let ports =
            self.ports.iter().map(|(protocol, number)| (*protocol, Some(*number))).collect();
        Some(FirewallRule { index, action, to, ports })
    }
}

impl EgressFirewall {
    fn facts(&self) -> verdict::EgressFirewall<'static> {
        let rules = self.rules.iter().enumerate();
        verdict::EgressFirewall {
            rules: rules.filter_map(|(index, rule)| rule.facts(index)).collect(),
        }
    }

    pub fn manifest(&self) -> Value {
        let rule = |Rule { action, to, ports }: &Rule| {
            let to = match to {
                To::Cidr(Cidr(address, length)) => {
                    json!({"cidrSelector": format!("{address}/{length}")})
                }
                To::Nodes(None) => json!({"nodeSelector": {}}),
                To::Nodes(Some(role)) => json!({"nodeSelector": {"matchLabels": {"role": role}}}),
                To::Nonsense => json!({"cidrSelector": "nonsense"}),
            };
            let port = |(protocol, port): &(Protocol, u16)| json!({"protocol": protocol.name(), "port": port});
            json!({
                "type": match action { Action::Allow => "Allow", Action::Deny => "Deny" },
                "to": to,
                "ports": ports.iter().map(port).collect::<Vec<_>>(),
            })
        };
        json!({
            "apiVersion": "k8s.ovn.org/v1",
            "kind": "EgressFirewall",
            "metadata": {"namespace": self.namespace, "name": "default", "uid": self.namespace},
            "spec": {"egress": self.rules.iter().map(rule).collect::<Vec<_>>()},
        })
    }
}

/// One object a line, as JSON.
impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.policies.fmt(f)?;
        self.manifests().iter().try_for_each(|object| writeln!(f, "{object}"))
    }
}

/// Few policies, and EgressFirewalls of some namespaces.
pub fn world() -> impl Strategy<Value = World> {
    let firewalls = vec(option::weighted(0.8, vec(rule(), 0..=5)), 3);
    (policies::random::world(), firewalls).prop_map(|(mut policies, firewalls)| {
        policies.policies.truncate(3);
        let names: Vec<&'static str> =
            policies.namespaces.iter().map(|namespace| namespace.name).collect();
        let firewalls = names.into_iter().zip(firewalls);
        let firewalls = firewalls
            .filter_map(|(namespace, rules)| Some(EgressFirewall { namespace, rules: rules? }));
        World { firewalls: firewalls.collect(), policies }
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let nets = vec![
        ("0.0.0.0", 0),
        ("::", 0),
        ("192.0.2.0", 24),
        ("192.0.2.128", 25),
        ("10.0.0.0", 8),
        ("172.30.0.0", 24),
        ("2001:db8::", 48),
        ("10.244.1.0", 24),
        ("fd00::", 8),
    ];
    let to = prop_oneof![
        6 => select(nets).prop_map(|(net, length)| To::Cidr(Cidr(text_address(net), length))),
        2 => select(vec![None, Some("edge"), Some("inner"), Some("none")]).prop_map(To::Nodes),
        1 => Just(To::Nonsense),
    ];
    let port = (select(&Protocol::ALL[..]), select(vec![80_u16, 8080]));
    (select(vec![Action::Allow, Action::Deny]), to, vec(port, 0..=2))
        .prop_map(|(action, to, ports)| Rule { action, to, ports })
}
