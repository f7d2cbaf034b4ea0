//! Labels of objects, each stored once, and the objects of each label.
//!
//! Labels are numbers here: a pod has five to twenty of them, and thousands of pods share most. A
//! namespace counts as a label of its objects ([`Labels::namespace`]), because a selector may be
//! limited to one. Objects are numbers, too: a pod is in the lists of some dozens of labels and
//! selectors, where its name would be four times as large, and slow to compare. Knows nothing of
//! selectors.
//!
//! Nothing is kept while no kind of object has selectors: reading labels begins with the first kind
//! that does (`wire/metadata.rs`), and no memory is used before.

use std::{borrow::Borrow, collections::HashMap, fmt::Debug, hash::Hash, sync::Arc};

use crate::few::Few;

/// A label `key=value`, or the key of a label without its value. Valid as long as something refers
/// to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u32);

/// A known object. Valid until it is [forgotten](Labels::forget).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Number(u32);

/// The labels of objects of one kind. `O` identifies an object.
#[derive(Debug)]
pub struct Labels<O> {
    /// By text ([`text`], [`text_of_key`]), which no key with a value shares with a key alone,
    /// whatever they are.
    by_text: HashMap<Arc<str>, Label>,
    entries: Vec<Entry>,
    /// Numbers of labels that nothing refers to any more.
    free: Vec<Label>,
    numbers: HashMap<O, Number>,
    /// By number; none for a number that is free.
    objects: Vec<Option<Object<O>>>,
    free_numbers: Vec<Number>,
}

#[derive(Debug)]
struct Object<O> {
    object: O,
    /// Sorted, with its namespace.
    labels: Box<[Label]>,
}

#[derive(Debug)]
struct Entry {
    text: Arc<str>,
    /// The label's key; none for a key.
    key: Option<Label>,
    /// Objects and requirements that refer to it; for a key, also its labels.
    references: usize,
    /// Sorted; none for a key.
    objects: Few<Number>,
}

impl<O> Default for Labels<O> {
    fn default() -> Self {
        Self {
            by_text: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            numbers: HashMap::new(),
            objects: Vec::new(),
            free_numbers: Vec::new(),
        }
    }
}

impl<O: Debug + Clone + Eq + Hash + Ord> Labels<O> {
    /// The objects with this label. Its cost does not depend on the number of objects or labels.
    pub fn objects(&self, key: &str, value: &str) -> impl Iterator<Item = &O> {
        self.named(self.find(&text(key, value)).map_or(&[], |label| self.with(label)))
    }

    /// The objects of a namespace.
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = &O> {
        self.objects("", namespace)
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.by_text.is_empty() && self.numbers.is_empty()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Number> {
        self.numbers.values().copied()
    }

    /// The number of an object.
    pub(crate) fn number<Q>(&self, object: &Q) -> Option<Number>
    where
        O: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.numbers.get(object).copied()
    }

