//! Rows as Rust structs: which fields hold which columns.
//!
//! [`table!`](crate::table!) declares such a struct. Knows nothing of JSON or of connections.

mod field;

use std::fmt::Debug;

pub use field::{Field, Scalar};

use crate::transaction::Row;

/// A row of one table, with the columns that the program is interested in. Declared with [`table!`](crate::table!).
///
/// The default is what a server leaves out: a row whose columns all hold the default value of their type (RFC 7047 §5.2.1).
pub trait Table: Default + Debug + Clone + PartialEq + Send + Sync + 'static {
    /// As the schema spells it.
    const NAME: &'static str;
    /// As the schema spells them, in the order of the fields.
    const COLUMNS: &'static [&'static str];

    /// The field of `COLUMNS[column]`; panics beyond the last.
    fn field(&self, column: usize) -> &dyn Field;

    /// The field of `COLUMNS[column]`; panics beyond the last.
    fn field_mut(&mut self, column: usize) -> &mut dyn Field;
}

impl<T: Table> From<&T> for Row {
    /// All columns, also those that hold their default.
    fn from(row: &T) -> Self {
        T::COLUMNS.iter().enumerate().fold(Self::new(), |wire, (index, column)| wire.with(*column, row.field(index).datum()))
    }
}

/// Declares a struct for the rows of a table, with a field for each column of interest.
///
/// Types: `String`, `i64`, `f64`, `bool` and [`Uuid`](crate::Uuid) for a single value; `Option` of one for an optional value;
/// `Vec` (kept sorted, without duplicates) or `BTreeSet` for a set; `BTreeMap` for a map. A field is named as its column,
/// or followed by the column's name.
///
/// ```
/// use std::collections::BTreeMap;
///
/// ovsdb::table! {
///     /// An interface, as far as this program cares.
///     pub struct Interface in "Interface" {
///         pub name: String,
///         /// `type` is a word of Rust's.
///         pub kind: String = "type",
///         pub ofport: Option<i64>,
///         pub external_ids: BTreeMap<String, String>,
///     }
/// }
///
/// assert_eq!(<Interface as ovsdb::Table>::COLUMNS, ["name", "type", "ofport", "external_ids"]);
/// ```
#[macro_export]
macro_rules! table {
    (@column $field:ident) => { stringify!($field) };
    (@column $field:ident $column:literal) => { $column };
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident in $table:literal {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $ty:ty $(= $column:literal)?),+ $(,)?
        }
    )+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $ty,)+
        }

        impl $crate::Table for $name {
            const NAME: &'static str = $table;
            const COLUMNS: &'static [&'static str] = &[$($crate::table!(@column $field $($column)?)),+];

            fn field(&self, column: usize) -> &dyn $crate::Field {
                let fields: [&dyn $crate::Field; Self::COLUMNS.len()] = [$(&self.$field),+];
                fields[column]
            }

            fn field_mut(&mut self, column: usize) -> &mut dyn $crate::Field {
                let fields: [&mut dyn $crate::Field; Self::COLUMNS.len()] = [$(&mut self.$field),+];
                fields.into_iter().nth(column).expect("the caller keeps to COLUMNS")
            }
        }
    )+};
}

#[cfg(test)]
mod tests;
