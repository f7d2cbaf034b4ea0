//! Classifies the error of a transaction: which key, if any, is at fault.

use ovsdb::{ErrorKind, TransactError};

/// What the error of a transaction says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The keys of the operation with this index.
    Operation(usize),
    /// One or several of all keys; the server does not say which.
    Somebody,
    /// No key: another writer was faster than the operation with this index. The replica shows that change
    /// already.
    Race(usize),
    /// No key: another process holds the lock that the transaction asserts.
    Lock,
    /// No key: the server accepts no transaction at the moment.
    Server,
    /// No key: the connection is lost.
    Connection,
}

pub(crate) fn blame(error: &TransactError) -> Blame {
    // First: these also come as the error of an operation, which is not at fault then.
    if error.kind().is_some_and(is_the_servers) {
        return Blame::Server;
    }
    match error {
        // Only `wait` times out.
        TransactError::Operation { error, index, .. } if error.kind == ErrorKind::TimedOut => {
            Blame::Race(*index)
        }
        TransactError::Operation { error, .. } if error.kind == ErrorKind::NotOwner => Blame::Lock,
        TransactError::Operation { index, .. } => Blame::Operation(*index),
        // Unique indexes and references are checked at the end of a transaction, without naming an operation
        // (RFC 7047 §4.1.3).
        TransactError::Commit(_) | TransactError::Invalid(_) => Blame::Somebody,
        TransactError::Refused(_) | TransactError::Protocol(_) => Blame::Server,
        TransactError::NotConnected(_) | TransactError::OutcomeUnknown(_) => Blame::Connection,
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
