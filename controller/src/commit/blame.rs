//! Whose fault it is that a transaction was refused.

use ovsdb::{ErrorKind, TransactError};

/// Who is to be left out of the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The keys of this operation.
    Operation(usize),
    /// One of all keys, or several together.
    Somebody,
    /// Nobody: another writer was faster than this operation, and the copy of the database shows by now what it did.
    Race(usize),
    /// Nobody: another process has the lock that the transaction asserts.
    Lock,
    /// The server serves nobody at the moment.
    Server,
    /// There is no connection any more.
    Connection,
}

pub(crate) fn blame(error: &TransactError) -> Blame {
    if error.kind().is_some_and(is_the_servers) {
        return Blame::Server;
    }
    match error {
        TransactError::Operation { error, index, .. } if error.kind == ErrorKind::TimedOut => Blame::Race(*index),
        TransactError::Operation { error, .. } if error.kind == ErrorKind::NotOwner => Blame::Lock,
        TransactError::Operation { index, .. } => Blame::Operation(*index),
        TransactError::Commit(_) | TransactError::Invalid(_) => Blame::Somebody,
        TransactError::Refused(_) | TransactError::Protocol(_) => Blame::Server,
        TransactError::NotConnected(_) | TransactError::OutcomeUnknown(_) => Blame::Connection,
    }
}

/// What would befall any transaction now.
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
