//! Which tables, columns and rows to replicate, and how a server is asked for them.
//!
//! Knows the three monitor methods, of which the newest that a server has is used: `monitor_cond_since` (Open vSwitch 2.12),
//! `monitor_cond` (2.6), `monitor` (RFC 7047 §4.1.5).

mod error;
mod request;

use std::fmt;

pub use error::MonitorError;
pub(crate) use request::{Request, Started};

use crate::{
    replica::{Replica, Rows, TableRows},
    table::Table,
    transaction::Where,
};

/// What to replicate. A table or column that the database lacks is left out: it has no rows, or the field its default value.
#[derive(Debug, Clone, Default)]
pub struct Monitor {
    tables: Vec<MonitoredTable>,
    keep_old_rows: bool,
}

#[derive(Clone)]
pub(crate) struct MonitoredTable {
    pub(crate) name: &'static str,
    pub(crate) where_: Where,
    /// Whether the rows that are there already are left out.
    pub(crate) changes_only: bool,
    rows: fn(keep_old: bool, changes_only: bool) -> Box<dyn Rows>,
}

impl Monitor {
    /// A monitor of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the rows of a table that meet one of the conditions; all of them, if there is none.
    #[must_use]
    pub fn table<T: Table>(self, conditions: impl Into<Where>) -> Self {
        self.with::<T>(conditions.into(), false)
    }

    /// The same without the rows that are there already: for one who is interested in a row that is yet to be made. A server copies
    /// all rows of a table, whatever the condition, to find those to start with.
    #[must_use]
    pub fn table_changes<T: Table>(self, conditions: impl Into<Where>) -> Self {
        self.with::<T>(conditions.into(), true)
    }

    fn with<T: Table>(mut self, where_: Where, changes_only: bool) -> Self {
        let rows = |keep_old, changes_only| Box::new(TableRows::<T>::new(keep_old, changes_only)) as Box<dyn Rows>;
        self.tables.push(MonitoredTable { name: T::NAME, where_, changes_only, rows });
        self
    }

    /// Hands out the former row with each change. Not the default, for it copies the row: a set of 10,000 elements for each one
    /// that is added.
    #[must_use]
    pub fn keep_old_rows(mut self) -> Self {
        self.keep_old_rows = true;
        self
    }

    pub(crate) fn tables(&self) -> &[MonitoredTable] {
        &self.tables
    }

    pub(crate) fn blank_replica(&self) -> Replica {
        Replica::new(self.tables.iter().map(|table| (table.rows)(self.keep_old_rows, table.changes_only)).collect())
    }
}

impl fmt::Debug for MonitoredTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MonitoredTable").field("name", &self.name).field("where", &self.where_).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
