//! The EgressFirewalls, by their namespaces: which pods each is about, and the status that each should have.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use contract::limits::EGRESS_FIREWALL;
use ipnet::IpNet;

use super::{
    DnsName, EgressFirewall, Store,
    beyond::Size,
    conditions::Standing,
    egress_firewall::{Destination, ObservedStatus, Unusable},
    fanout,
    said::Said,
    selector::Selector,
    selectors::SelectorId,
    sets::drop_from,
};
use crate::{
    config::Zone,
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    trouble::Trouble,
};

/// The status of an EgressFirewall whose rows are in the database: upstream's words, for which scripts look.
const APPLIED: &str = "EgressFirewall Rules applied";
/// The same of one with a part that cannot be used.
const NOT_APPLIED: &str = "EgressFirewall Rules not correctly applied";

/// An EgressFirewall, and the selectors of nodes that it refers to.
#[derive(Debug)]
struct Known {
    firewall: EgressFirewall,
    nodes: BTreeMap<Selector, SelectorId>,
    said: Said<FirewallStatus>,
}

/// The known EgressFirewalls.
#[derive(Debug, Default)]
pub(super) struct EgressFirewalls {
    all: BTreeMap<Arc<str>, Box<Known>>,
    /// By a selector of nodes in their rules.
    by_nodes: HashMap<SelectorId, BTreeSet<Arc<str>>>,
}

/// Why an EgressFirewall does not do what its author may expect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressFirewallTrouble {
    #[error(transparent)]
    Unusable(Box<Unusable>),
    #[error(
        "the name {name:?} of its rule {rule} has no addresses: {why}; until then no connection fits the rule"
    )]
    NoAddresses { rule: usize, name: DnsName, why: Box<str> },
    #[error(
        "the name {name:?} of its rule {rule} has the address {address}, which is the cluster's own; no connection to \
         it fits the rule"
    )]
    OwnAddress { rule: usize, name: DnsName, address: IpAddr },
    #[error(
        "its rule {rule} is about {net}, which has only addresses of pods; what these may reach, NetworkPolicies \
         say"
    )]
    OnlyPods { rule: usize, net: IpNet },
}

impl EgressFirewallTrouble {
    /// One word for an event's `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unusable(unusable) => unusable.reason(),
            Self::NoAddresses { .. } => "NoAddresses",
            Self::OwnAddress { .. } => "OwnAddress",
            Self::OnlyPods { .. } => "OnlyPods",
        }
    }
}

/// The status that an EgressFirewall should have, to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallStatus {
    pub namespace: Arc<str>,
    pub uid: Arc<str>,
    /// The zone whose message this is, which also is the manager of these fields.
    pub zone: Zone,
    pub status: &'static str,
    pub message: String,
}

impl FirewallStatus {
    /// Whether the object has it.
    fn is_in(&self, ObservedStatus { status, messages }: &ObservedStatus) -> bool {
        status.as_deref() == Some(self.status)
            && messages.as_ref().is_some_and(|all| all.contains(self.message.as_str()))
    }
}

impl EgressFirewalls {
    /// In the order of their names.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all.keys()
    }

    fn known(&self, namespace: &str) -> Option<&Known> {
        self.all.get(namespace).map(|known| &**known)
    }

    /// Those with rules about nodes with this selector.
    pub(super) fn of_nodes(&self, id: SelectorId) -> impl Iterator<Item = &Arc<str>> {
        self.by_nodes.get(&id).into_iter().flatten()
    }
}

impl Store {
    pub fn egress_firewall(&self, namespace: &str) -> Option<&EgressFirewall> {
        self.egress_firewalls.known(namespace).map(|known| &known.firewall)
    }

    /// Whether the pods of the namespace are limited by rules.
    pub fn has_firewall_rules(&self, namespace: &str) -> bool {
        self.egress_firewall(namespace).is_some_and(|firewall| !firewall.rules.is_empty())
    }

    pub(super) fn selector_of_rule(&self, namespace: &str, selector: &Selector) -> Option<SelectorId> {
        self.egress_firewalls.known(namespace)?.nodes.get(selector).copied()
    }

