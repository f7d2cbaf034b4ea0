//! One connection to one database: pipelined requests, and monitors.
//!
//! A task, the `driver`, owns the stream; a [`Connection`] is a handle to it. Requests are queued
//! and sent in the order of the calls. The next request can be sent before the answer to the last
//! one is awaited.

mod driver;
mod lock;
mod options;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use driver::{Command, Driver, Reply, UpdateSender};
pub(crate) use driver::{Lost, Overflow, UpdateReceiver};
pub use lock::{Claim, Lock, LockState};
pub use options::Options;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    endpoint::Endpoint,
    error::{Closed, ConnectError, ConnectFault},
    message,
    outcome::Outcome,
    schema::Schema,
    stream::Stream,
    transaction::{NotConnected, TransactError, Transaction},
    value::Uuid,
};

/// A connection whose schema is known. Clones share it. It is closed when the last clone and the
/// last monitor are dropped, or when it breaks. It does not reconnect; [`Client`](crate::Client)
/// does.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

/// Leaves out the schema, which has hundreds of columns.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { endpoint, database, .. } = &*self.0;
        f.debug_struct("Connection")
            .field("endpoint", endpoint)
            .field("database", database)
            .finish_non_exhaustive()
    }
}

struct Inner {
    requests: Arc<Requests>,
    endpoint: Endpoint,
    database: String,
    schema: Schema,
    options: Options,
}

/// The sender of requests to the driver.
#[derive(Debug)]
struct Requests {
    commands: mpsc::UnboundedSender<Command>,
    /// The reason why the connection was closed. Set once, by the driver or by
    /// [`Connection::close`].
    closed: Arc<watch::Sender<Option<Closed>>>,
    next_id: AtomicU64,
}

impl Connection {
    /// Connects, and reads the schema of the database. Needs a tokio runtime with I/O and time
    /// enabled, of either flavour.
    ///
    /// # Errors
    /// The endpoint cannot be reached in time, TLS fails, or the server has no such database.
    pub async fn open(
        endpoint: &Endpoint,
        database: &str,
        options: Options,
    ) -> Result<Self, ConnectError> {
        let patience = options.connect_timeout;
        let opened =
            tokio::time::timeout(patience, Self::try_open(endpoint, database, options)).await;
        opened
            .unwrap_or(Err(ConnectFault::TimedOut(patience)))
            .map_err(|fault| ConnectError { endpoint: endpoint.clone(), fault })
    }

    /// Connects to a database whose schema the caller knows, and does not read it: for short-lived
    /// programs that send few requests.
    ///
    /// The schema only has to name what is monitored. It is not compared with the server's: a
    /// mismatch is an error of the first request.
    ///
    /// # Errors
    /// The endpoint cannot be reached in time, or TLS fails.
    pub async fn open_known(
        endpoint: &Endpoint,
        schema: Schema,
        options: Options,
    ) -> Result<Self, ConnectError> {
        let connected =
            tokio::time::timeout(options.connect_timeout, Requests::connect(endpoint, &options))
                .await;
        let requests = connected
            .unwrap_or(Err(ConnectFault::TimedOut(options.connect_timeout)))
            .map(Arc::new)
            .map_err(|fault| ConnectError { endpoint: endpoint.clone(), fault })?;
        let database = schema.name.clone();
        Ok(Self(Arc::new(Inner {
            requests,
            endpoint: endpoint.clone(),
            database,
            schema,
            options,
        })))
    }

    async fn try_open(
        endpoint: &Endpoint,
        database: &str,
        options: Options,
    ) -> Result<Self, ConnectFault> {
        let requests = Requests::connect(endpoint, &options).await?;
        Self::read_schema(requests.into(), endpoint.clone(), database, options).await
    }

    /// Another database of the same server, over the same stream.
    pub(crate) async fn beside(&self, database: &str) -> Result<Self, ConnectFault> {
        let Inner { requests, endpoint, options, .. } = &*self.0;
        Self::read_schema(Arc::clone(requests), endpoint.clone(), database, options.clone()).await
    }

    async fn read_schema(
        requests: Arc<Requests>,
        endpoint: Endpoint,
        database: &str,
        options: Options,
    ) -> Result<Self, ConnectFault> {
        let request = requests
            .send("get_schema", (database,))
            .map_err(|error| ConnectFault::Schema(error.to_string()))?;
        let answer = requests.answer(request.reply).await.map_err(|lost| lost.reason)?;
        let answer = answer
            .map_err(|error| ConnectFault::Refused { database: database.to_owned(), error })?;
        let schema = serde_json::from_str(answer.as_str())
            .map_err(|error| ConnectFault::Schema(error.to_string()))?;
        Ok(Self(Arc::new(Inner {
            requests,
            endpoint,
            database: database.to_owned(),
            schema,
            options,
        })))
    }

    /// The tables and columns of the database, as read when the connection was opened.
    pub fn schema(&self) -> &Schema {
        &self.0.schema
    }

