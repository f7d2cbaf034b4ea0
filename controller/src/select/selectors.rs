//! Which objects match which selectors, kept up to date with each change of labels.
//!
//! Equal selectors are one, with a count of references. Each is listed under one of its
//! requirements: under labels or a key of which its objects must have one. So a change of an object
//! costs the selectors that are listed under its own labels, and not all selectors. The few that
//! have no such requirement are listed under their namespace.

use std::{
    borrow::Borrow,
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    hash::Hash,
    sync::Arc,
};

use crate::{
    few::Few,
    select::{
        labels::{Label, Labels, Number},
        selector::{Requirement, Selector},
    },
};

/// A selector in use. Valid until its last reference is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SelectorId(u32);

/// Whether an object has come to match a selector, or matches it no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moved {
    In,
    Out,
}

/// The selectors of objects of one kind, and the labels of these objects. `O` identifies an object.
#[derive(Debug)]
pub struct Selectors<O> {
    labels: Labels<O>,
    by_value: HashMap<Arc<Selector>, SelectorId>,
    entries: Vec<Entry>,
    /// Numbers of selectors that are no longer in use.
    free: Vec<SelectorId>,
    listed: HashMap<Place, BTreeSet<SelectorId>>,
    /// By the number of an object: the selectors that match it, sorted. May end before the last
    /// number.
    matched_by: Vec<Box<[SelectorId]>>,
    /// How often an object was compared with a selector.
    #[cfg(test)]
    compared: std::cell::Cell<usize>,
}

#[derive(Debug)]
struct Entry {
    /// None of one that is not in use.
    selector: Option<Arc<Selector>>,
    references: usize,
    namespace: Option<Label>,
    tests: Vec<Test>,
    places: Vec<Place>,
    /// Sorted.
    objects: Few<Number>,
}

/// Where a selector is listed: under its namespace, if it has one, and under a label or key, if its
/// objects must have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    namespace: Option<Label>,
    label: Option<Label>,
}

/// A requirement, with numbers for labels and keys.
#[derive(Debug)]
enum Test {
    AnyOf(Vec<Label>),
    NoneOf(Vec<Label>),
    Has(Label),
    HasNot(Label),
}

impl<O> Default for Selectors<O> {
    fn default() -> Self {
        Self {
            labels: Labels::default(),
            by_value: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            listed: HashMap::new(),
            matched_by: Vec::new(),
            #[cfg(test)]
            compared: std::cell::Cell::default(),
        }
    }
}

impl<O: Debug + Clone + Eq + Hash + Ord> Selectors<O> {
    /// The labels of the objects.
    pub fn labels(&self) -> &Labels<O> {
        &self.labels
    }

    /// The objects that a selector matches, in no particular order.
    pub fn matching(&self, id: SelectorId) -> impl Iterator<Item = &O> + Clone {
        self.labels.named(&self.entry(id).objects)
    }

    /// Those of a namespace.
    pub fn matching_in(&self, id: SelectorId, namespace: &str) -> impl Iterator<Item = &O> {
        let (mut fewer, mut more) = (self.labels.within(namespace), &*self.entry(id).objects);
        if fewer.len() > more.len() {
            std::mem::swap(&mut fewer, &mut more);
        }
        let both = fewer.iter().filter(|number| more.binary_search(number).is_ok());
        both.flat_map(|number| self.labels.named(std::slice::from_ref(number)))
    }

