//! The right to write, as the database itself sees it: OVSDB's own lock (RFC 7047 §4.1.8), which
//! every transaction asserts.
//!
//! A process that was stopped, or whose machine was, may not notice in time that its Lease has run
//! out. The database does: the next leader takes the lock, and the server refuses what the former
//! leader still sends. Knows nothing of rows.
//!
//! The choice is explained in `docs/decisions/one-writer.md`.

use ovsdb::{Claim, Connection, Lock, LockState};

/// The name of the lock: one for all controllers of a server. It does not keep out programs that do
/// not ask for it, such as upstream's.
pub(crate) const LOCK: &str = "ovn_kubernetes_controller";

/// The lock on the connection that the replica follows.
#[derive(Debug, Default)]
pub(crate) struct DatabaseLock {
    lock: Option<Lock>,
    /// The server refused a transaction because this connection does not hold the lock.
    refused: bool,
}

/// Whether this process may write, as far as the lock goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Right {
    Held,
    /// There is no answer yet.
    Asked,
    /// Not held at present, and why.
    Waits(String),
    /// Another process has taken it.
    Taken,
}

impl DatabaseLock {
    /// Asks for the lock, once over each connection.
    pub(crate) fn ask(&mut self, connection: &Connection, claim: Claim) {
        // A lock ends with its connection.
        if self.lock.as_ref().is_none_or(|lock| !lock.connection().is_same(connection)) {
            *self = Self { lock: Some(connection.lock(LOCK, claim)), refused: false };
        }
    }

    pub(crate) fn right(&self) -> Right {
        match self.lock.as_ref().map(Lock::state) {
            // A refusal is certain; the notification `stolen` may still be on its way.
            Some(_) if self.refused => Right::Taken,
            Some(LockState::Held) => Right::Held,
            Some(LockState::Stolen) => Right::Taken,
            Some(LockState::Waits) => {
                Right::Waits(format!("another process holds the database's lock {LOCK}"))
            }
            Some(LockState::Refused(error)) => {
                Right::Waits(format!("the database refuses the lock {LOCK}: {error}"))
            }
            Some(LockState::Asked) | None => Right::Asked,
        }
    }

    /// A transaction has failed because the lock is not held.
    pub(crate) fn refused(&mut self) {
        self.refused = true;
    }

    /// Returns the lock, so that it can be asked for again.
    pub(crate) fn give_up(&mut self) {
        if let Some(lock) = std::mem::take(self).lock {
            lock.unlock();
        }
    }

    /// Waits until the state of the lock changes; for ever if no lock was asked for.
    pub(crate) async fn changed(&mut self) {
        match &mut self.lock {
            Some(lock) => lock.changed().await,
            None => std::future::pending().await,
        }
    }
}
