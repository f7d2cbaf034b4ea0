//! Kinds of objects of which there is no list: their definition is not there, is served in other
//! versions only, or this program may not read them, or the API server cannot list them. None of
//! this removes what denies.
//!
//! | the kind | then |
//! |---|---|
//! | has no object here, neither in the store nor in the database | it counts as read: there is nothing to lose |
//! | was read before | its objects stay in force |
//! | has rows in the database and was never read | all wait for it; after some minutes they go on [without](Store::go_on_without) it: its rows stay, and what they refer to |

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use contract::{definition::CustomKind, names::PodKey};
use kubeapi::watch::Unlisted;

use crate::{
    key::{Dirty, Key, Scope, SetId},
    watch_event::Kind,
    world::{Kept, Store},
};

const FIREWALLS: Kind = Kind::Custom(CustomKind::EgressFirewall);

/// Which kinds cannot be read, and what stays for their sake.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// Why there is no list, of kinds with objects.
    why: BTreeMap<Kind, Unlisted>,
    /// Kinds that were never read, without which the store goes on.
    without: BTreeSet<Kind>,
    /// The owners of their rows in the database.
    keys: BTreeSet<Key>,
    /// The sets of the database, which their rows may name. Those of pods, with addresses of pods
    /// that have had these ever since.
    sets: HashMap<SetId, BTreeSet<IpAddr>>,
    /// The same, by address of a pod.
    by_address: HashMap<IpAddr, BTreeSet<SetId>>,
}

impl Unread {
    pub(crate) fn is_without(&self, kind: Kind) -> bool {
        self.without.contains(&kind)
    }

    /// Whether the rows of this key stay because its object cannot be read.
    pub(crate) fn keeps(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    /// What stays of the rows of this key.
    pub(crate) fn kept(&self, key: &Key) -> Kept {
        match key {
            Key::ClusterPolicy(policy) if self.is_without(Kind::ClusterPolicy(policy.kind)) => {
                Kept::ALL
            }
            Key::Custom(of) if self.is_without(Kind::Custom(of.kind)) => Kept::ALL,
            // The group holds the rules of the EgressFirewall.
            Key::Namespace(_) if self.is_without(FIREWALLS) => Kept::GROUPS,
            _ => Kept::NOTHING,
        }
    }

    /// Whether a row that stays may name the set.
    pub(crate) fn has_set(&self, set: &SetId) -> bool {
        self.sets.contains_key(set)
    }

    pub(crate) fn sets(&self) -> impl Iterator<Item = SetId> {
        self.sets.keys().cloned()
    }

    /// The addresses that the set has kept.
    pub(crate) fn addresses(&self, set: &SetId) -> impl Iterator<Item = IpAddr> {
        self.sets.get(set).into_iter().flatten().copied()
    }

    /// The sets of pods that have kept the address.
    pub(crate) fn sets_with(&self, address: IpAddr) -> impl Iterator<Item = &SetId> {
        self.by_address.get(&address).into_iter().flatten()
    }

    /// The address has left the set: what stays must not allow it to the next pod.
    pub(crate) fn leave(&mut self, set: &SetId, address: IpAddr) {
        if let Some(sets) = self.by_address.get_mut(&address) {
            sets.remove(set);
            if sets.is_empty() {
                self.by_address.remove(&address);
            }
            if let Some(addresses) = self.sets.get_mut(set) {
                addresses.remove(&address);
            }
        }
    }
}

impl Store {
    /// There is no list of this kind.
    pub(crate) fn see_unlisted(&mut self, kind: Kind, why: Unlisted, dirty: &mut Dirty<'_>) {
        let may_have_objects = match why {
            Unlisted::UnknownVersion { .. } => true,
            Unlisted::Undefined(_) | Unlisted::Forbidden { .. } => self.has_objects(kind),
        };
        if may_have_objects {
            self.unread.why.insert(kind, why);
        } else {
            self.is_read(kind, dirty);
        }
    }

    /// Whether an object of the kind is known: by a list, or by its rows in the database.
    fn has_objects(&self, kind: Kind) -> bool {
        match kind {
            Kind::ClusterPolicy(of) if self.listed.contains(kind) => {
                self.cluster_policies.keys().any(|key| key.kind == of)
            }
            Kind::Custom(of) if self.listed.contains(kind) => {
                !self.custom_namespaces(of).is_empty()
            }
            _ => self.keys_found(kind).next().is_some(),
        }
    }

