//! Why a transaction has no outcome.

use crate::error::{Closed, ConnectError, ErrorKind, OvsdbError};

/// Why a transaction has no outcome. The database may hold its changes only after
/// [`OutcomeUnknown`](Self::OutcomeUnknown) and [`Protocol`](Self::Protocol).
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransactError {
    /// One operation failed, so none took effect.
    #[error("{operation}, operation {index} of the transaction, was refused")]
    Operation {
        /// The operation's position, counted from 0.
        index: usize,
        /// The operation and its table, such as `insert Interface`.
        operation: String,
        #[source]
        error: OvsdbError,
    },
    /// Each operation succeeded, but the commit failed (RFC 7047 §4.1.3, "additional result
    /// element").
    #[error("the transaction was refused at its end")]
    Commit(#[source] OvsdbError),
    /// The server refused the request without executing operations: unknown database, or invalid
    /// parameters.
    #[error("the transaction was refused as a whole")]
    Refused(#[source] OvsdbError),
    /// A value cannot be expressed in the protocol: a number that is not finite, or a string with a
    /// NUL. Nothing was sent.
    #[error("the transaction cannot be sent: {0}")]
    Invalid(String),
    /// There was no connection, or it broke before the whole request was sent. The transaction was
    /// not executed.
    #[error("not connected")]
    NotConnected(#[source] NotConnected),
    /// The connection broke after the request was sent. The transaction may have been committed or
    /// not.
    #[error(
        "the connection was lost before the answer came, so the transaction may have happened or not"
    )]
    OutcomeUnknown(#[source] Closed),
    /// The answer does not fit the request. The transaction may have been committed.
    #[error("the answer makes no sense: {0}")]
    Protocol(String),
}

/// Why there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotConnected {
    /// The last connection was closed, for this reason.
    #[error(transparent)]
    Lost(#[from] Closed),
    /// No connection could be opened; the error of the last attempt.
    #[error(transparent)]
    Unreachable(#[from] std::sync::Arc<ConnectError>),
    /// The first attempt is still under way.
    #[error("the first connection is still being opened")]
    Connecting,
}

impl TransactError {
    /// The server's error, if the server reported one.
    pub fn server_error(&self) -> Option<&OvsdbError> {
        match self {
            Self::Operation { error, .. } | Self::Commit(error) | Self::Refused(error) => {
                Some(error)
            }
            Self::Invalid(_)
            | Self::NotConnected(_)
            | Self::OutcomeUnknown(_)
            | Self::Protocol(_) => None,
        }
    }

    /// The kind of the server's error, if the server reported one.
    pub fn kind(&self) -> Option<&ErrorKind> {
        self.server_error().map(|error| &error.kind)
    }
}
