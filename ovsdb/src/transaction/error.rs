//! Why a transaction has no outcome.

use crate::{
    closed::{Closed, ConnectError},
    error::{ErrorKind, OvsdbError},
};

/// Why a transaction has no outcome. Only after [`OutcomeUnknown`](Self::OutcomeUnknown) may the database hold its changes.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransactError {
    /// One operation failed, so none had an effect.
    #[error("{operation}, operation {index} of the transaction, was refused")]
    Operation {
        /// Counted from 0.
        index: usize,
        /// Such as `insert Interface`.
        operation: String,
        #[source]
        error: OvsdbError,
    },
    /// Each operation was fine, but their result together is not (RFC 7047 §4.1.3, "additional result element").
    #[error("the transaction was refused at its end")]
    Commit(#[source] OvsdbError),
    /// The server did not look at the operations: no such database, or no transaction in its eyes.
    #[error("the transaction was refused as a whole")]
    Refused(#[source] OvsdbError),
    /// A value has no spelling in the protocol: a number that is not finite, a string with a NUL. Nothing was sent.
    #[error("the transaction cannot be sent: {0}")]
    Invalid(String),
    /// There was no connection, or it broke before the request had left: the transaction has not happened.
    #[error("not connected")]
    NotConnected(#[source] NotConnected),
    /// The connection broke after the request had left: the transaction may have happened or not.
    #[error("the connection was lost before the answer came, so the transaction may have happened or not")]
    OutcomeUnknown(#[source] Closed),
    /// The answer does not fit the request. The transaction may have happened.
    #[error("the answer makes no sense: {0}")]
    Protocol(String),
}

/// Why there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotConnected {
    /// A connection there was.
    #[error(transparent)]
    Lost(#[from] Closed),
    /// None could be opened; the last error.
    #[error(transparent)]
    Unreachable(#[from] std::sync::Arc<ConnectError>),
    /// The first attempt is still under way.
    #[error("the first connection is still being opened")]
    Connecting,
}

impl TransactError {
    /// What the server said, if it said something.
    pub fn server_error(&self) -> Option<&OvsdbError> {
        match self {
            Self::Operation { error, .. } | Self::Commit(error) | Self::Refused(error) => Some(error),
            Self::Invalid(_) | Self::NotConnected(_) | Self::OutcomeUnknown(_) | Self::Protocol(_) => None,
        }
    }

    /// The kind of what the server said, if it said something.
    pub fn kind(&self) -> Option<&ErrorKind> {
        self.server_error().map(|error| &error.kind)
    }
}
