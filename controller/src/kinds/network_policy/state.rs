//! The NetworkPolicies: which pods each isolates, and what it refers to.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use contract::{names::PolicyKey, policy_annotation::Enforcement};
use kubeapi::services::Protocol;

use crate::{
    few::{Few, leave},
    key::AnyPolicy,
    kinds::network_policy::{
        namespace_sums::NamespaceSums,
        object::{Peer, Policy},
    },
    select::{
        peer::{Direction, PodPeer},
        selector::Selector,
        selectors::SelectorId,
        sets::{Sets, drop_from},
    },
};

/// So many namespaces of a selector are named one by one, as upstream names them all. Each is 24
/// bytes of each rule, and of all that northd and ovn-controllers read when one comes.
pub(crate) const NAMED_NAMESPACES: usize = 8;

/// The namespaces in which pods count that give a number to a port's name: for connections to the
/// selected pods, their own.
pub(crate) fn port_scope(key: &PolicyKey, direction: Direction) -> Option<&str> {
    match direction {
        Direction::Ingress => Some(key.namespace()),
        Direction::Egress => None,
    }
}

/// The names of ports in the rules of a policy.
pub(crate) fn port_scopes(key: &PolicyKey, policy: &Policy) -> BTreeSet<PortScope> {
    let of = |direction| {
        let namespace: Option<Arc<str>> = port_scope(key, direction).map(Into::into);
        let names = policy.port_names_of(direction);
        names.map(move |(name, protocol)| (namespace.clone(), Arc::clone(name), protocol))
    };
    Direction::ALL.into_iter().flat_map(of).collect()
}

/// A name of ports, and the namespace whose pods give it numbers; none for all pods.
pub(crate) type PortScope = (Option<Arc<str>>, Arc<str>, Protocol);

/// A policy, and the selectors that it refers to.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) policy: Policy,
    pub(crate) pods: SelectorId,
    /// Of the peers that are whole namespaces.
    pub(crate) namespaces: BTreeMap<Selector, SelectorId>,
}

/// The known policies.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    pub(crate) all: BTreeMap<PolicyKey, Box<Known>>,
    /// By the selector of the pods that they isolate.
    pub(crate) selecting: HashMap<SelectorId, Few<PolicyKey>>,
    /// Of the selectors of namespaces that are peers, those whose pods are one set. The sets of the
    /// single namespaces would be in each rule, and each namespace that comes would change all of
    /// these.
    pub(crate) together: HashMap<SelectorId, Arc<PodPeer>>,
    /// By the selector of namespaces whose pods are their peers.
    listing: HashMap<SelectorId, BTreeSet<PolicyKey>>,
    /// By the names of ports in their rules.
    pub(crate) naming: HashMap<PortScope, BTreeSet<AnyPolicy>>,
    pub(crate) sets: Sets,
    pub(crate) sums: NamespaceSums,
    /// How many are dry runs.
    pub(crate) dry_runs: usize,
    /// Names of ports that no pod has, as events have told.
    pub(crate) nameless: BTreeMap<PolicyKey, BTreeSet<PortName>>,
}

impl Policies {
    pub(crate) fn get(&self, key: &PolicyKey) -> Option<&Policy> {
        self.all.get(key).map(|known| &known.policy)
    }

    /// In the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PolicyKey, &Policy)> {
        self.all.iter().map(|(key, known)| (key, &known.policy))
    }

    /// The selector of the pods that the policy isolates.
    pub(crate) fn selected(&self, key: &PolicyKey) -> Option<SelectorId> {
        self.all.get(key).map(|known| known.pods)
    }

    /// Whether ports of the policy have names.
    pub(crate) fn has_names(&self, key: &PolicyKey) -> bool {
        self.get(key).is_some_and(|policy| policy.port_names().next().is_some())
    }

    /// Policies with whole namespaces of this selector as peers.
    pub(crate) fn listing(&self, id: SelectorId) -> impl Iterator<Item = &PolicyKey> {
        self.listing.get(&id).into_iter().flatten()
    }

    /// The selectors of such namespaces that are named one by one.
    pub(crate) fn listed(&self) -> impl Iterator<Item = SelectorId> {
        self.listing.keys().copied().filter(|id| !self.together.contains_key(id))
    }

    /// Whether the namespaces of this selector are named one by one.
    pub(crate) fn is_listed(&self, id: SelectorId) -> bool {
        self.listing.contains_key(&id) && !self.together.contains_key(&id)
    }

    /// Policies with a port of this name in rules about pods of the namespace, or about all pods.
    pub(crate) fn naming(
        &self,
        namespace: Option<&str>,
        name: &Arc<str>,
        protocol: Protocol,
    ) -> impl Iterator<Item = &AnyPolicy> + use<'_> {
        self.naming
            .get(&(namespace.map(Into::into), Arc::clone(name), protocol))
            .into_iter()
            .flatten()
    }

    /// The names of ports in rules.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &PortScope> {
        self.naming.keys()
    }

    /// The policies of a namespace.
    pub(crate) fn of_namespace<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a PolicyKey> {
        // They are neighbours, and no name is lower than this one.
        let first = PolicyKey::new(namespace, "0").ok();
        let from = first.into_iter().flat_map(|first| self.all.range(first..));
        from.map(|(key, _)| key).take_while(move |key| key.namespace() == namespace)
    }

    pub(crate) fn index(&mut self, key: &PolicyKey, known: &Known) {
        self.dry_runs += usize::from(known.policy.enforcement == Enforcement::DryRun);
        self.selecting.entry(known.pods).or_default().insert(key.clone());
        for id in known.namespaces.values() {
            self.listing.entry(*id).or_default().insert(key.clone());
        }
        for scope in port_scopes(key, &known.policy) {
            self.naming.entry(scope).or_default().insert(AnyPolicy::Namespaced(key.clone()));
        }
    }

    pub(crate) fn unindex(&mut self, key: &PolicyKey, known: &Known) {
        self.dry_runs -= usize::from(known.policy.enforcement == Enforcement::DryRun);
        leave(&mut self.selecting, &known.pods, key);
        known.namespaces.values().for_each(|id| drop_from(&mut self.listing, id, key));
        let user = AnyPolicy::Namespaced(key.clone());
        for scope in port_scopes(key, &known.policy) {
            drop_from(&mut self.naming, &scope, &user);
        }
        for peer in known.policy.peers() {
            if let Peer::Pods(peer) = peer {
                self.sets.leave(&peer.text, &user);
            }
        }
        for peer in known.namespaces.values().filter_map(|id| self.together.get(id)) {
            self.sets.leave(&peer.text, &user);
        }
    }
}

/// A name in rules of a direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortName {
    pub(crate) direction: Direction,
    pub(crate) name: Arc<str>,
    pub(crate) protocol: Protocol,
}
