//! Rows as Rust structs: the mapping of fields to columns.
//!
//! [`table!`](crate::table!) declares such a struct. Does not know JSON or connections.

mod field;
mod pairs;
mod texts;

use std::fmt::Debug;

pub use field::{Field, Scalar};
pub use pairs::Pairs;
pub use texts::Texts;

use crate::transaction::Row;

/// A row of one table, with the columns that the program uses. Declared with
/// [`table!`](crate::table!).
///
/// `Default` is a row whose columns all have the default value of their type (RFC 7047 §5.2.1).
/// Servers leave out columns with that value.
pub trait Table: Default + Debug + Clone + PartialEq + Send + Sync + 'static {
    /// The table's name, as the schema spells it.
    const NAME: &'static str;
    /// The columns' names, as the schema spells them, in the order of the fields.
    const COLUMNS: &'static [&'static str];

    /// The field of the column `COLUMNS[column]`. Panics if there is none.
    fn field(&self, column: usize) -> &dyn Field;

    /// The field of the column `COLUMNS[column]`. Panics if there is none.
    fn field_mut(&mut self, column: usize) -> &mut dyn Field;
}

/// A row of a table that is known at run time only. Every [`Table`] implements it.
pub trait Columns {
    /// The field of a column; `None` if the struct has no field for it.
    fn column(&self, name: &str) -> Option<&dyn Field>;
}

impl<T: Table> Columns for T {
    fn column(&self, name: &str) -> Option<&dyn Field> {
        T::COLUMNS.iter().position(|column| *column == name).map(|index| self.field(index))
    }
}

impl<T: Table> From<&T> for Row {
    /// Sets all columns, also those with their default value.
    fn from(row: &T) -> Self {
        T::COLUMNS
            .iter()
            .enumerate()
            .fold(Self::new(), |wire, (index, column)| wire.with(*column, row.field(index).datum()))
    }
}

/// Declares a struct for the rows of a table, with a field for each column of interest.
///
/// Types: `String`, `Box<str>`, `Arc<str>`, `i64`, `f64`, `bool` and [`Uuid`](crate::Uuid) for a
/// single value; an `Option` of them for an optional value; `Vec` (kept sorted, without duplicates)
/// or `BTreeSet`, or [`Texts`] for strings, for a set; `BTreeMap`, or [`Pairs`] for strings, for a
/// map. A field has its column's name, or `= "column"` after its type names the column.
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