    /// What is wrong with the EgressFirewall.
    pub fn egress_firewall_trouble(&self, namespace: &str) -> Option<EgressFirewallTrouble> {
        let firewall = self.egress_firewall(namespace)?;
        let only_pods = || {
            firewall.rules.iter().find_map(|rule| match rule.to {
                Destination::Net(net)
                    if self.config.cluster_subnets.iter().any(|of| of.cidr.contains(&net)) =>
                {
                    Some(EgressFirewallTrouble::OnlyPods { rule: rule.index, net })
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
                    let (rule, name, why) = (rule.index, Arc::clone(name), self.names.unanswered(name)?);
                    Some(EgressFirewallTrouble::NoAddresses { rule, name, why: why.into() })
                }
                Destination::Net(_) | Destination::Anywhere | Destination::Nodes(_) => None,
            })
        };
        let own_address = || {
            firewall.rules.iter().find_map(|rule| match &rule.to {
                Destination::Name(name) => {
                    let (rule, name, address) = (rule.index, Arc::clone(name), self.names.left_out(name)?);
                    Some(EgressFirewallTrouble::OwnAddress { rule, name, address })
                }
                Destination::Net(_) | Destination::Anywhere | Destination::Nodes(_) => None,
            })
        };
        let unusable = firewall.unusable.clone().map(EgressFirewallTrouble::Unusable);
        unusable.or_else(no_addresses).or_else(own_address).or_else(only_pods)
    }

    pub(super) fn replace_egress_firewalls(
        &mut self,
        firewalls: Vec<(Arc<str>, EgressFirewall)>,
        dirty: &mut Dirty<'_>,
    ) {
        let there: BTreeSet<&Arc<str>> = firewalls.iter().map(|(namespace, _)| namespace).collect();
        let known = self.egress_firewalls.all.keys();
        let gone: Vec<Arc<str>> = known.filter(|namespace| !there.contains(namespace)).cloned().collect();
        gone.iter().for_each(|namespace| self.remove_egress_firewall(namespace, dirty));
        for (namespace, firewall) in firewalls {
            if let Some(known) = self.egress_firewalls.all.get_mut(&namespace) {
                known.said.listed();
            }
            self.put_egress_firewall(&namespace, firewall, dirty);
        }
    }

    pub(super) fn put_egress_firewall(
        &mut self,
        namespace: &Arc<str>,
        firewall: EgressFirewall,
        dirty: &mut Dirty<'_>,
    ) {
        match self.egress_firewalls.all.get_mut(namespace) {
            Some(known) if known.firewall.is_like(&firewall) => known.firewall.status = firewall.status,
            Some(_) | None => self.change_egress_firewall(namespace, Some(firewall), dirty),
        }
        self.write_status(namespace);
    }

    pub(super) fn remove_egress_firewall(&mut self, namespace: &Arc<str>, dirty: &mut Dirty<'_>) {
        if self.egress_firewall(namespace).is_some() {
            self.change_egress_firewall(namespace, None, dirty);
        }
    }

