//! What an event of a namespace changes.

use std::{collections::BTreeSet, sync::Arc};

use contract::{
    definition::CustomKind,
    names::PolicyKey,
    namespace_annotation::{AclLogging, BadNamespaceAnnotation, Multicast},
    ovn::HOST_NETWORK_NAMESPACE,
};
use kubeapi::object::Object;

use crate::{
    key::{AnyPolicy, Dirty, Key, Scope, SetId},
    kinds::namespace::{fanout, object::Namespace, state::Known},
    problem::Problem,
    select::selectors::{Moved, SelectorId},
    world::Store,
};

/// What rows derive from of a namespace's annotations.
#[derive(Debug)]
struct NamespaceFacts {
    logging: AclLogging,
    has_multicast: bool,
    has_group: bool,
}

impl Store {
    /// Whether the namespace was read. That of a pod always exists.
    pub fn knows_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    /// How the policies of the namespace are logged.
    pub fn logging(&self, namespace: &str) -> AclLogging {
        self.namespaces.known.get(namespace).map(|known| known.logging).unwrap_or_default()
    }

    /// Whether the namespace's pods have multicast among themselves.
    pub fn has_multicast(&self, namespace: &str) -> bool {
        let is_on = |known: &Known| known.multicast == Multicast::On;
        self.config.multicast == Multicast::On
            // Its set has the addresses of hosts.
            && namespace != HOST_NETWORK_NAMESPACE
            && self.namespaces.known.get(namespace).is_some_and(is_on)
    }

    /// The namespaces whose pods have multicast.
    pub(crate) fn with_multicast(&self) -> impl Iterator<Item = &Arc<str>> {
        self.namespaces.known.keys().filter(|name| self.has_multicast(name))
    }

    /// Whether the namespace's pods are in a group, for rules about all of them.
    pub fn has_namespace_group(&self, namespace: &str) -> bool {
        // The rules of an EgressFirewall that cannot be read stay in the group, and are about new
        // pods, too.
        let firewall = Key::custom(CustomKind::EgressFirewall, namespace.into());
        self.has_multicast(namespace)
            || self.has_firewall_rules(namespace)
            || self.unread.keeps(&firewall)
    }

    pub(crate) fn replace_namespaces(
        &mut self,
        namespaces: Vec<(Arc<str>, Namespace)>,
        dirty: &mut Dirty<'_>,
    ) {
        let there: BTreeSet<&Arc<str>> = namespaces.iter().map(|(name, _)| name).collect();
        let known = self.namespaces.iter().map(|(name, _)| name);
        let gone: Vec<Arc<str>> = known.filter(|name| !there.contains(name)).cloned().collect();
        gone.iter().for_each(|name| self.remove_namespace(name, dirty));
        namespaces
            .into_iter()
            .for_each(|(name, namespace)| self.put_namespace(name, namespace, dirty));
    }

    pub(crate) fn put_namespace(
        &mut self,
        name: Arc<str>,
        namespace: Namespace,
        dirty: &mut Dirty<'_>,
    ) {
        let Namespace { uid, labels, logging, multicast, unusable } = namespace;
        let before = self.facts_of(&name);
        let is_off = multicast == Multicast::On && self.config.multicast == Multicast::Off;
        let is_off = is_off.then(|| BadNamespaceAnnotation::MulticastIsOff.into());
        let known = Known { uid, logging, multicast, unusable: unusable.or(is_off) };
        self.tell_namespace(&name, &known);
        if self.namespaces.known.insert(Arc::clone(&name), known).is_none() {
            fanout::namespace(self.pods.selectors.labels().namespace(&name), dirty);
        }
        self.follow_annotations(&name, before, dirty);
        let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut moves = Vec::new();
        self.namespaces
            .selectors
            .put(&name, None, labels, &mut |id, moved| moves.push((id, moved)));
        self.follow_namespace(&name, &moves, dirty);
    }

