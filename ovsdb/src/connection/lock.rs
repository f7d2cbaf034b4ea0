//! Locks of a server (RFC 7047 §4.1.8 to §4.1.10): a name that one connection at a time has. They protect nothing by themselves; a
//! transaction that begins with [`Transaction::assert`](crate::Transaction::assert) fails unless its connection has the lock.
//!
//! ```text
//! lock, steal ─▶ Asked ─answer─▶ Held ◀─`locked`─ Waits
//!                                  └─`stolen`──▶ Stolen, which lasts until it is given back
//! ```
//!
//! A lock ends with its connection, and belongs to one server: of a cluster's members, each has its own.

use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::watch;

use super::{Connection, driver::Command};
use crate::{error::OvsdbError, message};

/// How a lock is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// After those who have asked before.
    Queue,
    /// At once: the connection that has it is told that it was stolen.
    Steal,
}

/// Whose a lock is, as far as this connection was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockState {
    /// There is no answer yet.
    Asked,
    /// Another connection has it; this one is in the queue.
    Waits,
    /// This connection has it.
    Held,
    /// Another connection has taken it from this one, which will not have it again by waiting (RFC 7047 §4.1.10).
    Stolen,
    /// The server gives no locks of this name.
    Refused(Arc<OvsdbError>),
}

/// A lock that a connection has or waits for. Dropped, it stays with the connection: see [`unlock`](Self::unlock).
#[derive(Debug, Clone)]
pub struct Lock {
    name: String,
    connection: Connection,
    state: watch::Receiver<LockState>,
}

/// What a server answers to `lock` and `steal`.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) locked: bool,
}

impl Connection {
    /// Asks for the lock `name`, at the call. `name` is an `<id>` of RFC 7047: letters, digits and underscores.
    ///
    /// A connection asks for a lock once, until it has given it back; the server refuses a second request.
    pub fn lock(&self, name: &str, claim: Claim) -> Lock {
        let (sender, state) = watch::channel(LockState::Asked);
        let id = self.0.requests.id();
        let method = match claim {
            Claim::Queue => "lock",
            Claim::Steal => "steal",
        };
        // What has a name for its only parameter can be written.
        let text = message::request(id, method, (name,)).unwrap_or_default();
        self.0.requests.command(Command::Lock { id, text, name: name.to_owned(), state: sender });
        Lock { name: name.to_owned(), connection: self.clone(), state }
    }
}

impl Lock {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connection whose lock it is.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What the server has said last. Over a connection that is closed, no lock is held.
    pub fn state(&self) -> LockState {
        self.state.borrow().clone()
    }

    pub fn is_held(&self) -> bool {
        *self.state.borrow() == LockState::Held && !self.connection.is_closed()
    }

    /// Waits until the state is another than when it was last waited for; for ever once the connection is over. Cancellation-safe.
    pub async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Gives the lock back, or leaves the queue, at the call.
    pub fn unlock(self) {
        let Self { name, connection, state: _ } = self;
        connection.0.requests.command(Command::Unlock { name });
    }
}