    /// Replaces an EgressFirewall, or removes it.
    fn change_egress_firewall(
        &mut self,
        namespace: &Arc<str>,
        firewall: Option<EgressFirewall>,
        dirty: &mut Dirty<'_>,
    ) {
        let had_group = self.has_namespace_group(namespace);
        let size_before = self.size_of_firewall(namespace);
        let trouble_before = self.egress_firewall_trouble(namespace);
        let names_of =
            |firewall: &EgressFirewall| -> BTreeSet<DnsName> { firewall.names().cloned().collect() };
        let names_before = self.egress_firewall(namespace).map(names_of).unwrap_or_default();
        let names = firewall.as_ref().map(names_of).unwrap_or_default();
        // The new selectors before the old ones go: most are the same, and are searched for once.
        let now = firewall.map(|firewall| {
            let mut nodes = BTreeMap::new();
            for selector in firewall.node_selectors() {
                if !nodes.contains_key(selector) {
                    nodes.insert(selector.clone(), self.nodes.selectors.refer_to(selector));
                }
            }
            Box::new(Known { firewall, nodes, said: Said::default() })
        });
        if let Some(before) = self.egress_firewalls.all.remove(namespace) {
            for id in before.nodes.into_values() {
                drop_from(&mut self.egress_firewalls.by_nodes, &id, namespace);
                self.nodes.selectors.release(id);
            }
        }
        if let Some(known) = now {
            for id in known.nodes.values() {
                self.egress_firewalls.by_nodes.entry(*id).or_default().insert(Arc::clone(namespace));
            }
            self.egress_firewalls.all.insert(Arc::clone(namespace), known);
        }
        self.beyond.follow(EGRESS_FIREWALL, size_before, self.size_of_firewall(namespace));
        let user = AnyPolicy::EgressFirewall(Arc::clone(namespace));
        for name in names.difference(&names_before) {
            self.names.join(name, &user);
            dirty(Key::Set(SetId::Name(Arc::clone(name))), Scope::Whole);
        }
        for name in names_before.difference(&names) {
            self.names.leave(name, &user);
            self.policies.sets.hold(&user, SetId::Name(Arc::clone(name)));
        }
        self.follow_namespace_group(namespace, had_group, dirty);
        fanout::egress_firewall(namespace, dirty);
        self.tell_egress_firewall(namespace, trouble_before.as_ref());
    }

    fn size_of_firewall(&self, namespace: &str) -> Size {
        let firewall = self.egress_firewall(namespace);
        let is_too_large =
            |firewall: &EgressFirewall| matches!(firewall.unusable.as_deref(), Some(Unusable::TooLarge(_)));
        Size::of(firewall.is_some_and(is_too_large))
    }

    /// Queues an event if something has begun to be wrong with the EgressFirewall.
    pub(super) fn tell_egress_firewall(
        &mut self,
        namespace: &Arc<str>,
        before: Option<&EgressFirewallTrouble>,
    ) {
        let now = self.egress_firewall_trouble(namespace).filter(|now| before != Some(now));
        let uid = self.egress_firewall(namespace).map(|firewall| Arc::clone(&firewall.uid));
        if let Some((why, uid)) = now.zip(uid) {
            self.outbox.tell_egress_firewall(Trouble { subject: Arc::clone(namespace), uid, why });
        }
    }

    /// The database shows the rules: its status may say so.
    pub(super) fn settled_egress_firewall(&mut self, namespace: &Arc<str>) {
        self.firewall_stands(namespace, Standing::Ready);
    }

    pub(super) fn firewall_stands(&mut self, namespace: &Arc<str>, standing: Standing) {
        if let Some(known) = self.egress_firewalls.all.get_mut(namespace) {
            known.said.standing = Some(standing);
            self.write_status(namespace);
        }
    }

    /// Hands out the status that the object should have, unless it has it or will have it. Before the first
    /// rows are in the database, the status of before stays.
    pub(super) fn write_status(&mut self, namespace: &Arc<str>) {
        let Some(known) = self.egress_firewalls.known(namespace) else { return };
        let trouble = || self.egress_firewall_trouble(namespace).map(|trouble| trouble.to_string());
        let why = match &known.said.standing {
            None => return,
            Some(Standing::Ready) => trouble(),
            Some(Standing::Failed(why)) => Some(why.to_string()),
        };
        let zone = self.config.zone.clone();
        let (status, message) = match why {
            None => (APPLIED, format!("{}: {APPLIED}", zone.0)),
            Some(why) => (NOT_APPLIED, format!("{}: {NOT_APPLIED}: {why}", zone.0)),
        };
        let (namespace, uid) = (Arc::clone(namespace), Arc::clone(&known.firewall.uid));
        let wanted = FirewallStatus { namespace, uid, zone, status, message };
        let is_there = wanted.is_in(&known.firewall.status);
        let Some(known) = self.egress_firewalls.all.get_mut(&wanted.namespace) else { return };
        if is_there {
            known.said.arrived();
        } else if known.said.hand_out(wanted.clone()) {
            self.outbox.write_status(wanted);
        }
    }
}