    /// Whether a selector matches an object.
    pub fn matches<Q>(&self, id: SelectorId, object: &Q) -> bool
    where
        O: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.matched_by(object).binary_search(&id).is_ok()
    }

    /// The selectors that match an object, sorted.
    pub fn matched_by<Q>(&self, object: &Q) -> &[SelectorId]
    where
        O: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let number = self.labels.number(object);
        number.and_then(|number| self.matched_by.get(number.index())).map_or(&[], |ids| ids)
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
            && self.by_value.is_empty()
            && self.listed.is_empty()
            && self.matched_by.iter().all(|ids| ids.is_empty())
    }

    /// Adds a reference to a selector. The first one looks for the objects that match.
    pub fn refer_to(&mut self, selector: &Selector) -> SelectorId {
        if let Some(id) = self.by_value.get(selector).copied() {
            self.entry_mut(id).references += 1;
            return id;
        }
        let selector = Arc::new(selector.clone());
        let namespace =
            selector.namespace().map(|namespace| self.labels.refer_to("", Some(namespace)));
        let tests: Vec<Test> = selector
            .requirements()
            .map(|requirement| Test::new(requirement, &mut self.labels))
            .collect();
        // After the labels were referred to: where the selector is listed depends on how many
        // objects have them.
        let places = self.places(namespace, &tests);
        let mut entry = Entry {
            selector: Some(Arc::clone(&selector)),
            references: 1,
            namespace,
            tests,
            places,
            objects: Few::default(),
        };
        entry.objects = self.search(&entry).into();
        let id = self.free.pop().unwrap_or_else(|| {
            SelectorId(u32::try_from(self.entries.len()).expect("memory ends before 2³² selectors"))
        });
        for object in entry.objects.iter() {
            let ids = self.ids_mut(*object);
            let mut more = std::mem::take(ids).into_vec();
            // A number that was free may be smaller than others, and the list is sorted.
            if let Err(place) = more.binary_search(&id) {
                more.insert(place, id);
            }
            *ids = more.into();
        }
        for place in &entry.places {
            self.listed.entry(*place).or_default().insert(id);
        }
        self.by_value.insert(selector, id);
        match self.entries.get_mut(id.0 as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        id
    }

    /// Removes a reference to a selector, and the selector with its last one.
    pub fn release(&mut self, id: SelectorId) {
        let entry = self.entry_mut(id);
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        let (selector, namespace) = (entry.selector.take(), entry.namespace.take());
        let (tests, places) = (std::mem::take(&mut entry.tests), std::mem::take(&mut entry.places));
        for object in std::mem::take(&mut entry.objects).iter() {
            let ids = self.ids_mut(*object);
            *ids = ids.iter().copied().filter(|other| *other != id).collect();
        }
        for place in places {
            if let Some(ids) = self.listed.get_mut(&place) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.listed.remove(&place);
                }
            }
        }
        if let Some(selector) = selector {
            self.by_value.remove(&selector);
        }
        self.labels.release(namespace.as_slice());
        tests.iter().for_each(|test| self.labels.release(test.labels()));
        // Last: no list has the number any more, so it can be given to another selector.
        self.free.push(id);
    }

    /// Adds an object, or replaces its labels, and tells which selectors it has come to match or
    /// left. Equal labels cost a comparison of the labels and nothing else.
    pub fn put<'a>(
        &mut self,
        object: &O,
        namespace: Option<&'a str>,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        moved: &mut impl FnMut(SelectorId, Moved),
    ) {
        let Some((number, before)) = self.labels.put(object, namespace, labels) else { return };
        let now = self.labels.of(number);
        let mut matches: Vec<SelectorId> =
            self.candidates(now).filter(|id| self.is_match(self.entry(*id), now)).collect();
        matches.sort_unstable();
        self.rematch(number, matches, moved);
        // Last: a released number may be given to another label, and until here the selectors name
        // it.
        self.labels.release(&before);
    }

    /// Removes an object, and tells which selectors it has left.
    pub fn remove(&mut self, object: &O, moved: &mut impl FnMut(SelectorId, Moved)) {
        let Some((number, before)) = self.labels.remove(object) else { return };
        self.rematch(number, Vec::new(), moved);
        // Last, as in `put`.
        self.labels.release(&before);
        self.labels.forget(number);
    }

    /// Replaces the selectors that match an object. `now` is sorted.
    fn rematch(
        &mut self,
        object: Number,
        now: Vec<SelectorId>,
        moved: &mut impl FnMut(SelectorId, Moved),
    ) {
        let before =
            self.matched_by.get_mut(object.index()).map(std::mem::take).unwrap_or_default();
        for id in before.iter().filter(|id| now.binary_search(id).is_err()) {
            self.entry_mut(*id).objects.remove(&object);
            moved(*id, Moved::Out);
        }
        for id in now.iter().filter(|id| before.binary_search(id).is_err()) {
            self.entry_mut(*id).objects.insert(object);
            moved(*id, Moved::In);
        }
        // Without selectors, as in most clusters, the list stays empty.
        if !now.is_empty() {
            *self.ids_mut(object) = now.into();
        }
    }

    /// Where to list a selector with these tests: under the labels that the fewest objects have.
    /// While no objects are known, under those with the fewest selectors. A key alone says least,
    /// so it comes last.
    fn places(&self, namespace: Option<Label>, tests: &[Test]) -> Vec<Place> {
        let at = |label: Option<Label>| Place { namespace, label };
        let cost = |labels: &&[Label]| {
            let objects: usize = labels.iter().map(|label| self.labels.with(*label).len()).sum();
            let listed = labels.iter().filter_map(|label| self.listed.get(&at(Some(*label))));
            (objects, listed.map(BTreeSet::len).sum::<usize>(), labels.len())
        };
        let any_of = tests.iter().filter_map(|test| {
            if let Test::AnyOf(labels) = test { Some(&labels[..]) } else { None }
        });
        if let Some(labels) = any_of.min_by_key(cost) {
            return labels.iter().map(|label| at(Some(*label))).collect();
        }
        let key =
            tests.iter().find_map(|test| if let Test::Has(key) = test { Some(*key) } else { None });
        vec![at(key)]
    }

    /// The selectors that an object with these labels may match: those listed under its namespace
    /// or none, and one of its labels, one of its keys, or no label. Each occurs once, because an
    /// object has one value of each key.
    fn candidates(&self, labels: &[Label]) -> impl Iterator<Item = SelectorId> {
        let index = &self.labels;
        let namespace = index.namespace_of(labels).map(Some);
        let places = [None].into_iter().chain(namespace).flat_map(move |namespace| {
            let keys = labels.iter().map(move |label| index.key(*label));
            let labels = labels.iter().copied().map(Some).chain(keys).chain([None]);
            labels.map(move |label| Place { namespace, label })
        });
        places.filter_map(move |place| self.listed.get(&place)).flatten().copied()
    }

    /// The known objects that match, sorted.
    fn search(&self, entry: &Entry) -> Vec<Number> {
        let labels = entry.places.iter().filter_map(|place| place.label);
        // Objects are indexed by label, and not by key.
        let labels = labels.filter(|label| self.labels.key(*label).is_some());
        let lists: Vec<&[Number]> = labels.map(|label| self.labels.with(label)).collect();
        let listed = lists.iter().map(|list| list.len()).sum();
        let within = entry.namespace.map(|namespace| self.labels.with(namespace));
        let is_match = |number: &Number| self.is_match(entry, self.labels.of(*number));
        let mut found: Vec<Number> = match within {
            // Thousands of pods may have a label of which a namespace has a few.
            Some(within) if lists.is_empty() || within.len() < listed => {
                within.iter().copied().filter(is_match).collect()
            }
            None if lists.is_empty() => self.labels.all().filter(is_match).collect(),
            _ => lists.into_iter().flatten().copied().filter(is_match).collect(),
        };
        found.sort_unstable();
        found
    }

    /// The selectors that match the object with this number.
    fn ids_mut(&mut self, number: Number) -> &mut Box<[SelectorId]> {
        if self.matched_by.len() <= number.index() {
            self.matched_by.resize_with(number.index() + 1, Box::default);
        }
        &mut self.matched_by[number.index()]
    }

    fn is_match(&self, entry: &Entry, labels: &[Label]) -> bool {
        #[cfg(test)]
        self.compared.set(self.compared.get() + 1);
        // The labels of an object are sorted by number; its keys are found by way of them.
        let has = |label: &Label| labels.binary_search(label).is_ok();
        let has_key = |key: Label| labels.iter().any(|label| self.labels.key(*label) == Some(key));
        entry.namespace.as_ref().is_none_or(has)
            && entry.tests.iter().all(|test| match test {
                Test::AnyOf(labels) => labels.iter().any(has),
                Test::NoneOf(labels) => !labels.iter().any(has),
                Test::Has(key) => has_key(*key),
                Test::HasNot(key) => !has_key(*key),
            })
    }

    fn entry(&self, SelectorId(number): SelectorId) -> &Entry {
        &self.entries[number as usize]
    }

    fn entry_mut(&mut self, SelectorId(number): SelectorId) -> &mut Entry {
        &mut self.entries[number as usize]
    }
}

impl Test {
    /// Adds a reference to each label and key that it names.
    fn new<O: Debug + Clone + Eq + Hash + Ord>(
        requirement: &Requirement,
        labels: &mut Labels<O>,
    ) -> Self {
        let mut all = |key: &str, values: &[Box<str>]| -> Vec<Label> {
            values.iter().map(|value| labels.refer_to(key, Some(value))).collect()
        };
        match requirement {
            Requirement::In(key, values) => Self::AnyOf(all(key, values)),
            Requirement::NotIn(key, values) => Self::NoneOf(all(key, values)),
            Requirement::Exists(key) => Self::Has(labels.refer_to(key, None)),
            Requirement::DoesNotExist(key) => Self::HasNot(labels.refer_to(key, None)),
        }
    }

    fn labels(&self) -> &[Label] {
        match self {
            Self::AnyOf(labels) | Self::NoneOf(labels) => labels,
            Self::Has(key) | Self::HasNot(key) => std::slice::from_ref(key),
        }
    }
}

#[cfg(test)]
mod tests;
