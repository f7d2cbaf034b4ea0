//! Changes to the rows of a replica.

use std::{any::Any, fmt};

use crate::{
    table::{Columns, Table},
    value::{Datum, Uuid},
};

/// The changes of one notification, which covers one or more whole transactions of the server.
///
/// Each row occurs once. The replica already shows the rows as they are after all changes.
#[derive(Debug, Default)]
pub struct Changes(pub(crate) Vec<Change>);

/// The change of one row.
pub struct Change {
    /// The name of the table, as the schema spells it.
    pub table: &'static str,
    /// The row's UUID.
    pub uuid: Uuid,
    /// Whether the row was inserted, modified or deleted.
    pub kind: ChangeKind,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) differences: Vec<(&'static str, Datum)>,
    pub(crate) old: Option<Box<dyn Old>>,
}

/// The old row, of any table.
pub(crate) trait Old: Columns + Any + Send + Sync {}

impl<T: Table> Old for T {}

/// How a row changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    Insert,
    Modify,
    Delete,
}

impl Changes {
    /// Whether no row changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of changed rows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The changed rows, in no particular order.
    pub fn iter(&self) -> std::slice::Iter<'_, Change> {
        self.0.iter()
    }

    /// The changes to rows of one table.
    pub fn of<T: Table>(&self) -> impl Iterator<Item = &Change> {
        self.0.iter().filter(|change| change.table == T::NAME)
    }
}

impl Change {
    /// The old row: of a delete always, of a modify if the monitor
    /// [keeps old rows](crate::Monitor::keep_old_rows), of an insert never.
    pub fn old<T: Table>(&self) -> Option<&T> {
        let old: &dyn Any = &**self.old.as_ref()?;
        old.downcast_ref()
    }

    /// As [`old`](Self::old), for a table that is known at run time only.
    pub fn old_columns(&self) -> Option<&dyn Columns> {
        self.old.as_ref().map(|old| &**old as &dyn Columns)
    }

    /// The difference that a modify made to a column, which saves comparing a large one. For sets:
    /// the elements added or removed. For maps: the pairs added, removed (with their old value) or
    /// changed (with their new value). `None` for a column that did not change.
    pub fn difference(&self, column: &str) -> Option<&Datum> {
        self.differences.iter().find(|(own, _)| *own == column).map(|(_, difference)| difference)
    }

    /// The columns that a modify changed; empty for the other kinds.
    pub fn columns(&self) -> &[&'static str] {
        &self.columns
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, uuid, kind, columns, differences: _, old: _ } = self;
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
