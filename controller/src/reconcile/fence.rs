//! The right to write, as the database itself sees it: OVSDB's own lock (RFC 7047 §4.1.8), which every transaction asserts.
//!
//! The clock of a process that was stopped, or whose machine was, cannot be trusted to tell it in time that another one leads. The database
//! can: whoever takes over takes the lock, and what the former leader still sends is refused. Knows nothing of rows.

use ovsdb::{Claim, Connection, Lock, LockState};

/// One lock for all controllers of a server. Programs that do not ask for it, such as upstream's, are not kept out.
pub(crate) const LOCK: &str = "ovn_kubernetes_controller";

/// The lock on the connection that the copy of the database follows.
#[derive(Debug, Default)]
pub(super) struct Fence {
    lock: Option<Lock>,
    /// The database has said of a transaction that the lock is another's.
    refused: bool,
}

/// Whether this process may write, as far as the lock goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Right {
    Held,
    /// There is no answer yet.
    Asked,
    /// Not yet, or not now: why.
    Waits(String),
    /// Another process has taken it.
    Taken,
}

impl Fence {
    /// Asks for the lock, once over each connection.
    pub(super) fn ask(&mut self, connection: &Connection, claim: Claim) {
        if self.lock.as_ref().is_none_or(|lock| !lock.connection().is_same(connection)) {
            *self = Self { lock: Some(connection.lock(LOCK, claim)), refused: false };
        }
    }

    pub(super) fn right(&self) -> Right {
        match self.lock.as_ref().map(Lock::state) {
            Some(_) if self.refused => Right::Taken,
            Some(LockState::Held) => Right::Held,
            Some(LockState::Stolen) => Right::Taken,
            Some(LockState::Waits) => Right::Waits(format!("another process holds the database's lock {LOCK}")),
            Some(LockState::Refused(error)) => Right::Waits(format!("the database gives no lock {LOCK}: {error}")),
            Some(LockState::Asked) | None => Right::Asked,
        }
    }

    /// A transaction has failed because the lock is not held.
    pub(super) fn refused(&mut self) {
        self.refused = true;
    }

    /// Leaves it to the other process; the lock is asked for anew.
    pub(super) fn give_up(&mut self) {
        if let Some(lock) = std::mem::take(self).lock {
            lock.unlock();
        }
    }

    /// Waits until there is news; for ever without a lock that was asked for.
    pub(super) async fn changed(&mut self) {
        match &mut self.lock {
            Some(lock) => lock.changed().await,
            None => std::future::pending().await,
        }
    }
}
