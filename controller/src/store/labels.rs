//! Labels of objects, each stored once, and the objects of each label.
//!
//! Labels are numbers here: a pod has five to twenty of them, and thousands of pods share most. A namespace
//! counts as a label of its objects ([`Labels::namespace`]), because a selector may be limited to one. Knows
//! nothing of selectors.
//!
//! Nothing is kept while no kind of object has selectors: reading labels begins with the first kind that
//! does (`wire/metadata.rs`), and no memory is used before.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    hash::Hash,
    sync::Arc,
};

/// A label `key=value`, or the key of a label without its value. Valid as long as something refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u32);

/// The labels of objects of one kind. `O` identifies an object.
#[derive(Debug)]
pub struct Labels<O> {
    /// By text: `key=value`, or `key`, which no key with a value equals.
    by_text: HashMap<Arc<str>, Label>,
    entries: Vec<Entry<O>>,
    /// Numbers of labels that nothing refers to any more.
    free: Vec<Label>,
    /// The labels of each object, sorted, with its namespace.
    of: HashMap<O, Box<[Label]>>,
}

#[derive(Debug)]
struct Entry<O> {
    text: Arc<str>,
    /// The label's key; none for a key.
    key: Option<Label>,
    /// Objects and requirements that refer to it; for a key, also its labels.
    references: usize,
    /// For a key: none.
    objects: BTreeSet<O>,
}

impl<O> Default for Labels<O> {
    fn default() -> Self {
        Self { by_text: HashMap::new(), entries: Vec::new(), free: Vec::new(), of: HashMap::new() }
    }
}

impl<O: Debug + Clone + Eq + Hash + Ord> Labels<O> {
    /// The objects with this label. Its cost does not depend on the number of objects or labels.
    pub fn objects(&self, key: &str, value: &str) -> impl Iterator<Item = &O> {
        self.find(&text(key, value)).into_iter().flat_map(move |label| &self.entry(label).objects)
    }

    /// The objects of a namespace.
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = &O> {
        self.objects("", namespace)
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.by_text.is_empty() && self.of.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &O> {
        self.of.keys()
    }

    /// The labels of an object, sorted.
    pub(super) fn of(&self, object: &O) -> &[Label] {
        self.of.get(object).map_or(&[], |labels| labels)
    }

    pub(super) fn with(&self, label: Label) -> &BTreeSet<O> {
        &self.entry(label).objects
    }

    /// The key of a label.
    pub(super) fn key(&self, label: Label) -> Option<Label> {
        self.entry(label).key
    }

    /// The namespace among the labels of an object.
    pub(super) fn namespace_of(&self, labels: &[Label]) -> Option<Label> {
        // Only the text of a namespace begins with its empty key (`text`).
        labels.iter().copied().find(|label| self.entry(*label).text.starts_with('='))
    }

    /// Adds an object, or replaces its labels. Returns the labels of before, or none if nothing has changed.
    /// They keep their numbers until they are [released](Self::release): what indexes them is updated first.
    pub(super) fn put<'a>(
        &mut self,
        object: &O,
        namespace: Option<&'a str>,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Option<Box<[Label]>> {
        let texts = namespace.into_iter().map(|namespace| ("", namespace)).chain(labels);
        let mut now: Vec<Label> = texts.map(|(key, value)| self.refer_to(key, Some(value))).collect();
        now.sort_unstable();
        let before = self.of.get(object).cloned();
        if before.as_deref() == Some(&now[..]) {
            // The references that were added above.
            self.release(&now);
            return None;
        }
        let before = before.unwrap_or_default();
        // The labels of before keep their references: the caller's indexes still name them.
        self.reindex(object, &before, &now);
        self.of.insert(object.clone(), now.into());
        Some(before)
    }

    /// Removes an object. Returns its labels, which keep their numbers as in [`put`](Self::put).
    pub(super) fn remove(&mut self, object: &O) -> Option<Box<[Label]>> {
        let before = self.of.remove(object)?;
        self.reindex(object, &before, &[]);
        Some(before)
    }

    /// Follows the difference between two sorted lists of labels.
    fn reindex(&mut self, object: &O, before: &[Label], now: &[Label]) {
        for label in now.iter().filter(|label| before.binary_search(label).is_err()) {
            self.entry_mut(*label).objects.insert(object.clone());
        }
        for label in before.iter().filter(|label| now.binary_search(label).is_err()) {
            self.entry_mut(*label).objects.remove(object);
        }
    }

    /// The number of a label, or of a key without a value. Adds a reference to it.
    pub(super) fn refer_to(&mut self, key: &str, value: Option<&str>) -> Label {
        let text = value.map_or_else(|| key.to_owned(), |value| text(key, value));
        if let Some(label) = self.find(&text) {
            self.entry_mut(label).references += 1;
            return label;
        }
        // Before the number is taken: the key may need one of its own.
        let key = value.map(|_| self.refer_to(key, None));
        let text: Arc<str> = text.into();
        let entry = Entry { text: Arc::clone(&text), key, references: 1, objects: BTreeSet::new() };
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
    pub(super) fn release(&mut self, labels: &[Label]) {
        for label in labels {
            let entry = self.entry_mut(*label);
            entry.references -= 1;
            if entry.references == 0 {
                let (text, key) = (std::mem::replace(&mut entry.text, Arc::from("")), entry.key.take());
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

    fn entry(&self, Label(number): Label) -> &Entry<O> {
        &self.entries[number as usize]
    }

    fn entry_mut(&mut self, Label(number): Label) -> &mut Entry<O> {
        &mut self.entries[number as usize]
    }
}

/// A key contains no `=` (apimachinery, `IsQualifiedName`), and no key is empty, so namespaces have the empty
/// one.
fn text(key: &str, value: &str) -> String {
    format!("{key}={value}")
}
