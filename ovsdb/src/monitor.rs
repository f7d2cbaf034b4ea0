//! Which tables, columns and rows to replicate, and the requests for them.
//!
//! Uses the newest of three monitor methods that the server has: `monitor_cond_since` (Open vSwitch
//! 2.12), `monitor_cond` (2.6) or `monitor` (RFC 7047 §4.1.5).

mod request;

use std::fmt;

pub(crate) use request::{MonitorTables, Started};

use crate::{
    replica::{InitialRows, Replica, Rows, TableRows},
    table::Table,
    transaction::Where,
};

/// What to replicate. Tables and columns that the database lacks are left out: such a table has no
/// rows, and the field of such a column has its default value.
#[derive(Debug, Clone, Default)]
pub struct Monitor {
    tables: Vec<MonitoredTable>,
    keep_old_rows: bool,
}

#[derive(Clone)]
pub(crate) struct MonitoredTable {
    pub(crate) name: &'static str,
    pub(crate) where_: Where,
    pub(crate) initial: InitialRows,
    rows: fn(keep_old: bool, initial: InitialRows) -> Box<dyn Rows>,
}

impl Monitor {
    /// A monitor without tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the rows of a table that meet one of the conditions, or all rows if there is no
    /// condition.
    #[must_use]
    pub fn table<T: Table>(self, conditions: impl Into<Where>) -> Self {
        self.with::<T>(conditions.into(), InitialRows::Sent)
    }

    /// As [`table`](Self::table), but without the rows that exist already: for a program that waits
    /// for a row to be inserted. To find the initial rows, a server copies all rows of the table,
    /// whatever the condition is.
    ///
    /// After a reconnection that could not be resumed, all rows of such a table are reported as
    /// deleted, because the server does not send them again.
    #[must_use]
    pub fn table_changes<T: Table>(self, conditions: impl Into<Where>) -> Self {
        self.with::<T>(conditions.into(), InitialRows::LeftOut)
    }

    fn with<T: Table>(mut self, where_: Where, initial: InitialRows) -> Self {
        let rows =
            |keep_old, initial| Box::new(TableRows::<T>::new(keep_old, initial)) as Box<dyn Rows>;
        self.tables.push(MonitoredTable { name: T::NAME, where_, initial, rows });
        self
    }

    /// Adds the old row to each change. Not the default, because it copies the row: adding one
    /// element to a set of 10,000 copies all of them.
    #[must_use]
    pub fn keep_old_rows(mut self) -> Self {
        self.keep_old_rows = true;
        self
    }

    pub(crate) fn tables(&self) -> &[MonitoredTable] {
        &self.tables
    }

    pub(crate) fn blank_replica(&self) -> Replica {
        Replica::new(
            self.tables
                .iter()
                .map(|table| (table.rows)(self.keep_old_rows, table.initial))
                .collect(),
        )
    }
}

impl fmt::Debug for MonitoredTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MonitoredTable")
            .field("name", &self.name)
            .field("where", &self.where_)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
