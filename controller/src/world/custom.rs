//! What events of the kinds of which a namespace has one object change: the same for all of them,
//! but for what a kind's [`CustomChanges`] say.

use std::{collections::BTreeSet, sync::Arc};

use contract::definition::CustomKind;
use kubeapi::object::Object;

use crate::{
    config::Zone,
    custom::{
        CustomObject as _, CustomProblem, CustomStatus, KnownCustom,
        registry::{StoredKind, of_kind},
    },
    key::{Dirty, Key, Scope},
    object::beyond::Size,
    problem::Problem,
    rows::RowSet,
    status_writeback::{RowsState, StatusWriteback},
    world::Store,
};

/// What is special of a kind.
pub(crate) trait CustomChanges: StoredKind {
    /// What an object uses of others, such as sets of addresses.
    type Uses;

    fn uses(store: &Store, namespace: &Arc<str>) -> Self::Uses;

    /// The object was replaced, came or went. `before`: what the former one used.
    fn follow(store: &mut Store, namespace: &Arc<str>, before: Self::Uses, dirty: &mut Dirty<'_>);

    /// What is wrong with the object.
    fn problem(store: &Store, namespace: &str) -> Option<CustomProblem>;

    /// The rows that the object should have now.
    fn rows(store: &Store, namespace: &Arc<str>) -> RowSet;
}

impl Store {
    /// The object of a namespace.
    pub(crate) fn custom<K: StoredKind>(&self, namespace: &str) -> Option<&K> {
        K::of(&self.custom).get(namespace)
    }

    /// The namespaces with an object of the kind.
    pub(crate) fn custom_namespaces(&self, kind: CustomKind) -> Vec<Arc<str>> {
        of_kind!(kind, K => K::of(&self.custom).namespaces().cloned().collect())
    }

    /// The owners of the rows of all objects.
    pub(crate) fn custom_keys(&self) -> impl Iterator<Item = Key> {
        let of =
            |kind| self.custom_namespaces(kind).into_iter().map(move |of| Key::custom(kind, of));
        CustomKind::ALL.into_iter().flat_map(of)
    }

    /// Those of them with rows on the switches of all nodes.
    pub(crate) fn keys_on_switches(&self) -> impl Iterator<Item = Key> {
        let is_on_switches = |key: &Key| match key {
            Key::Custom(of) => of_kind!(of.kind, K => K::ON_SWITCHES),
            _ => false,
        };
        self.custom_keys().filter(is_on_switches)
    }

    pub(crate) fn custom_uid(&self, kind: CustomKind, namespace: &str) -> Option<Arc<str>> {
        of_kind!(kind, K => self.custom::<K>(namespace).map(|object| Arc::clone(object.uid())))
    }

    /// What is wrong with the object.
    pub(crate) fn custom_problem(
        &self,
        kind: CustomKind,
        namespace: &str,
    ) -> Option<CustomProblem> {
        of_kind!(kind, K => K::problem(self, namespace))
    }

    pub(crate) fn replace_custom<K: CustomChanges>(
        &mut self,
        objects: Vec<(Arc<str>, K)>,
        dirty: &mut Dirty<'_>,
    ) {
        let there: BTreeSet<&Arc<str>> = objects.iter().map(|(namespace, _)| namespace).collect();
        let known = K::of(&self.custom).namespaces();
        let gone: Vec<Arc<str>> =
            known.filter(|namespace| !there.contains(namespace)).cloned().collect();
        gone.iter().for_each(|namespace| self.remove_custom::<K>(namespace, dirty));
        for (namespace, object) in objects {
            if let Some(known) = K::of_mut(&mut self.custom).all.get_mut(&namespace) {
                known.said.listed();
            }
            self.put_custom(&namespace, object, dirty);
        }
    }

    pub(crate) fn put_custom<K: CustomChanges>(
        &mut self,
        namespace: &Arc<str>,
        object: K,
        dirty: &mut Dirty<'_>,
    ) {
        match K::of_mut(&mut self.custom).all.get_mut(namespace) {
            Some(known) if known.object.is_like(&object) => {
                known.object.observe(object.observed().clone());
            }
            Some(_) | None => self.change_custom(namespace, Some(object), dirty),
        }
        self.write_status_of::<K>(namespace);
    }

