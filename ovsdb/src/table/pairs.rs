//! A map of strings in a single allocation.

use std::{collections::BTreeMap, fmt};

use super::Field;
use crate::{
    schema::ColumnType,
    value::{Atom, AtomicType, Datum, ValueError},
};

/// A map from strings to strings, for tables with many rows. It takes as much memory as its
/// strings, where a `BTreeMap` takes at least 544 bytes. A lookup scans from the first pair on, and
/// a change copies all pairs.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Pairs(
    /// Key, NUL, value, NUL, and so on, in the order of the keys. Strings of a server have no NUL
    /// (its lib/json.c refuses them).
    Box<str>,
);

impl Pairs {
    /// A map of these pairs. If a key occurs twice, the later pair counts.
    ///
    /// # Errors
    /// A string has a NUL, which no server accepts.
    pub fn new<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ValueError> {
        let pairs: BTreeMap<&str, &str> = pairs.into_iter().collect();
        let texts = || pairs.iter().flat_map(|(key, value)| [*key, *value]);
        if let Some(text) = texts().find(|text| text.contains('\0')) {
            return Err(ValueError::new("a string without NUL", &text));
        }
        let mut all = String::with_capacity(texts().map(|text| text.len() + 1).sum());
        for text in texts() {
            all.push_str(text);
            all.push('\0');
        }
        Ok(Self(all.into()))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(own, _)| *own == key).map(|(_, value)| value)
    }

    /// All pairs, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.0.split_terminator('\0');
        std::iter::from_fn(move || texts.next().zip(texts.next()))
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Field for Pairs {
    fn fits(&self, column: &ColumnType) -> bool {
        column.key == AtomicType::String && column.value == Some(AtomicType::String)
    }

    fn set(&mut self, value: Datum) -> Result<(), ValueError> {
        *self = Self::new(texts(&value)?)?;
        Ok(())
    }

    fn apply(&mut self, difference: Datum) -> Result<(), ValueError> {
        let mut pairs: BTreeMap<&str, &str> = self.iter().collect();
        for (key, value) in texts(&difference)? {
            if pairs.get(key) == Some(&value) {
                pairs.remove(key);
            } else {
                pairs.insert(key, value);
            }
        }
        *self = Self::new(pairs)?;
        Ok(())
    }

    fn datum(&self) -> Datum {
        Datum::map(self.iter())
    }

    fn is(&self, value: &Datum) -> bool {
        let same = |mut pairs: Vec<(&str, &str)>| {
            pairs.sort_unstable();
            self.iter().eq(pairs)
        };
        value.is_empty() && self.is_empty() || texts(value).is_ok_and(same)
    }

    fn pairs(&self) -> Option<&Pairs> {
        Some(self)
    }
}

fn texts(value: &Datum) -> Result<Vec<(&str, &str)>, ValueError> {
    match value {
        Datum::Map(pairs) => {
            pairs.iter().map(|(key, value)| Ok((text(key)?, text(value)?))).collect()
        }
        Datum::Set(_) => Err(ValueError::new("a map", value)),
    }
}

fn text(atom: &Atom) -> Result<&str, ValueError> {
    atom.as_str().ok_or_else(|| ValueError::new("a string", atom))
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