    /// The server's endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// The name of the database.
    pub fn database(&self) -> &str {
        &self.0.database
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    /// Sends a transaction at the call, not when the future is first polled. Dropping the future
    /// discards the answer, but does not cancel the transaction.
    ///
    /// The updates that the transaction causes arrive before its answer: the server sends them
    /// first (ovsdb-server(7) §4.1.5).
    ///
    /// # Errors
    /// The server refused an operation or the transaction, or the connection was lost. The
    /// transaction may have been committed only after
    /// [`OutcomeUnknown`](TransactError::OutcomeUnknown) and [`Protocol`](TransactError::Protocol).
    pub fn transact(
        &self,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Outcome, TransactError>> + Send + use<> {
        let sent = self.0.requests.send(
            "transact",
            TransactParams { database: &self.0.database, transaction: &transaction },
        );
        let connection = self.clone();
        async move {
            let request = sent.map_err(|error| TransactError::Invalid(error.to_string()))?;
            let (id, labels) = transaction.into_labels();
            match connection.0.requests.answer(request.reply).await {
                Ok(Ok(answer)) => Outcome::decode(answer.as_str(), id, &labels),
                Ok(Err(error)) => Err(TransactError::Refused(error)),
                Err(Lost { reason, sent: true }) => Err(TransactError::OutcomeUnknown(reason)),
                Err(Lost { reason, sent: false }) => {
                    Err(TransactError::NotConnected(NotConnected::Lost(reason)))
                }
            }
        }
    }

    /// Waits until the connection is closed, and returns the reason.
    pub async fn closed(&self) -> Closed {
        self.0.requests.closed().await
    }

    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.0.requests.closed.borrow().is_some() || self.0.requests.commands.is_closed()
    }

    /// Whether both are clones of one connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Closes the connection because of what the server sent. The reason is set at once, the driver
    /// closes the stream soon after.
    pub(crate) fn close(&self, reason: Closed) {
        driver::set_closed(&self.0.requests.closed, &reason);
        self.0.requests.command(Command::Close(reason));
    }

    /// Sends one of the monitor requests: `[<db-name>, <id>, <requests>]`, followed by the last
    /// known transaction if the method takes it.
    pub(crate) fn send_monitor(
        &self,
        method: &str,
        requests: &impl Serialize,
        since: Option<Uuid>,
        overflow: Overflow,
    ) -> serde_json::Result<MonitorRequest> {
        let (sender, updates) = driver::updates(self.0.options.backlog, overflow);
        let Inner { requests: to, database, .. } = &*self.0;
        // The monitor's id is that of its request, which the driver finds its receiver by.
        let id = to.id();
        let request = match since {
            Some(since) => to.send_as(id, method, (database, id, requests, since), Some(sender)),
            None => to.send_as(id, method, (database, id, requests), Some(sender)),
        };
        Ok(MonitorRequest { request: request?, updates })
    }

    pub(crate) async fn answer(&self, request: SentRequest) -> Result<Reply, Lost> {
        self.0.requests.answer(request.reply).await
    }
}

/// A request that was sent.
pub(crate) struct SentRequest {
    reply: oneshot::Receiver<Result<Reply, Lost>>,
}

/// A monitor request that was sent, and the receiver of its updates.
pub(crate) struct MonitorRequest {
    pub(crate) request: SentRequest,
    pub(crate) updates: UpdateReceiver,
}

impl Requests {
    async fn connect(endpoint: &Endpoint, options: &Options) -> Result<Self, ConnectFault> {
        let stream = Stream::connect(endpoint, options.ssl.as_ref()).await?;
        let (commands, receiver) = mpsc::unbounded_channel();
        let closed = Arc::new(watch::channel(None).0);
        tokio::spawn(Driver::new(options.clone(), receiver, Arc::clone(&closed)).run(stream));
        Ok(Self { commands, closed, next_id: AtomicU64::new(1) })
    }

    fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, method: &str, params: impl Serialize) -> serde_json::Result<SentRequest> {
        self.send_as(self.id(), method, params, None)
    }

    fn send_as(
        &self,
        id: u64,
        method: &str,
        params: impl Serialize,
        updates: Option<UpdateSender>,
    ) -> serde_json::Result<SentRequest> {
        let text = message::request(id, method, params)?;
        let (sender, reply) = oneshot::channel();
        self.command(Command::Request { id, text, reply: sender, updates });
        Ok(SentRequest { reply })
    }

    /// Sends a command to the driver. If the driver has ended, the command is dropped, and the
    /// sender of its reply with it, so that its future resolves.
    fn command(&self, command: Command) {
        drop(self.commands.send(command));
    }

    async fn answer(&self, reply: oneshot::Receiver<Result<Reply, Lost>>) -> Result<Reply, Lost> {
        match reply.await {
            Ok(answer) => answer,
            // The driver answers every request that it took. No answer means that it ended before
            // it took this one, or that it was dropped with its runtime. In the second case it set
            // no reason, and the request may have been sent.
            Err(_) => match self.closed.borrow().clone() {
                Some(reason) => Err(Lost { reason, sent: false }),
                None => Err(Lost { reason: Closed::Unused, sent: true }),
            },
        }
    }

    async fn closed(&self) -> Closed {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            biased;
            Ok(reason) = closed.wait_for(Option::is_some) => reason.clone().unwrap_or(Closed::Unused),
            // The driver was dropped with its runtime, and set no reason.
            () = self.commands.closed() => Closed::Unused,
        }
    }
}

struct TransactParams<'a> {
    database: &'a str,
    transaction: &'a Transaction,
}

impl Serialize for TransactParams<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let operations = self.transaction.operations();
        let mut seq = serializer.serialize_seq(Some(operations.len() + 1))?;
        seq.serialize_element(self.database)?;
        for operation in operations {
            seq.serialize_element(operation)?;
        }
        seq.end()
    }
}
