//! What an event of an EgressFirewall changes.

use std::{collections::BTreeSet, sync::Arc};

use contract::definition::CustomKind;

use crate::{
    custom::CustomProblem,
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    kinds::egress_firewall::{
        object::{Destination, EgressFirewall},
        problem::EgressFirewallProblem,
        rows,
    },
    rows::RowSet,
    select::{names::DnsName, node_addresses::NodePeer},
    world::{Store, custom::CustomChanges},
};

/// What an EgressFirewall uses of others.
pub(crate) struct FirewallUses {
    names: BTreeSet<DnsName>,
    /// Nodes in its rules, by their indices.
    nodes: Vec<(usize, NodePeer)>,
    /// Whether the pods of its namespace have a group.
    has_group: bool,
}

impl CustomChanges for EgressFirewall {
    type Uses = FirewallUses;

    fn uses(store: &Store, namespace: &Arc<str>) -> FirewallUses {
        let firewall = store.egress_firewall(namespace);
        FirewallUses {
            names: firewall.into_iter().flat_map(Self::names).cloned().collect(),
            nodes: firewall
                .into_iter()
                .flat_map(Self::node_rules)
                .map(|(index, peer)| (index, peer.clone()))
                .collect(),
            has_group: store.has_namespace_group(namespace),
        }
    }

    fn follow(
        store: &mut Store,
        namespace: &Arc<str>,
        before: FirewallUses,
        dirty: &mut Dirty<'_>,
    ) {
        let now = Self::uses(store, namespace);
        store.change_nodes_of_firewall(namespace, &before.nodes, &now.nodes, dirty);
        let user = AnyPolicy::Custom(CustomKind::EgressFirewall, Arc::clone(namespace));
        for name in now.names.difference(&before.names) {
            store.names.join(name, &user);
            dirty(Key::Set(SetId::Name(Arc::clone(name))), Scope::Whole);
        }
        for name in before.names.difference(&now.names) {
            store.names.leave(name, &user);
            store.policies.sets.hold(&user, SetId::Name(Arc::clone(name)));
        }
        store.follow_namespace_group(namespace, before.has_group, dirty);
    }

    fn problem(store: &Store, namespace: &str) -> Option<CustomProblem> {
        let problem = store.egress_firewall_problem(namespace)?;
        Some(CustomProblem::new(problem.reason(), problem))
    }

    fn rows(store: &Store, namespace: &Arc<str>) -> RowSet {
        rows::egress_firewall(store, namespace)
    }
}

impl Store {
    pub fn egress_firewall(&self, namespace: &str) -> Option<&EgressFirewall> {
        self.custom(namespace)
    }

    /// Whether the pods of the namespace are limited by rules.
    pub fn has_firewall_rules(&self, namespace: &str) -> bool {
        self.egress_firewall(namespace).is_some_and(|firewall| !firewall.rules.is_empty())
    }

    /// What is wrong with the EgressFirewall.
    fn egress_firewall_problem(&self, namespace: &str) -> Option<EgressFirewallProblem> {
        let firewall = self.egress_firewall(namespace)?;
        let only_pods = || {
            firewall.rules.iter().find_map(|rule| match rule.to {
                Destination::Net(net)
                    if self.config.cluster_subnets.iter().any(|of| of.cidr.contains(&net)) =>
                {
                    Some(EgressFirewallProblem::OnlyPods { rule: rule.index, net })
                }
                Destination::Net(_)
                | Destination::Anywhere
                | Destination::Nodes(_)
                | Destination::Name(_) => None,
            })
        };
        let no_addresses = || {
            firewall.rules.iter().find_map(|rule| match &rule.to {
                Destination::Name(name) => {
                    let (rule, name, why) =
                        (rule.index, Arc::clone(name), self.names.unanswered(name)?);
                    Some(EgressFirewallProblem::NoAddresses { rule, name, why: why.into() })
                }
                Destination::Net(_) | Destination::Anywhere | Destination::Nodes(_) => None,
            })
        };
        let own_address = || {
            firewall.rules.iter().find_map(|rule| match &rule.to {
                Destination::Name(name) => {
                    let (rule, name, address) =
                        (rule.index, Arc::clone(name), self.names.left_out(name)?);
                    Some(EgressFirewallProblem::OwnAddress { rule, name, address })
                }
                Destination::Net(_) | Destination::Anywhere | Destination::Nodes(_) => None,
            })
        };
        let unusable = firewall.unusable.clone().map(EgressFirewallProblem::Unusable);
        unusable.or_else(no_addresses).or_else(own_address).or_else(only_pods)
    }
}
