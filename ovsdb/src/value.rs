//! Values of columns: atoms, and the sets and maps made of them (RFC 7047 §5.1, `<value>`).
//!
//! Knows how a value is spelled in JSON, but not which column it belongs to.

mod convert;
mod json;

use std::{cmp::Ordering, fmt};

pub use uuid::Uuid;

/// One indivisible value. Atoms of the same type are ordered.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Atom {
    Integer(i64),
    Real(f64),
    Boolean(bool),
    String(String),
    Uuid(Uuid),
    /// A row that the same transaction inserts. Only sent, never received.
    NamedUuid(String),
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Real(number) => number.fmt(f),
            Self::Boolean(value) => value.fmt(f),
            Self::String(text) | Self::NamedUuid(text) => f.write_str(text),
            Self::Uuid(uuid) => uuid.fmt(f),
        }
    }
}

/// The value of a column: a set or a map. A scalar is a set of one element, an absent optional
/// value an empty set.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    Set(Vec<Atom>),
    Map(Vec<(Atom, Atom)>),
}

/// The type of an [`Atom`] (RFC 7047 §3.2, `<atomic-type>`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtomicType {
    Integer,
    Real,
    Boolean,
    String,
    Uuid,
}

/// A value that has another type than the program expects.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{found} is not {expected}")]
pub struct ValueError {
    /// The expected type with its article, such as `a string`.
    pub expected: &'static str,
    /// The value as it was received, as JSON.
    pub found: String,
}

impl Datum {
    /// A map of these pairs. A `BTreeMap` can also be converted with `From`.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// A set of these elements.
    pub fn set<A: Into<Atom>>(elements: impl IntoIterator<Item = A>) -> Self {
        Self::Set(elements.into_iter().map(Into::into).collect())
    }

    /// The only element of a set; `None` for sets of another size and for maps.
    pub fn scalar(&self) -> Option<&Atom> {
        match self {
            Self::Set(atoms) => match atoms.as_slice() {
                [atom] => Some(atom),
                _ => None,
            },
            Self::Map(_) => None,
        }
    }

    /// The elements of a set; empty for a map.
    pub fn atoms(&self) -> &[Atom] {
        match self {
            Self::Set(atoms) => atoms,
            Self::Map(_) => &[],
        }
    }

    /// Whether it is an empty set or an empty map.
    pub fn is_empty(&self) -> bool {
        self.atoms().is_empty() && self.pairs().is_empty()
    }

    /// The difference between this value and the new one, as ovsdb-server(7) §4.1.14 defines it.
    /// For sets: the elements added or removed. For maps: the pairs added, removed (with their old
    /// value) or changed (with their new value). Both values have to be sorted.
    pub(crate) fn difference(self, new: Self) -> Self {
        match (self, new) {
            (Self::Set(old), Self::Set(new)) => Self::Set(merge(old, new, |atom| atom)),
            (Self::Map(old), Self::Map(new)) => Self::Map(merge(old, new, |(key, _)| key)),
            // A set against a map: no column changes its type while it is monitored.
            (_, new) => new,
        }
    }

    /// The pairs of a map; empty for a set.
    pub fn pairs(&self) -> &[(Atom, Atom)] {
        match self {
            Self::Set(_) => &[],
            Self::Map(pairs) => pairs,
        }
    }
}

/// The symmetric difference of two sorted lists. For two elements with the same key but another
/// value, the new one.
fn merge<E: PartialEq>(old: Vec<E>, new: Vec<E>, key: impl Fn(&E) -> &Atom) -> Vec<E> {
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    let mut differ = Vec::new();
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some(one), Some(other)) => key(one).partial_cmp(key(other)).unwrap_or(Ordering::Equal),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return differ,
        };
        match order {
            Ordering::Less => differ.extend(old.next()),
            Ordering::Greater => differ.extend(new.next()),
            Ordering::Equal => {
                let before = old.next();
                differ.extend(new.next().filter(|now| before.as_ref() != Some(now)));
            }
        }
    }
}

impl Atom {
    /// The string, if the atom is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The string without a copy, if the atom is one; otherwise the atom.
    pub(crate) fn into_text(self) -> Result<String, Self> {
        if let Self::String(text) = self { Ok(text) } else { Err(self) }
    }

    /// The integer, if the atom is one.
    pub fn as_integer(&self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(*number) } else { None }
    }

    /// The boolean, if the atom is one.
    pub fn as_boolean(&self) -> Option<bool> {
        if let Self::Boolean(truth) = self { Some(*truth) } else { None }
    }

    /// The UUID of a row, if the atom is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        if let Self::Uuid(uuid) = self { Some(*uuid) } else { None }
    }

    /// The number, if the atom is a real or an integer: servers write a `real` without a fraction
    /// as an integer.
    pub fn as_real(&self) -> Option<f64> {
        match self {
            Self::Real(number) => Some(*number),
            // Exact: the server, too, stores a real column as a double.
            Self::Integer(number) => Some(*number as f64),
            Self::Boolean(_) | Self::String(_) | Self::Uuid(_) | Self::NamedUuid(_) => None,
        }
    }
}

impl ValueError {
    pub(crate) fn new(expected: &'static str, found: &impl serde::Serialize) -> Self {
        Self {
            expected,
            found: serde_json::to_string(found).unwrap_or_else(|error| error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
