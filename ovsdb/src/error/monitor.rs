//! Why tables cannot be monitored.

use super::{Closed, OvsdbError};

/// Why tables cannot be monitored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MonitorError {
    #[error("the table {0} is monitored twice")]
    Repeated(&'static str),
    #[error("the column {column} of {table} has another type than its field")]
    Type { table: &'static str, column: &'static str },
    #[error("the column {column} of {table}, which a condition is about, is not in the database")]
    ConditionColumn { table: &'static str, column: String },
    #[error("a condition cannot be sent: {0}")]
    Invalid(String),
    /// The method `monitor` has no conditions. Its answer would include rows that were not
    /// requested.
    #[error("the server is too old to monitor rows by condition")]
    NoConditions,
    #[error("the server refused")]
    Refused(#[source] OvsdbError),
    #[error("the connection was lost")]
    Closed(#[from] Closed),
}
