//! Locks of a server (RFC 7047 §4.1.8 to §4.1.10): names that one connection holds at a time. They
//! are advisory: a lock guards only transactions with
//! [`Transaction::assert`](crate::Transaction::assert), which fail unless their connection holds
//! it.
//!
//! ```text
//! lock, steal ─▶ Asked ─answer─▶ Held ◀─`locked`─ Waits
//!                                  └─`stolen`──▶ Stolen, until it is released
//! ```
//!
//! A lock ends with its connection. It belongs to one server: each member of a cluster has its own
//! locks.

use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::watch;

use super::{Connection, driver::Command};
use crate::{error::OvsdbError, message};

/// How a lock is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Wait until the connections that requested the lock before have released it.
    Queue,
    /// Take the lock at once. The server notifies the connection that held it.
    Steal,
}

/// The state of a lock, as far as this connection knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockState {
    /// The request is not answered yet.
    Asked,
    /// Another connection holds the lock; this one is in the queue.
    Waits,
    /// This connection holds the lock.
    Held,
    /// Another connection stole the lock. This one is not in the queue; it has to release the lock
    /// and request it again (RFC 7047 §4.1.10).
    Stolen,
    /// The server refused the request.
    Refused(Arc<OvsdbError>),
}

/// A lock that a connection holds or waits for. Dropping this does not release the lock;
/// [`unlock`](Self::unlock) does.
#[derive(Debug, Clone)]
pub struct Lock {
    name: String,
    connection: Connection,
    state: watch::Receiver<LockState>,
}

/// The answer to `lock` and `steal`.
#[derive(Debug, Deserialize)]
pub(super) struct LockAnswer {
    pub(super) locked: bool,
}

impl Connection {
    /// Requests the lock `name`. The request is sent at the call. `name` is an `<id>` of RFC 7047:
    /// letters, digits and underscores.
    ///
    /// A connection can request a lock again only after it has released it; the server refuses a
    /// second request.
    pub fn lock(&self, name: &str, claim: Claim) -> Lock {
        let (sender, state) = watch::channel(LockState::Asked);
        let id = self.0.requests.id();
        let method = match claim {
            Claim::Queue => "lock",
            Claim::Steal => "steal",
        };
        // Cannot fail: a string is the only parameter.
        let text = message::request(id, method, (name,)).unwrap_or_default();
        self.0.requests.command(Command::Lock { id, text, name: name.to_owned(), state: sender });
        Lock { name: name.to_owned(), connection: self.clone(), state }
    }
}

impl Lock {
    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connection that requested the lock.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The last state that the server reported. It does not change when the connection is closed,
    /// although no lock is held then; see [`is_held`](Self::is_held).
    pub fn state(&self) -> LockState {
        self.state.borrow().clone()
    }

    /// Whether the connection is open and holds the lock, as far as it knows.
    pub fn is_held(&self) -> bool {
        *self.state.borrow() == LockState::Held && !self.connection.is_closed()
    }

    /// Waits until the state has changed since the last call; for ever once the connection is
    /// closed. Cancellation-safe.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Releases the lock, or leaves the queue. The request is sent at the call.
    pub fn unlock(self) {
        let Self { name, connection, state: _ } = self;
        connection.0.requests.command(Command::Unlock { name });
    }
}
