//! The namespaces, by their labels.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Store,
    selectors::{Moved, SelectorId, Selectors},
};
use crate::key::{Dirty, Key, Scope, SetId};

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    pub uid: Arc<str>,
    pub labels: BTreeMap<String, String>,
}

/// The known namespaces. A namespace that is not known yet matches no selector, not even one without
/// requirements.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    uids: BTreeMap<Arc<str>, Arc<str>>,
    pub(super) selectors: Selectors<Arc<str>>,
}

impl Namespaces {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.uids.contains_key(name)
    }

    /// Their names and UIDs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.uids.iter()
    }

    pub(super) fn uid(&self, name: &str) -> Option<&Arc<str>> {
        self.uids.get(name)
    }
}

impl Store {
    pub(super) fn replace_namespaces(
        &mut self,
        namespaces: Vec<(Arc<str>, Namespace)>,
        dirty: &mut Dirty<'_>,
    ) {
        let there: BTreeSet<&Arc<str>> = namespaces.iter().map(|(name, _)| name).collect();
        let known = self.namespaces.iter().map(|(name, _)| name);
        let gone: Vec<Arc<str>> = known.filter(|name| !there.contains(name)).cloned().collect();
        gone.iter().for_each(|name| self.remove_namespace(name, dirty));
        namespaces.into_iter().for_each(|(name, namespace)| self.put_namespace(name, namespace, dirty));
    }

    pub(super) fn put_namespace(&mut self, name: Arc<str>, namespace: Namespace, dirty: &mut Dirty<'_>) {
        let Namespace { uid, labels } = namespace;
        self.namespaces.uids.insert(Arc::clone(&name), uid);
        let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut moves = Vec::new();
        self.namespaces.selectors.put(&name, None, labels, &mut |id, moved| moves.push((id, moved)));
        self.follow_namespace(&name, &moves, dirty);
    }

    pub(super) fn remove_namespace(&mut self, name: &Arc<str>, dirty: &mut Dirty<'_>) {
        self.namespaces.uids.remove(name);
        let mut moves = Vec::new();
        self.namespaces.selectors.remove(name, &mut |id, moved| moves.push((id, moved)));
        self.follow_namespace(name, &moves, dirty);
        if self.policies.sets.forget_found(name) {
            dirty(Key::Set(SetId::Namespace(Arc::clone(name))), Scope::Whole);
        }
    }

    /// Follows the selectors that the namespace has come to match or left.
    fn follow_namespace(&mut self, name: &Arc<str>, moves: &[(SelectorId, Moved)], dirty: &mut Dirty<'_>) {
        for (id, moved) in moves {
            let own = SetId::Namespace(Arc::clone(name));
            let policies: Vec<_> = self.policies.listing(*id).cloned().collect();
            if !policies.is_empty() {
                dirty(Key::Set(own.clone()), Scope::Whole);
            }
            for policy in policies {
                if *moved == Moved::Out {
                    self.policies.sets.hold(&policy, own.clone());
                }
                dirty(Key::Policy(policy), Scope::Whole);
            }
            for (set, pods) in self.policies.sets.of_namespaces(*id) {
                let set = SetId::Pods(set);
                let of_set = self.pods.selectors.labels().namespace(name);
                let of_set = of_set.filter(|pod| self.pods.selectors.matched_by(pod).contains(&pods));
                let of_set: Vec<_> = of_set.cloned().collect();
                for pod in of_set {
                    self.moved_in_set(&set, &pod, *moved, dirty);
                }
            }
        }
    }
}
