//! A copy of tables in memory, as typed rows, and its changes.
//!
//! Filled by `update`. Does not know JSON, connections or transaction ids.

mod change;
mod rows;

use std::fmt;

pub use change::{Change, ChangeKind, Changes};
pub(crate) use rows::{Cell, InitialRows, Rows, TableRows};

use crate::{
    table::{Columns, Table},
    value::Uuid,
};

/// The monitored rows, as the server last reported them.
#[derive(Default)]
pub struct Replica {
    tables: Vec<Box<dyn Rows>>,
}

impl Replica {
    pub(crate) fn new(tables: Vec<Box<dyn Rows>>) -> Self {
        Self { tables }
    }

    /// The rows of a table, in no particular order; empty if the monitor does not include the
    /// table.
    pub fn rows<T: Table>(&self) -> impl Iterator<Item = (Uuid, &T)> {
        self.table::<T>().into_iter().flat_map(TableRows::iter)
    }

    /// One row, if it exists and its table is monitored.
    pub fn row<T: Table>(&self, uuid: Uuid) -> Option<&T> {
        self.table::<T>()?.get(uuid)
    }

    /// One row of a table whose name is known at run time only.
    pub fn find(&self, table: &str, uuid: Uuid) -> Option<&dyn Columns> {
        self.tables.iter().find(|rows| rows.name() == table)?.row(uuid)
    }

    /// The number of rows of a table.
    pub fn count<T: Table>(&self) -> usize {
        self.table::<T>().map_or(0, TableRows::len)
    }

    fn table<T: Table>(&self) -> Option<&TableRows<T>> {
        self.tables.iter().find_map(|table| table.as_any().downcast_ref())
    }

    pub(crate) fn tables_mut(&mut self) -> &mut [Box<dyn Rows>] {
        &mut self.tables
    }

    pub(crate) fn named(&mut self, table: &str) -> Option<&mut (dyn Rows + 'static)> {
        self.tables.iter_mut().find(|rows| rows.name() == table).map(|rows| &mut **rows)
    }

    /// Starts a full load: the next rows are the whole contents, not changes to the present rows.
    pub(crate) fn begin_replacement(&mut self) {
        self.tables.iter_mut().for_each(|table| table.begin_replacement());
    }

    /// Ends a full load: rows from before it that were not loaded again are deleted.
    pub(crate) fn finish_replacement(&mut self, changes: &mut Changes) {
        self.tables.iter_mut().for_each(|table| table.finish_replacement(changes));
    }

    /// Cancels a full load: rows from before it that were not loaded again stay, because their
    /// state is unknown.
    pub(crate) fn abandon_replacement(&mut self) {
        self.tables.iter_mut().for_each(|table| table.abandon_replacement());
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.tables.iter().map(|table| (table.name(), table.row_count())))
            .finish()
    }
}
