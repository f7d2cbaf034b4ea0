//! A transaction: operations that a server executes atomically (RFC 7047 §4.1.3).
//!
//! Does not know connections. The answer is an [`Outcome`](crate::Outcome), read with the handles
//! that the methods of [`Transaction`] return.

mod condition;
mod error;
mod mutation;
mod operation;

use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

pub use condition::{Condition, Function, Where};
pub use error::{NotConnected, TransactError};
pub use mutation::{Mutation, Mutator};
pub use operation::Until;
pub(crate) use operation::{Label, Operation, ResultForm};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::value::{Atom, Datum};

/// Operations to be executed atomically, in this order.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// Ties handles to their transaction; never sent.
    id: u64,
    operations: Vec<Operation>,
}

/// Column values of a row, to insert or to update. Columns that are left out keep their value on
/// update, and get the default of their type on insert.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row(Vec<(Cow<'static, str>, Datum)>);

/// A row that a transaction inserts, before the server assigns its UUID. Values in the same
/// transaction can refer to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedUuid {
    pub(crate) operation: OperationIndex,
    pub(crate) name: String,
}

impl From<&NamedUuid> for Atom {
    fn from(row: &NamedUuid) -> Self {
        Self::NamedUuid(row.name.clone())
    }
}

impl From<NamedUuid> for Atom {
    fn from(row: NamedUuid) -> Self {
        Self::NamedUuid(row.name)
    }
}

impl From<&NamedUuid> for Datum {
    fn from(row: &NamedUuid) -> Self {
        Atom::from(row).into()
    }
}

impl From<NamedUuid> for Datum {
    fn from(row: NamedUuid) -> Self {
        Atom::from(row).into()
    }
}

/// The handle of a `select`; the [`Outcome`](crate::Outcome) has its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Selection(pub(crate) OperationIndex);

/// The handle of an operation: its position in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperationIndex {
    pub(crate) transaction: u64,
    pub(crate) index: usize,
}

impl Transaction {
    /// An empty transaction.
    #[expect(clippy::new_without_default, reason = "each transaction has its own id")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), operations: Vec::new() }
    }

    /// Whether the transaction has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Inserts a row (RFC 7047 §5.2.1). The outcome has its UUID.
    pub fn insert(&mut self, table: &str, row: Row) -> NamedUuid {
        // Unique, because the number of operations is: a server refuses a duplicate `uuid-name`.
        let name = format!("row{}", self.operations.len());
        let operation =
            self.push(Operation::Insert { table: table.to_owned(), row, uuid_name: name.clone() });
        NamedUuid { operation, name }
    }

    /// Reads columns of all rows that meet the condition (RFC 7047 §5.2.2), and always `_uuid`.
    pub fn select(&mut self, table: &str, where_: impl Into<Where>, columns: &[&str]) -> Selection {
        let implied = (!columns.contains(&"_uuid")).then_some("_uuid");
        let columns = columns.iter().copied().chain(implied).map(str::to_owned).collect();
        Selection(self.push(Operation::Select {
            table: table.to_owned(),
            where_: where_.into(),
            columns,
        }))
    }

    /// Sets columns of all rows that meet the condition (RFC 7047 §5.2.3).
    pub fn update(&mut self, table: &str, where_: impl Into<Where>, row: Row) -> OperationIndex {
        self.push(Operation::Update { table: table.to_owned(), where_: where_.into(), row })
    }

    /// Changes columns of all rows that meet the condition, relative to their values (RFC 7047
    /// §5.2.4).
    pub fn mutate(
        &mut self,
        table: &str,
        where_: impl Into<Where>,
        mutations: Vec<Mutation>,
    ) -> OperationIndex {
        self.push(Operation::Mutate { table: table.to_owned(), where_: where_.into(), mutations })
    }

    /// Deletes all rows that meet the condition (RFC 7047 §5.2.5).
    pub fn delete(&mut self, table: &str, where_: impl Into<Where>) -> OperationIndex {
        self.push(Operation::Delete { table: table.to_owned(), where_: where_.into() })
    }

    /// Waits until the rows that meet the condition have exactly these values in these columns, or,
    /// with [`Until::NotEqual`], other values (RFC 7047 §5.2.6).
    ///
    /// The server retries the transaction until `timeout` (in milliseconds, rounded down) has
    /// passed; then the error is [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut). With a
    /// timeout of zero the server checks once.
    pub fn wait(
        &mut self,
        table: &str,
        where_: impl Into<Where>,
        columns: &[&str],
        until: Until,
        rows: Vec<Row>,
        timeout: Duration,
    ) -> OperationIndex {
        let columns = columns.iter().copied().map(str::to_owned).collect();
        // The server reads the timeout as a signed 64-bit integer.
        let timeout = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        self.push(Operation::Wait {
            table: table.to_owned(),
            where_: where_.into(),
            columns,
            until,
            rows,
            timeout,
        })
    }

    /// Adds a comment to the server's log of the transaction (RFC 7047 §5.2.9).
    pub fn comment(&mut self, comment: &str) -> OperationIndex {
        self.push(Operation::Comment { comment: comment.to_owned() })
    }

    /// Makes the transaction fail after the operations before it were tried (RFC 7047 §5.2.8).
    pub fn abort(&mut self) -> OperationIndex {
        self.push(Operation::Abort)
    }

    /// Makes the transaction fail unless this connection holds the lock (RFC 7047 §5.2.10).
    pub fn assert(&mut self, lock: &str) -> OperationIndex {
        self.push(Operation::Assert { lock: lock.to_owned() })
    }

    fn push(&mut self, operation: Operation) -> OperationIndex {
        self.operations.push(operation);
        OperationIndex { transaction: self.id, index: self.operations.len() - 1 }
    }

    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// What the answer is decoded with. The operations themselves are dropped once they are sent.
    pub(crate) fn into_labels(self) -> (u64, Vec<Label>) {
        (self.id, self.operations.into_iter().map(Label::from).collect())
    }
}

impl Row {
    /// A row without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// A row without columns, with room for so many.
    pub fn with_capacity(columns: usize) -> Self {
        Self(Vec::with_capacity(columns))
    }

    /// The row with one more column.
    #[must_use]
    pub fn with(mut self, column: impl Into<Cow<'static, str>>, value: impl Into<Datum>) -> Self {
        self.set(column, value);
        self
    }

    /// Sets a column, and replaces a value that was set before.
    pub fn set(&mut self, column: impl Into<Cow<'static, str>>, value: impl Into<Datum>) {
        let (column, value) = (column.into(), value.into());
        match self.0.iter_mut().find(|(name, _)| *name == column) {
            Some((_, old)) => *old = value,
            None => self.0.push((column, value)),
        }
    }

    /// Whether no column is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The columns that are set, in the order in which they were set first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Datum)> {
        self.0.iter().map(|(column, value)| (column.as_ref(), value))
    }

    /// Keeps only the columns for which `keep` is true. Meant to leave out those that the database
    /// [lacks](crate::Schema::has_column).
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|(column, _)| keep(column));
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (column, value) in &self.0 {
            map.serialize_entry(column, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
