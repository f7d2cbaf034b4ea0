//! A row as a `select` returned it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::value::{Atom, Datum, Uuid};

/// The columns of one row. An accessor returns `None` or an empty value if the column was not
/// selected, is empty, or has another type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct SelectedRow(BTreeMap<String, Datum>);

impl SelectedRow {
    /// The row's own UUID. It is always selected; nil only if the server left it out.
    pub fn uuid(&self) -> Uuid {
        self.scalar("_uuid").and_then(Atom::as_uuid).unwrap_or_default()
    }

    /// The value of a column, of any type.
    pub fn datum(&self, column: &str) -> Option<&Datum> {
        self.0.get(column)
    }

    /// A single string.
    pub fn string(&self, column: &str) -> Option<&str> {
        self.scalar(column).and_then(Atom::as_str)
    }

    /// A single integer.
    pub fn integer(&self, column: &str) -> Option<i64> {
        self.scalar(column).and_then(Atom::as_integer)
    }

    /// A single boolean.
    pub fn boolean(&self, column: &str) -> Option<bool> {
        self.scalar(column).and_then(Atom::as_boolean)
    }

    /// A set of strings, in the server's order.
    pub fn strings(&self, column: &str) -> Vec<&str> {
        self.atoms(column).iter().filter_map(Atom::as_str).collect()
    }

    /// A set of references, in the server's order.
    pub fn uuids(&self, column: &str) -> Vec<Uuid> {
        self.atoms(column).iter().filter_map(Atom::as_uuid).collect()
    }

    /// A map from strings to strings. Pairs of other types are left out.
    pub fn map(&self, column: &str) -> BTreeMap<String, String> {
        let pairs = self.datum(column).map_or(&[][..], Datum::pairs);
        let strings = pairs.iter().filter_map(|(key, value)| {
            Some((key.as_str()?.to_owned(), value.as_str()?.to_owned()))
        });
        strings.collect()
    }

    fn scalar(&self, column: &str) -> Option<&Atom> {
        self.datum(column).and_then(Datum::scalar)
    }

    fn atoms(&self, column: &str) -> &[Atom] {
        self.datum(column).map_or(&[], Datum::atoms)
    }
}
