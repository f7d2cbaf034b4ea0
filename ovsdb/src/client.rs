//! A connection that comes back, and a replica that outlives it.
//!
//! A task of its own connects, and reconnects with `Backoff`, one endpoint after the other. [`Client`] sends
//! transactions over whatever connection there is; [`Updates`] owns the replica and brings it up to date on each new one.

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
    closed::{Closed, ConnectError},
    connection::{Connection, Options},
    endpoint::{Endpoint, Endpoints},
    monitor::Monitor,
    outcome::Outcome,
    transaction::{NotConnected, TransactError, Transaction},
};

/// The sending half of a lasting connection. Clones share it; it is closed when all of them and the [`Updates`] are dropped.
#[derive(Debug, Clone)]
pub struct Client(watch::Receiver<State>);

/// Whether there is a connection.
#[derive(Debug, Clone)]
pub enum State {
    Connected(Connection),
    Disconnected(NotConnected),
}

impl Client {
    /// Begins to connect, for ever. To be called within a tokio runtime with I/O and time enabled.
    pub fn start(endpoints: Endpoints, database: &str, monitor: Monitor, options: Options) -> (Self, Updates) {
        let (sender, state) = watch::channel(State::Disconnected(NotConnected::Connecting));
        tokio::spawn(supervise(endpoints, database.to_owned(), options, sender));
        (Self(state.clone()), Updates::new(state, monitor))
    }

    /// Sends a transaction over the present connection, at the call; there is no waiting for a connection and no second try.
    ///
    /// # Errors
    /// [`NotConnected`](TransactError::NotConnected) where there is no connection at the call; else those of [`Connection::transact`].
    pub fn transact(&self, transaction: Transaction) -> impl Future<Output = Result<Outcome, TransactError>> + Send + use<> {
        let sent = match &*self.0.borrow() {
            State::Connected(connection) => Ok(connection.transact(transaction)),
            State::Disconnected(reason) => Err(TransactError::NotConnected(reason.clone())),
        };
        async move { sent?.await }
    }

    /// Whether a transaction could be sent now.
    pub fn is_connected(&self) -> bool {
        self.connection().is_some()
    }

    /// The present connection, for its schema or for monitors of its own.
    pub fn connection(&self) -> Option<Connection> {
        match &*self.0.borrow() {
            State::Connected(connection) if !connection.is_closed() => Some(connection.clone()),
            State::Connected(_) | State::Disconnected(_) => None,
        }
    }

    /// Waits for a connection. The caller's deadline, if it has one, is for the caller to keep.
    pub async fn connected(&self) -> Connection {
        next_connection(&mut self.0.clone()).await
    }

    /// The state, and a way to be woken when it changes.
    pub fn state(&self) -> watch::Receiver<State> {
        self.0.clone()
    }
}

/// The first connection there is that has not ended.
async fn next_connection(state: &mut watch::Receiver<State>) -> Connection {
    let usable = |state: &State| matches!(state, State::Connected(connection) if !connection.is_closed());
    // The state is locked while it is looked at, and no longer: who waits here may be moved to another thread.
    let connection = match state.wait_for(usable).await.as_deref() {
        Ok(State::Connected(connection)) => Some(connection.clone()),
        // The task that connects ended with its runtime.
        Ok(State::Disconnected(_)) | Err(_) => None,
    };
    match connection {
        Some(connection) => connection,
        None => std::future::pending().await,
    }
}

/// Keeps a connection, until nobody is left to use it.
async fn supervise(endpoints: Endpoints, database: String, options: Options, state: watch::Sender<State>) {
    tokio::select! {
        () = state.closed() => {}
        () = connect_for_ever(&endpoints, &database, &options, &state) => {}
    }
}

/// A connection that is good for what the client wants.
async fn open(endpoint: &Endpoint, database: &str, options: &Options, seen: &mut Seen) -> Result<(Connection, Member), ConnectError> {
    let connection = Connection::open(endpoint, database, options.clone()).await?;
    let member = if options.leader_only { Member::admit(&connection, seen).await } else { Ok(Member::any()) };
    match member {
        Ok(member) => Ok((connection, member)),
        Err(fault) => Err(ConnectError { endpoint: endpoint.clone(), fault }),
    }
}

/// Waits for the end of a connection, and ends it if its server is no longer good.
async fn follow(connection: &Connection, member: Member, seen: &mut Seen) -> Closed {
    tokio::select! {
        closed = connection.closed() => closed,
        unfit = member.unfit(connection.database(), seen) => {
            connection.close(unfit.into());
            connection.closed().await
        }
    }
}

async fn connect_for_ever(endpoints: &Endpoints, database: &str, options: &Options, state: &watch::Sender<State>) {
    let mut backoff = Backoff::new(options.backoff_min, options.backoff_max);
    let mut seen = Seen::default();
    loop {
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
