//! Classifies the error of a transaction: which key, if any, is at fault.

use ovsdb::{ErrorKind, TransactError};

/// What the error of a transaction says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The keys of the operation with this index.
    Operation(usize),
    /// One or several of all keys; the server names none.
    Unnamed,
    /// No key: another writer was faster than the operation with this index. The replica shows that
    /// change already.
    Race(usize),
    /// No key: another process holds the lock that the transaction asserts.
    Lock,
    /// No key: the server accepts no transaction at the moment.
    Server,
    /// No key: the connection is lost.
    Connection,
}

pub(crate) fn classify(error: &TransactError) -> Fault {
    // First: these also come as the error of an operation, which is not at fault then.
    if error.kind().is_some_and(is_the_servers) {
        return Fault::Server;
    }
    match error {
        // Only `wait` times out.
        TransactError::Operation { error, index, .. } if error.kind == ErrorKind::TimedOut => {
            Fault::Race(*index)
        }
        TransactError::Operation { error, .. } if error.kind == ErrorKind::NotOwner => Fault::Lock,
        TransactError::Operation { index, .. } => Fault::Operation(*index),
        // Unique indexes and references are checked at the end of a transaction, without naming an
        // operation (RFC 7047 §4.1.3).
        TransactError::Commit(_) | TransactError::Invalid(_) => Fault::Unnamed,
        TransactError::Refused(_) | TransactError::Protocol(_) => Fault::Server,
        TransactError::NotConnected(_) | TransactError::OutcomeUnknown(_) => Fault::Connection,
    }
}

/// Errors that any transaction would get now.
fn is_the_servers(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ResourcesExhausted
            | ErrorKind::IoError
            | ErrorKind::UnknownDatabase
            | ErrorKind::NotAllowed
            | ErrorKind::NotLeader
            | ErrorKind::Canceled
            | ErrorKind::ClusterError
            | ErrorKind::InconsistentData
    )
}
