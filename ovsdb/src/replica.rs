//! A copy of tables in memory, as typed rows, and what changed in it.
//!
//! Fed by `update`; knows nothing of JSON, connections or transaction ids.

mod change;
mod rows;

use std::fmt;

pub use change::{Change, ChangeKind, Changes};
pub(crate) use rows::{Cell, Rows, TableRows};

use crate::{table::Table, value::Uuid};

/// The monitored rows, as the server last reported them.
#[derive(Default)]
pub struct Replica {
    tables: Vec<Box<dyn Rows>>,
}

impl Replica {
    pub(crate) fn new(tables: Vec<Box<dyn Rows>>) -> Self {
        Self { tables }
    }

    /// The rows of a table, in no order; none if the monitor does not include it.
    pub fn rows<T: Table>(&self) -> impl Iterator<Item = (Uuid, &T)> {
        self.table::<T>().into_iter().flat_map(TableRows::iter)
    }

    /// One row, if it is there and its table is monitored.
    pub fn row<T: Table>(&self, uuid: Uuid) -> Option<&T> {
        self.table::<T>()?.get(uuid)
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

    /// What follows are all rows there are, not changes to those of before.
    pub(crate) fn begin_replacement(&mut self) {
        self.tables.iter_mut().for_each(|table| table.begin_replacement());
    }

    /// All rows have come: those of before that did not come again are gone.
    pub(crate) fn finish_replacement(&mut self, changes: &mut Changes) {
        self.tables.iter_mut().for_each(|table| table.finish_replacement(changes));
    }

    /// The rows did not all come: those of before that did not come again stay, as nobody knows better.
    pub(crate) fn abandon_replacement(&mut self) {
        self.tables.iter_mut().for_each(|table| table.abandon_replacement());
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.tables.iter().map(|table| (table.name(), table.row_count()))).finish()
    }
}