    pub(crate) fn remove_namespace(&mut self, name: &Arc<str>, dirty: &mut Dirty<'_>) {
        let before = self.facts_of(name);
        if self.namespaces.known.remove(name).is_some() {
            fanout::namespace(self.pods.selectors.labels().namespace(name), dirty);
        }
        self.follow_annotations(name, before, dirty);
        let mut moves = Vec::new();
        self.namespaces.selectors.remove(name, &mut |id, moved| moves.push((id, moved)));
        self.follow_namespace(name, &moves, dirty);
        if self.policies.sets.forget_found(name) {
            dirty(Key::Set(SetId::Namespace(Arc::clone(name))), Scope::Whole);
        }
    }

    /// Queues an event if an annotation of the namespace has begun to be one that cannot be used.
    fn tell_namespace(&mut self, name: &Arc<str>, now: &Known) {
        let before = self.namespaces.known.get(name).and_then(|known| known.unusable.as_ref());
        if let Some(why) = now.unusable.as_ref().filter(|now| before != Some(*now)) {
            let object = Object::Namespace(Arc::clone(name));
            self.outbox.problems.push(Problem::new(object, &now.uid, &**why));
        }
    }

    fn facts_of(&self, name: &str) -> NamespaceFacts {
        NamespaceFacts {
            logging: self.logging(name),
            has_multicast: self.has_multicast(name),
            has_group: self.has_namespace_group(name),
        }
    }

    /// Follows a change of what the namespace's annotations say.
    fn follow_annotations(
        &mut self,
        name: &Arc<str>,
        before: NamespaceFacts,
        dirty: &mut Dirty<'_>,
    ) {
        let NamespaceFacts { logging, has_multicast, has_group } = before;
        self.follow_logging(name, logging, dirty);
        if self.has_multicast(name) != has_multicast {
            if has_multicast {
                // The rule in the database names the set.
                let own = SetId::Namespace(Arc::clone(name));
                self.policies.sets.hold(&AnyPolicy::Multicast(Arc::clone(name)), own);
            }
            fanout::multicast(name, dirty);
        }
        self.follow_namespace_group(name, has_group, dirty);
    }

    /// The namespace's pods may have a group from now on, or no longer.
    pub(crate) fn follow_namespace_group(
        &self,
        name: &Arc<str>,
        had_group: bool,
        dirty: &mut Dirty<'_>,
    ) {
        if self.has_namespace_group(name) != had_group {
            fanout::namespace_group(name, self.pods.selectors.labels().namespace(name), dirty);
        }
    }

    /// Follows a change of how the namespace's policies are logged.
    fn follow_logging(&self, name: &Arc<str>, before: AclLogging, dirty: &mut Dirty<'_>) {
        if self.logging(name) == before {
            return;
        }
        let policies: Vec<&PolicyKey> = self.policies.of_namespace(name).collect();
        fanout::logging(name, &policies, self.egress_firewall(name), dirty);
    }

    /// Follows the selectors that the namespace has come to match or left.
    fn follow_namespace(
        &mut self,
        name: &Arc<str>,
        moves: &[(SelectorId, Moved)],
        dirty: &mut Dirty<'_>,
    ) {
        for (id, moved) in moves {
            let own = SetId::Namespace(Arc::clone(name));
            let is_listed = self.follow_count_of_namespaces(*id, dirty);
            let policies: Vec<_> =
                self.policies.listing(*id).filter(|_| is_listed).cloned().collect();
            if !policies.is_empty() {
                dirty(Key::Set(own.clone()), Scope::Whole);
            }
            for policy in policies {
                if *moved == Moved::Out {
                    self.policies.sets.hold(&AnyPolicy::Namespaced(policy.clone()), own.clone());
                }
                dirty(Key::Policy(policy), Scope::Whole);
            }
            self.follow_subjects(*id, name, dirty);
            for (set, pods) in self.policies.sets.of_namespaces(*id) {
                let set = SetId::Pods(set);
                let of_set: Vec<_> = self.pods.selectors.matching_in(pods, name).cloned().collect();
                for pod in of_set {
                    self.moved_in_set(&set, &pod, *moved, dirty);
                }
            }
        }
    }
}
