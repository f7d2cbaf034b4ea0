//! Changes relative to a column's value (RFC 7047 §5.1, `<mutation>`).

use serde::{Serialize, Serializer};

use crate::value::{Atom, Datum};

/// A change of one column.
#[derive(Debug, Clone, PartialEq)]
pub struct Mutation {
    column: String,
    mutator: Mutator,
    value: Datum,
}

/// How a column is changed (RFC 7047 §5.1, `<mutator>`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Mutator {
    #[serde(rename = "+=")]
    Add,
    #[serde(rename = "-=")]
    Subtract,
    #[serde(rename = "*=")]
    Multiply,
    #[serde(rename = "/=")]
    Divide,
    #[serde(rename = "%=")]
    Remainder,
    #[serde(rename = "insert")]
    Insert,
    #[serde(rename = "delete")]
    Delete,
}

impl Mutation {
    /// A change with any [`Mutator`]. Arithmetic works on integers and reals, and on each element
    /// of a set of them.
    pub fn new(column: &str, mutator: Mutator, value: impl Into<Datum>) -> Self {
        Self { column: column.to_owned(), mutator, value: value.into() }
    }

    /// Adds elements to a set, or pairs to a map. A key that the map has already keeps its value;
    /// to replace the value, delete the key first.
    pub fn insert(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Mutator::Insert, value)
    }

    /// Removes elements from a set, or pairs from a map. A set of keys removes pairs from a map
    /// whatever their values are.
    pub fn delete(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Mutator::Delete, value)
    }

    /// Removes these keys from a map, whatever their values are.
    pub fn delete_keys<K: Into<Atom>>(column: &str, keys: impl IntoIterator<Item = K>) -> Self {
        Self::delete(column, Datum::set(keys))
    }
}

impl Serialize for Mutation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.column, self.mutator, &self.value).serialize(serializer)
    }
}
