//! A client that reconnects, and a replica that outlives each connection.
//!
//! A separate task connects, and reconnects with `Backoff`, one endpoint after the other.
//! [`Client`] sends transactions over the current connection. [`Updates`] owns a replica and brings
//! it up to date after each reconnection. Readers with replicas of their own share the connection
//! ([`Client::replicate`]).

mod backoff;
mod member;
mod updates;

use std::{future::Future, sync::Arc};

use backoff::Backoff;
use member::{Member, Seen};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
pub use updates::{Event, Updates};

use crate::{
    connection::{Connection, Options},
    endpoint::{Endpoint, Endpoints},
    error::{Closed, ConnectError},
    monitor::Monitor,
    outcome::Outcome,
    transaction::{NotConnected, TransactError, Transaction},
};

/// The sending half of a reconnecting client. Clones share the connection. It is closed when all
/// clones and all [`Updates`] are dropped.
#[derive(Debug, Clone)]
pub struct Client(watch::Receiver<State>);

/// Whether there is a connection.
#[derive(Debug, Clone)]
pub enum State {
    Connected(Connection),
    Disconnected(NotConnected),
}

impl Client {
    /// Starts to connect, and retries without end. Has to be called within a tokio runtime with I/O
    /// and time enabled.
    pub fn start(
        endpoints: Endpoints,
        database: &str,
        monitor: Monitor,
        options: Options,
    ) -> (Self, Updates) {
        let (sender, state) = watch::channel(State::Disconnected(NotConnected::Connecting));
        tokio::spawn(supervise(endpoints, database.to_owned(), options, sender));
        (Self(state.clone()), Updates::new(state, monitor))
    }

    /// Another replica over the same connection, for a reader that needs other rows or reads at its
    /// own pace. Readers do not delay each other: the updates of each wait in a queue of its own.
    pub fn replicate(&self, monitor: Monitor) -> Updates {
        Updates::new(self.state(), monitor)
    }

    /// Sends a transaction over the current connection. It is sent at the call, not when the future
    /// is first polled. It does not wait for a connection, and does not retry.
    ///
    /// # Errors
    /// [`NotConnected`](TransactError::NotConnected) if there is no connection at the call;
    /// otherwise those of [`Connection::transact`].
    pub fn transact(
        &self,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Outcome, TransactError>> + Send + use<> {
        let sent = match &*self.0.borrow() {
            State::Connected(connection) => Ok(connection.transact(transaction)),
            State::Disconnected(reason) => Err(TransactError::NotConnected(reason.clone())),
        };
        async move { sent?.await }
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.connection().is_some()
    }

    /// The current connection, if there is one: for its schema, or to start another monitor.
    pub fn connection(&self) -> Option<Connection> {
        match &*self.0.borrow() {
            State::Connected(connection) if !connection.is_closed() => Some(connection.clone()),
            State::Connected(_) | State::Disconnected(_) => None,
        }
    }

    /// Waits for a connection, without a deadline of its own.
    pub async fn connected(&self) -> Connection {
        next_connection(&mut self.0.clone()).await
    }

    /// The state, as a receiver that can wait for changes.
    pub fn state(&self) -> watch::Receiver<State> {
        self.0.clone()
    }
}

/// Waits for a connection that is not closed.
async fn next_connection(state: &mut watch::Receiver<State>) -> Connection {
    let usable =
        |state: &State| matches!(state, State::Connected(connection) if !connection.is_closed());
    // The connection is cloned and the guard dropped before the next await: the guard is not
    // `Send`.
    let connection = match state.wait_for(usable).await.as_deref() {
        Ok(State::Connected(connection)) => Some(connection.clone()),
        // The supervising task ended with its runtime.
        Ok(State::Disconnected(_)) | Err(_) => None,
    };
    match connection {
        Some(connection) => connection,
        None => std::future::pending().await,
    }
}

/// Keeps a connection until all [`Client`]s and [`Updates`] are dropped.
async fn supervise(
    endpoints: Endpoints,
    database: String,
    options: Options,
    state: watch::Sender<State>,
) {
    tokio::select! {
        () = state.closed() => {}
        () = connect_for_ever(&endpoints, &database, &options, &state) => {}
    }
}

/// Opens a connection and, with [`Options::leader_only`], checks that the server is the leader.
async fn open(
    endpoint: &Endpoint,
    database: &str,
    options: &Options,
    seen: &mut Seen,
) -> Result<(Connection, Member), ConnectError> {
    let connection = Connection::open(endpoint, database, options.clone()).await?;
    let member = if options.leader_only {
        Member::admit(&connection, seen).await
    } else {
        Ok(Member::any())
    };
    match member {
        Ok(member) => Ok((connection, member)),
        Err(fault) => Err(ConnectError { endpoint: endpoint.clone(), fault }),
    }
}

/// Waits until a connection is closed. Closes it if its server is no longer fit.
async fn follow(connection: &Connection, member: Member, seen: &mut Seen) -> Closed {
    tokio::select! {
        closed = connection.closed() => closed,
        unfit = member.unfit(connection.database(), seen) => {
            connection.close(unfit.into());
            connection.closed().await
        }
    }
}

async fn connect_for_ever(
    endpoints: &Endpoints,
    database: &str,
    options: &Options,
    state: &watch::Sender<State>,
) {
    let mut backoff = Backoff::new(options.backoff_min, options.backoff_max);
    // Outlives the connections, so that a member with older contents than those seen before is
    // noticed.
    let mut seen = Seen::default();
    loop {
        // Without a pause between endpoints: the next member of a cluster serves at once when one
        // is down.
        for endpoint in endpoints.iter() {
            let reason = match open(endpoint, database, options, &mut seen).await {
                Ok((connection, member)) => {
                    tracing::info!(%endpoint, database, "connected");
                    let begun = Instant::now();
                    state.send_replace(State::Connected(connection.clone()));
                    let closed = follow(&connection, member, &mut seen).await;
                    tracing::warn!(%endpoint, database, reason = %closed, "disconnected");
                    backoff.served(begun.elapsed());
                    NotConnected::Lost(closed)
                }
                Err(error) => {
                    tracing::debug!(%endpoint, database, error = %error.fault, "no connection");
                    NotConnected::Unreachable(Arc::new(error))
                }
            };
            state.send_replace(State::Disconnected(reason));
        }
        sleep(backoff.pause()).await;
    }
}