    pub(crate) fn remove_custom<K: CustomChanges>(
        &mut self,
        namespace: &Arc<str>,
        dirty: &mut Dirty<'_>,
    ) {
        if K::of(&self.custom).contains(namespace) {
            self.change_custom::<K>(namespace, None, dirty);
        }
    }

    /// Replaces an object, or removes it.
    fn change_custom<K: CustomChanges>(
        &mut self,
        namespace: &Arc<str>,
        object: Option<K>,
        dirty: &mut Dirty<'_>,
    ) {
        let size =
            |store: &Self| Size::of(store.custom::<K>(namespace).is_some_and(K::is_too_large));
        let (size_before, problem_before) = (size(self), K::problem(self, namespace));
        let uses_before = K::uses(self, namespace);
        let all = &mut K::of_mut(&mut self.custom).all;
        all.remove(namespace);
        if let Some(object) = object {
            let known = KnownCustom { object, said: StatusWriteback::default() };
            all.insert(Arc::clone(namespace), Box::new(known));
        }
        K::follow(self, namespace, uses_before, dirty);
        let size_now = size(self);
        self.beyond.follow(K::KIND.as_str(), size_before, size_now);
        dirty(Key::custom(K::KIND, Arc::clone(namespace)), Scope::Whole);
        self.tell_custom(K::KIND, namespace, problem_before.as_ref());
    }

    /// Queues an event if something has begun to be wrong with the object.
    pub(crate) fn tell_custom(
        &mut self,
        kind: CustomKind,
        namespace: &Arc<str>,
        before: Option<&CustomProblem>,
    ) {
        let now = self.custom_problem(kind, namespace).filter(|now| before != Some(now));
        if let Some((why, uid)) = now.zip(self.custom_uid(kind, namespace)) {
            let object = Object::Custom(kind, Arc::clone(namespace));
            self.outbox.problems.push(Problem::new(object, &uid, &why));
        }
    }

    /// Whether the rows are in the database: its status may say so.
    pub(crate) fn custom_stands(
        &mut self,
        kind: CustomKind,
        namespace: &Arc<str>,
        standing: RowsState,
    ) {
        of_kind!(kind, K => {
            if let Some(known) = K::of_mut(&mut self.custom).all.get_mut(namespace) {
                known.said.standing = Some(standing);
                self.write_status_of::<K>(namespace);
            }
        })
    }

    /// The same as [`write_status_of`](Self::write_status_of).
    pub(crate) fn write_status(&mut self, kind: CustomKind, namespace: &Arc<str>) {
        of_kind!(kind, K => self.write_status_of::<K>(namespace))
    }

    /// Hands out the status that the object should have, unless it has it or will have it. Before
    /// the first rows are in the database, the status of before stays.
    fn write_status_of<K: CustomChanges>(&mut self, namespace: &Arc<str>) {
        let Some(known) = K::of(&self.custom).all.get(namespace) else { return };
        let Some(state) = &known.said.standing else { return };
        let problem = K::problem(self, namespace);
        let wanted = CustomStatus::new(namespace, &known.object, &self.config, state, problem);
        let is_there = wanted.is_in(known.object.observed());
        let wanted = if is_there { self.withdrawal::<K>(namespace) } else { Some(wanted) };
        let Some(known) = K::of_mut(&mut self.custom).all.get_mut(namespace) else { return };
        match wanted {
            None => known.said.arrived(),
            Some(wanted) => {
                if known.said.hand_out(wanted.clone()) {
                    self.outbox.write_status(wanted);
                }
            }
        }
    }

    /// What a zone has said of the object that is gone, to be taken back. One zone of all does
    /// that: the one with the first name.
    fn withdrawal<K: CustomChanges>(&self, namespace: &Arc<str>) -> Option<CustomStatus> {
        let object = self.custom::<K>(namespace).filter(|_| self.is_first_zone())?;
        let mut zones = object.observed().zones(K::STATUS);
        let gone = zones.find(|zone| !self.is_zone(zone))?;
        Some(CustomStatus::withdrawn(namespace, object, Zone(gone.to_owned())))
    }

    /// A zone may be gone: nothing is to be said of it.
    pub(crate) fn withdraw_statuses(&mut self) {
        if self.is_first_zone() {
            for kind in CustomKind::ALL {
                let namespaces = self.custom_namespaces(kind);
                namespaces.iter().for_each(|namespace| self.write_status(kind, namespace));
            }
        }
    }
}