    /// The kind was read, or has nothing that could be lost.
    pub(crate) fn is_read(&mut self, kind: Kind, dirty: &mut Dirty<'_>) {
        self.unread.why.remove(&kind);
        self.listed.insert(kind);
        if !self.unread.without.remove(&kind) {
            return;
        }
        // Nothing has to stay for its sake any more: neither its rows, nor what they name, nor pods
        // in its groups.
        self.pods.iter().for_each(|(pod, _)| dirty(Key::Pod(pod.clone()), Scope::Whole));
        std::mem::take(&mut self.unread.keys).into_iter().for_each(|key| dirty(key, Scope::Whole));
        let others: BTreeSet<Key> =
            self.unread.without.iter().flat_map(|kind| self.keys_found(*kind)).collect();
        self.unread.keys = others;
        if self.unread.without.is_empty() {
            self.unread.by_address.clear();
            let sets = std::mem::take(&mut self.unread.sets);
            sets.into_keys().for_each(|set| dirty(Key::Set(set), Scope::Whole));
        }
    }

    /// Kinds without which the store cannot go on yet, and might: see
    /// [`go_on_without`](Self::go_on_without).
    pub fn unread(&self) -> BTreeSet<Kind> {
        let is_open = |kind: &Kind| !self.listed.contains(*kind) && !self.unread.is_without(*kind);
        Self::KINDS.iter().copied().filter(|kind| kind.is_defined() && is_open(kind)).collect()
    }

    /// Goes on although a kind was never read: its rows stay. `sets`: the sets of the database.
    pub fn go_on_without(
        &mut self,
        kind: Kind,
        sets: impl IntoIterator<Item = (SetId, Vec<IpAddr>)>,
        dirty: &mut Dirty<'_>,
    ) {
        if !self.unread().contains(&kind) {
            return;
        }
        self.unread.without.insert(kind);
        let keys: Vec<Key> = self.keys_found(kind).collect();
        self.unread.keys.extend(keys);
        for (set, addresses) in sets {
            let is_of_pods = matches!(set, SetId::Pods(_));
            for address in addresses.iter().filter(|_| is_of_pods) {
                self.unread.by_address.entry(*address).or_default().insert(set.clone());
            }
            self.unread.sets.entry(set).or_insert_with(|| addresses.into_iter().collect());
        }
        self.complete(dirty);
        // Of pods that went while no controller ran.
        let has_pod = |address: IpAddr| {
            let owner = self.addresses.owner(address);
            owner.is_some_and(|pod| self.addresses_of(pod).any(|own| own == address))
        };
        let sets = &self.unread.by_address;
        let left = sets.iter().filter(|(address, _)| self.is_complete() && !has_pod(**address));
        let left = left.flat_map(|(address, sets)| sets.iter().map(|set| (set.clone(), *address)));
        let left: Vec<_> = left.collect();
        left.iter().for_each(|(set, address)| self.unread.leave(set, *address));
    }

    /// The sets that rows may name whose objects cannot be read, and that have an address of the
    /// pod.
    pub(crate) fn unread_sets_of(&self, pod: &PodKey) -> BTreeSet<SetId> {
        self.addresses_of(pod).flat_map(|address| self.unread.sets_with(address)).cloned().collect()
    }

    /// What cannot be read, what that means, and what to do about it; none if all can be read.
    pub fn unread_report(&self) -> Option<String> {
        let kinds = Self::KINDS
            .iter()
            .filter(|kind| self.unread.why.contains_key(kind) || self.unread.is_without(**kind));
        let parts: Vec<String> = kinds.map(|kind| self.unread_part(*kind)).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    fn unread_part(&self, kind: Kind) -> String {
        let (why, remedy) = match self.unread.why.get(&kind) {
            Some(why) => (why.to_string(), remedy(why)),
            None => ("the API server does not list them".to_owned(), String::new()),
        };
        let then = if self.listed.contains(kind) {
            "its objects stay in force as they were read last"
        } else if self.unread.is_without(kind) {
            "its rows in the northbound database stay as they are, and do not follow pods that are new"
        } else {
            "its rows in the northbound database stay as they are, and other rows wait for some minutes"
        };
        format!("{kind}: {why}; {then}{remedy}")
    }
}

/// What an administrator can do.
fn remedy(why: &Unlisted) -> String {
    match why {
        Unlisted::Undefined(resource) => format!(
            "; define {resource} again, with its objects, or without any if the rows are to go (docs/decisions/kinds-that-cannot-be-read.md)"
        ),
        Unlisted::UnknownVersion { .. } => {
            "; serve a version that this program knows, or upgrade it".to_owned()
        }
        Unlisted::Forbidden { resource, .. } => {
            format!("; grant the verbs list and watch of {resource} to the control plane")
        }
    }
}

impl Store {
    /// The owners of rows of the kind that were found in the database, until the kind is read.
    fn keys_found(&self, kind: Kind) -> impl Iterator<Item = Key> {
        self.doubts.found_of(kind).into_iter()
    }
}
