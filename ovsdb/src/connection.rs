//! One connection to one database: pipelined requests, and monitors.
//!
//! A task of its own, the `driver`, owns the stream; a [`Connection`] is a handle to it. Requests are queued, and then sent
//! together, in the order of the calls; a call does not have to be awaited for the next one to go out.

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
pub(crate) use driver::{Lost, UpdateReceiver};
pub use lock::{Claim, Lock, LockState};
pub use options::Options;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    closed::{Closed, ConnectError, ConnectFault},
    endpoint::Endpoint,
    message,
    monitor::{Monitor, MonitorError},
    monitored::Monitored,
    outcome::Outcome,
    schema::Schema,
    stream::Stream,
    transaction::{NotConnected, TransactError, Transaction},
    value::Uuid,
};

/// A connection whose schema is known. Clones share it; it ends when the last of them, and the last monitor, is dropped, or when
/// it breaks. There is no reconnecting here: that is [`Client`](crate::Client)'s part.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

/// Without the schema, which has hundreds of columns.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { endpoint, database, .. } = &*self.0;
        f.debug_struct("Connection").field("endpoint", endpoint).field("database", database).finish_non_exhaustive()
    }
}

struct Inner {
    requests: Arc<Requests>,
    endpoint: Endpoint,
    database: String,
    schema: Schema,
    options: Options,
}

/// The way to the driver.
#[derive(Debug)]
struct Requests {
    commands: mpsc::UnboundedSender<Command>,
    /// Set once, by whichever end gives up first.
    closed: Arc<watch::Sender<Option<Closed>>>,
    next_id: AtomicU64,
}

impl Connection {
    /// Connects and reads the schema of the database. Needs a tokio runtime with I/O and time enabled, of either flavour.
    ///
    /// # Errors
    /// The endpoint cannot be reached in time, TLS fails, or the server has no such database.
    pub async fn open(endpoint: &Endpoint, database: &str, options: Options) -> Result<Self, ConnectError> {
        let patience = options.connect_timeout;
        let opened = tokio::time::timeout(patience, Self::try_open(endpoint, database, options)).await;
        opened.unwrap_or(Err(ConnectFault::TimedOut(patience))).map_err(|fault| ConnectError { endpoint: endpoint.clone(), fault })
    }

    /// Connects to the database of a schema that the caller knows, and does not read it: for programs that ask little and end soon.
    ///
    /// The schema need not name more than what is monitored. If the database is another one, the first request says so.
    ///
    /// # Errors
    /// The endpoint cannot be reached in time, or TLS fails.
    pub async fn open_known(endpoint: &Endpoint, schema: Schema, options: Options) -> Result<Self, ConnectError> {
        let connected = tokio::time::timeout(options.connect_timeout, Requests::connect(endpoint, &options)).await;
        let requests = connected
            .unwrap_or(Err(ConnectFault::TimedOut(options.connect_timeout)))
            .map(Arc::new)
            .map_err(|fault| ConnectError { endpoint: endpoint.clone(), fault })?;
        let database = schema.name.clone();
        Ok(Self(Arc::new(Inner { requests, endpoint: endpoint.clone(), database, schema, options })))
    }

    async fn try_open(endpoint: &Endpoint, database: &str, options: Options) -> Result<Self, ConnectFault> {
        let requests = Requests::connect(endpoint, &options).await?;
        Self::read_schema(requests.into(), endpoint.clone(), database, options).await
    }

    /// Another database of the same server, over the same stream.
    pub(crate) async fn beside(&self, database: &str) -> Result<Self, ConnectFault> {
        let Inner { requests, endpoint, options, .. } = &*self.0;
        Self::read_schema(Arc::clone(requests), endpoint.clone(), database, options.clone()).await
    }

    async fn read_schema(requests: Arc<Requests>, endpoint: Endpoint, database: &str, options: Options) -> Result<Self, ConnectFault> {
        let request = requests.send("get_schema", (database,)).map_err(|error| ConnectFault::Schema(error.to_string()))?;
        let answer = requests.answer(request.reply).await.map_err(|lost| lost.reason)?;
        let answer = answer.map_err(|error| ConnectFault::Refused { database: database.to_owned(), error })?;
        let schema = serde_json::from_str(answer.as_str()).map_err(|error| ConnectFault::Schema(error.to_string()))?;
        Ok(Self(Arc::new(Inner { requests, endpoint, database: database.to_owned(), schema, options })))
    }

    /// What the database has; read when the connection was opened.
    pub fn schema(&self) -> &Schema {
        &self.0.schema
    }

