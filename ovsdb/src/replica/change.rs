//! What happened to the rows of a replica.

use std::{any::Any, fmt};

use crate::{table::Table, value::Uuid};

/// The changes of one notification, which is at least one whole transaction of the server.
///
/// Each row occurs once. The replica shows the rows as they are after all of them.
#[derive(Debug, Default)]
pub struct Changes(pub(crate) Vec<Change>);

/// What happened to one row.
pub struct Change {
    /// As the schema spells it.
    pub table: &'static str,
    /// Of the row.
    pub uuid: Uuid,
    /// How the row came to differ.
    pub kind: ChangeKind,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) old: Option<Box<dyn Any + Send + Sync>>,
}

/// How a row came to differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    Insert,
    Modify,
    Delete,
}

impl Changes {
    /// Whether no row differs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of rows that differ.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Each row that differs, in no order.
    pub fn iter(&self) -> std::slice::Iter<'_, Change> {
        self.0.iter()
    }

    /// The changes to rows of one table.
    pub fn of<T: Table>(&self) -> impl Iterator<Item = &Change> {
        self.0.iter().filter(|change| change.table == T::NAME)
    }
}

impl Change {
    /// The row as it was: of a delete always, of a modify if the monitor [keeps old rows](crate::Monitor::keep_old_rows).
    pub fn old<T: Table>(&self) -> Option<&T> {
        self.old.as_ref()?.downcast_ref()
    }

    /// The columns that a modify changed; empty for the other kinds.
    pub fn columns(&self) -> &[&'static str] {
        &self.columns
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, uuid, kind, columns, old: _ } = self;
        write!(f, "{kind:?} {table} {uuid}")?;
        if columns.is_empty() { Ok(()) } else { write!(f, " {columns:?}") }
    }
}

impl IntoIterator for Changes {
    type Item = Change;
    type IntoIter = std::vec::IntoIter<Change>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Changes {
    type Item = &'a Change;
    type IntoIter = std::slice::Iter<'a, Change>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
