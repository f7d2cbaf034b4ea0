//! The operations of RFC 7047 §5.2 as they are sent.

use std::fmt;

use serde::Serialize;

use super::{Mutation, Row, Where};

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Operation {
    Insert {
        table: String,
        row: Row,
        #[serde(rename = "uuid-name")]
        uuid_name: String,
    },
    Select {
        table: String,
        #[serde(rename = "where")]
        where_: Where,
        columns: Vec<String>,
    },
    Update {
        table: String,
        #[serde(rename = "where")]
        where_: Where,
        row: Row,
    },
    Mutate {
        table: String,
        #[serde(rename = "where")]
        where_: Where,
        mutations: Vec<Mutation>,
    },
    Delete {
        table: String,
        #[serde(rename = "where")]
        where_: Where,
    },
    Wait {
        table: String,
        #[serde(rename = "where")]
        where_: Where,
        columns: Vec<String>,
        until: Until,
        rows: Vec<Row>,
        timeout: i64,
    },
    Comment {
        comment: String,
    },
    Abort,
    Assert {
        lock: String,
    },
}

/// What a `wait` operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Until {
    /// The selected rows are exactly the given ones.
    #[serde(rename = "==")]
    Equal,
    /// The selected rows differ from the given ones.
    #[serde(rename = "!=")]
    NotEqual,
}

/// An operation's name in errors, such as `insert Interface`, and the form of its result.
#[derive(Debug, Clone)]
pub(crate) struct Label {
    pub(crate) result: ResultForm,
    name: &'static str,
    table: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ResultForm {
    Uuid,
    Rows,
    Count,
    Empty,
}

impl From<Operation> for Label {
    fn from(operation: Operation) -> Self {
        let (result, name, table) = match operation {
            Operation::Insert { table, .. } => (ResultForm::Uuid, "insert", Some(table)),
            Operation::Select { table, .. } => (ResultForm::Rows, "select", Some(table)),
            Operation::Update { table, .. } => (ResultForm::Count, "update", Some(table)),
            Operation::Mutate { table, .. } => (ResultForm::Count, "mutate", Some(table)),
            Operation::Delete { table, .. } => (ResultForm::Count, "delete", Some(table)),
            Operation::Wait { table, .. } => (ResultForm::Empty, "wait", Some(table)),
            Operation::Comment { .. } => (ResultForm::Empty, "comment", None),
            Operation::Abort => (ResultForm::Empty, "abort", None),
            Operation::Assert { .. } => (ResultForm::Empty, "assert", None),
        };
        Self { result, name, table }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            Some(table) => write!(f, "{} {table}", self.name),
            None => f.write_str(self.name),
        }
    }
}