    /// Where the connection leads.
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

    /// Sends a transaction, at the call and not only when awaited. Dropping the future gives up the answer, not the transaction.
    ///
    /// When the answer is there, the updates that the transaction caused are there already: the server sends them first
    /// (ovsdb-server(7) §4.1.5).
    ///
    /// # Errors
    /// The server refused an operation or the whole, or the connection was lost. Only after
    /// [`OutcomeUnknown`](TransactError::OutcomeUnknown) and [`Protocol`](TransactError::Protocol) the transaction may have happened.
    pub fn transact(&self, transaction: Transaction) -> impl Future<Output = Result<Outcome, TransactError>> + Send + use<> {
        let sent = self.0.requests.send("transact", TransactParams { database: &self.0.database, transaction: &transaction });
        let connection = self.clone();
        async move {
            let request = sent.map_err(|error| TransactError::Invalid(error.to_string()))?;
            let (id, labels) = transaction.into_labels();
            match connection.0.requests.answer(request.reply).await {
                Ok(Ok(answer)) => Outcome::decode(answer.as_str(), id, &labels),
                Ok(Err(error)) => Err(TransactError::Refused(error)),
                Err(Lost { reason, sent: true }) => Err(TransactError::OutcomeUnknown(reason)),
                Err(Lost { reason, sent: false }) => Err(TransactError::NotConnected(NotConnected::Lost(reason))),
            }
        }
    }

    /// Starts to replicate tables, at the call and not only when awaited; ready once their present rows are there.
    ///
    /// # Errors
    /// The monitor does not fit the schema, the server refused it, or the connection was lost before the rows were there.
    pub fn monitor(&self, monitor: Monitor) -> impl Future<Output = Result<Monitored, MonitorError>> + Send + use<> {
        Monitored::start(self, monitor)
    }

    /// Why the connection is over, once it is.
    pub async fn closed(&self) -> Closed {
        self.0.requests.closed().await
    }

    /// Whether the connection is over.
    pub fn is_closed(&self) -> bool {
        self.0.requests.closed.borrow().is_some() || self.0.requests.commands.is_closed()
    }

    /// Whether both are handles of one connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends the connection because of something that came over it. From now on it counts as closed, and soon it is.
    pub(crate) fn close(&self, reason: Closed) {
        driver::set_closed(&self.0.requests.closed, &reason);
        self.0.requests.command(Command::Close(reason));
    }

    /// Sends one of the monitor requests: `[<db-name>, <id>, <requests>]`, and the last known transaction where the method takes it.
    pub(crate) fn send_monitor(&self, method: &str, requests: &impl Serialize, since: Option<Uuid>) -> serde_json::Result<MonitorRequest> {
        let (sender, updates) = driver::updates(self.0.options.backlog);
        let Inner { requests: to, database, .. } = &*self.0;
        let id = to.id();
        let request = match since {
            Some(since) => to.send_as(id, method, (database, id, requests, since), Some(sender)),
            None => to.send_as(id, method, (database, id, requests), Some(sender)),
        };
        Ok(MonitorRequest { request: request?, updates })
    }

    pub(crate) async fn answer(&self, request: Request) -> Result<Reply, Lost> {
        self.0.requests.answer(request.reply).await
    }
}

/// A request that was sent.
pub(crate) struct Request {
    reply: oneshot::Receiver<Result<Reply, Lost>>,
}

/// A monitor request that was sent, and where its updates arrive.
pub(crate) struct MonitorRequest {
    pub(crate) request: Request,
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

    fn send(&self, method: &str, params: impl Serialize) -> serde_json::Result<Request> {
        self.send_as(self.id(), method, params, None)
    }

    fn send_as(&self, id: u64, method: &str, params: impl Serialize, updates: Option<UpdateSender>) -> serde_json::Result<Request> {
        let text = message::request(id, method, params)?;
        let (sender, reply) = oneshot::channel();
        self.command(Command::Request { id, text, reply: sender, updates });
        Ok(Request { reply })
    }

    /// Where the driver has ended, the command is dropped, and with it the sender of its reply.
    fn command(&self, command: Command) {
        drop(self.commands.send(command));
    }

    async fn answer(&self, reply: oneshot::Receiver<Result<Reply, Lost>>) -> Result<Reply, Lost> {
        match reply.await {
            Ok(answer) => answer,
            // The driver answers every request that it took, unless it is dropped with its runtime, and then it has not said why.
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
            // The driver was dropped with its runtime, and had no time to say why.
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
