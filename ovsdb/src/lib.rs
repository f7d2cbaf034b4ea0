//! A client for the Open vSwitch Database Management Protocol (RFC 7047, and the extensions of
//! ovsdb-server(7)).
//!
//! It knows databases, tables and rows, but not what they mean to Open vSwitch, OVN or another
//! program.
//!
//! | part | what it is |
//! |---|---|
//! | [`Endpoint`], [`Endpoints`] | where servers listen |
//! | [`Connection`] | one connection: schema, transactions, monitors |
//! | [`Ssl`] | keys, certificates and authorities for `ssl:` endpoints |
//! | [`Client`], [`Updates`] | a client that reconnects, and a replica that outlives each connection |
//! | [`Transaction`], [`Outcome`], [`TransactError`] | operations, and their results or the error of one |
//! | [`Lock`], [`Claim`] | a server's lock, which one connection holds at a time, and how to request it |
//! | [`Monitor`], [`Monitored`], [`Changes`] | what to replicate, the typed rows, and how they changed |
//! | [`table!`], [`Table`], [`Field`], [`Pairs`] | rows as Rust structs |
//! | [`Columns`] | a row whose table is known at run time only |
//! | [`Datum`], [`Atom`] | untyped values |
//! | [`Schema`] | which tables and columns a database has |
//! | [`Framer`] | splits a stream of bytes into messages; public for fuzz targets |
//!
//! From the wire inwards: `stream` (bytes to and from an endpoint) → `frame` (messages) → `message`
//! (requests, answers, updates) → `connection` (hands them to their receivers) → `update` (decodes
//! straight into the rows) → `replica` (rows and changes).
//!
//! ```no_run
//! use ovsdb::{Connection, Monitor, Options, Row, Transaction, Where};
//!
//! ovsdb::table! {
//!     struct Bridge in "Bridge" {
//!         name: String,
//!         ports: Vec<ovsdb::Uuid>,
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = "unix:/var/run/openvswitch/db.sock".parse()?;
//! let connection = Connection::open(&endpoint, "Open_vSwitch", Options::default()).await?;
//!
//! let mut transaction = Transaction::new();
//! transaction.update("Open_vSwitch", Where::all(), Row::new().with("system_type", "example"));
//!
//! // Both are sent before the first is answered.
//! let monitored = connection.monitor(Monitor::new().table::<Bridge>(Where::all()));
//! let outcome = connection.transact(transaction);
//! let (mut monitored, _) = (monitored.await?, outcome.await?);
//!
//! loop {
//!     for (uuid, bridge) in monitored.rows::<Bridge>() {
//!         println!("{uuid} {}: {} ports", bridge.name, bridge.ports.len());
//!     }
//!     monitored.changed().await?;
//! }
//! # }
//! ```

mod client;
mod connection;
mod endpoint;
mod error;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod message;
mod monitor;
mod monitored;
mod outcome;
mod replica;
mod schema;
mod ssl;
mod stream;
mod table;
mod tcp;
mod transaction;
mod update;
mod value;

pub use client::{Client, Event, State, Updates};
pub use connection::{Claim, Connection, Lock, LockState, Options};
pub use endpoint::{Endpoint, EndpointError, Endpoints};
pub use error::{
    Closed, ConnectError, ConnectFault, ErrorKind, MonitorError, OvsdbError, SslError, SslFile,
    Unfit,
};
pub use frame::{FrameError, FrameLimits, Framer};
pub use monitor::Monitor;
pub use monitored::Monitored;
pub use outcome::{Outcome, SelectedRow};
pub use replica::{Change, ChangeKind, Changes, Replica};
pub use schema::{ColumnSchema, ColumnType, RefType, Schema, TableSchema};
pub use ssl::{Identity, MissingAuthority, Ssl};
pub use table::{Columns, Field, Pairs, Scalar, Table, Texts};
pub use transaction::{
    Condition, Function, Mutation, Mutator, NamedUuid, NotConnected, OperationIndex, Row,
    Selection, TransactError, Transaction, Until, Where,
};
pub use value::{Atom, AtomicType, Datum, Uuid, ValueError};
