//! Values of columns: atoms, and the sets and maps made of them (RFC 7047 §5.1, `<value>`).
//!
//! Knows how a value is spelled in JSON and nothing of the column it belongs to.

mod convert;
mod json;

pub use uuid::Uuid;

/// One indivisible value.
#[derive(Debug, Clone, PartialEq)]
pub enum Atom {
    Integer(i64),
    Real(f64),
    Boolean(bool),
    String(String),
    Uuid(Uuid),
    /// A row that the same transaction inserts; only ever sent, never received.
    NamedUuid(String),
}

/// What a column holds: a set or a map. A scalar is a set of one, an absent optional value a set of none.
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

/// A value that is not what the program takes it for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{found} is not {expected}")]
pub struct ValueError {
    /// With its article: `a string`.
    pub expected: &'static str,
    /// The value as it was received.
    pub found: String,
}

impl Datum {
    /// A map of these pairs. For maps that are a `BTreeMap` already, `From` does.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// A set of these elements.
    pub fn set<A: Into<Atom>>(elements: impl IntoIterator<Item = A>) -> Self {
        Self::Set(elements.into_iter().map(Into::into).collect())
    }

    /// The value of a scalar, or of an optional value that is there.
    pub fn scalar(&self) -> Option<&Atom> {
        match self {
            Self::Set(atoms) => match atoms.as_slice() {
                [atom] => Some(atom),
                _ => None,
            },
            Self::Map(_) => None,
        }
    }

    /// The elements of a set; none of a map.
    pub fn atoms(&self) -> &[Atom] {
        match self {
            Self::Set(atoms) => atoms,
            Self::Map(_) => &[],
        }
    }

    /// The pairs of a map; none of a set.
    pub fn pairs(&self) -> &[(Atom, Atom)] {
        match self {
            Self::Set(_) => &[],
            Self::Map(pairs) => pairs,
        }
    }
}

impl Atom {
    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The integer, if it is one.
    pub fn as_integer(&self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(*number) } else { None }
    }

    /// The truth value, if it is one.
    pub fn as_boolean(&self) -> Option<bool> {
        if let Self::Boolean(truth) = self { Some(*truth) } else { None }
    }

    /// The reference to a row, if it is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        if let Self::Uuid(uuid) = self { Some(*uuid) } else { None }
    }

    /// A JSON number without a fraction counts too: that is how a server spells a whole `real`.
    pub fn as_real(&self) -> Option<f64> {
        match self {
            Self::Real(number) => Some(*number),
            // The server holds the column as a double too, so this loses nothing that it kept.
            Self::Integer(number) => Some(*number as f64),
            Self::Boolean(_) | Self::String(_) | Self::Uuid(_) | Self::NamedUuid(_) => None,
        }
    }
}

impl ValueError {
    pub(crate) fn new(expected: &'static str, found: &impl serde::Serialize) -> Self {
        Self { expected, found: serde_json::to_string(found).unwrap_or_else(|error| error.to_string()) }
    }
}

#[cfg(test)]
mod tests;