    /// The objects with these numbers.
    pub(crate) fn named<'a>(
        &'a self,
        numbers: &'a [Number],
    ) -> impl Iterator<Item = &'a O> + Clone {
        numbers.iter().filter_map(|number| self.entry_of(*number)).map(|object| &object.object)
    }

    /// The labels of an object, sorted.
    pub(crate) fn of(&self, number: Number) -> &[Label] {
        self.entry_of(number).map_or(&[], |object| &object.labels)
    }

    /// The objects with this label, sorted.
    pub(crate) fn with(&self, label: Label) -> &[Number] {
        &self.entry(label).objects
    }

    /// The objects of a namespace, sorted.
    pub(crate) fn within(&self, namespace: &str) -> &[Number] {
        self.find(&text("", namespace)).map_or(&[], |label| self.with(label))
    }

    /// The key of a label.
    pub(crate) fn key(&self, label: Label) -> Option<Label> {
        self.entry(label).key
    }

    /// The namespace among the labels of an object.
    pub(crate) fn namespace_of(&self, labels: &[Label]) -> Option<Label> {
        // Only the text of a namespace begins with its empty key (`text`).
        labels.iter().copied().find(|label| self.entry(*label).text.starts_with('='))
    }

    /// Adds an object, or replaces its labels. Returns its number and the labels of before, or none
    /// if nothing has changed. They keep their numbers until they are [released](Self::release):
    /// what indexes them is updated first.
    pub(crate) fn put<'a>(
        &mut self,
        object: &O,
        namespace: Option<&'a str>,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Option<(Number, Box<[Label]>)> {
        let texts = namespace.into_iter().map(|namespace| ("", namespace)).chain(labels);
        let mut now: Vec<Label> =
            texts.map(|(key, value)| self.refer_to(key, Some(value))).collect();
        now.sort_unstable();
        let known = self.number(object);
        if known.is_some_and(|number| *self.of(number) == now[..]) {
            // The references that were added above.
            self.release(&now);
            return None;
        }
        let number = known.unwrap_or_else(|| self.add(object));
        // The labels of before keep their references: the caller's indexes still name them.
        let before = self.relabel(number, now.into());
        Some((number, before))
    }

    /// Removes the labels of an object. Returns its number and the labels, which stay as in
    /// [`put`](Self::put). The caller forgets the number when nothing names it any more.
    pub(crate) fn remove(&mut self, object: &O) -> Option<(Number, Box<[Label]>)> {
        let number = self.number(object)?;
        Some((number, self.relabel(number, Box::default())))
    }

    /// The object is gone: its number may be given to another one.
    pub(crate) fn forget(&mut self, number: Number) {
        if let Some(Object { object, labels: _ }) = self.objects[number.index()].take() {
            self.numbers.remove(&object);
            self.free_numbers.push(number);
        }
    }

    /// Gives a number to an object without labels.
    fn add(&mut self, object: &O) -> Number {
        let entry = Some(Object { object: object.clone(), labels: Box::default() });
        let number = match self.free_numbers.pop() {
            Some(number) => {
                self.objects[number.index()] = entry;
                number
            }
            None => {
                self.objects.push(entry);
                Number(
                    u32::try_from(self.objects.len() - 1).expect("memory ends before 2³² objects"),
                )
            }
        };
        self.numbers.insert(object.clone(), number);
        number
    }

    /// Replaces the labels of an object. `now` is sorted. Returns those of before.
    fn relabel(&mut self, number: Number, now: Box<[Label]>) -> Box<[Label]> {
        let Some(entry) = &mut self.objects[number.index()] else { return Box::default() };
        let before = std::mem::replace(&mut entry.labels, now.clone());
        for label in now.iter().filter(|label| before.binary_search(label).is_err()) {
            self.entry_mut(*label).objects.insert(number);
        }
        for label in before.iter().filter(|label| now.binary_search(label).is_err()) {
            self.entry_mut(*label).objects.remove(&number);
        }
        before
    }

    /// The number of a label, or of a key without a value. Adds a reference to it.
    pub(crate) fn refer_to(&mut self, key: &str, value: Option<&str>) -> Label {
        let text = value.map_or_else(|| text_of_key(key), |value| text(key, value));
        if let Some(label) = self.find(&text) {
            self.entry_mut(label).references += 1;
            return label;
        }
        // Before the number is taken: the key may need one of its own.
        let key = value.map(|_| self.refer_to(key, None));
        let text: Arc<str> = text.into();
        let entry = Entry { text: Arc::clone(&text), key, references: 1, objects: Few::default() };
        let label = match self.free.pop() {
            Some(label) => {
                *self.entry_mut(label) = entry;
                label
            }
            None => {
                self.entries.push(entry);
                Label(u32::try_from(self.entries.len() - 1).expect("memory ends before 2³² labels"))
            }
        };
        self.by_text.insert(text, label);
        label
    }

    /// Removes one reference to each of these labels.
    pub(crate) fn release(&mut self, labels: &[Label]) {
        for label in labels {
            let entry = self.entry_mut(*label);
            entry.references -= 1;
            if entry.references == 0 {
                let (text, key) =
                    (std::mem::replace(&mut entry.text, Arc::from("")), entry.key.take());
                self.by_text.remove(&text);
                self.free.push(*label);
                // Each label holds a reference to its key, so the key goes with its last label.
                self.release(key.as_slice());
            }
        }
    }

    fn find(&self, text: &str) -> Option<Label> {
        self.by_text.get(text).copied()
    }

    fn entry_of(&self, number: Number) -> Option<&Object<O>> {
        self.objects.get(number.index())?.as_ref()
    }

    fn entry(&self, Label(number): Label) -> &Entry {
        &self.entries[number as usize]
    }

    fn entry_mut(&mut self, Label(number): Label) -> &mut Entry {
        &mut self.entries[number as usize]
    }
}

impl Number {
    /// Its place in a list of all objects.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A key contains no `=` (apimachinery, `IsQualifiedName`), and no key is empty, so namespaces have
/// the empty one.
fn text(key: &str, value: &str) -> String {
    format!("{key}={value}")
}

/// A key without a value. No label begins with NUL.
fn text_of_key(key: &str) -> String {
    format!("\0{key}")
}
