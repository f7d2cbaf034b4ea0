//! Why a connection was closed, and why one could not be opened.

use std::{io, sync::Arc, time::Duration};

use super::{MonitorError, OvsdbError, SslError};
use crate::{endpoint::Endpoint, frame::FrameError};

/// Why a connection was closed. Each pending call on the connection gets a copy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Closed {
    #[error("the server closed the connection")]
    ByServer,
    #[error("the connection broke")]
    Io(#[source] Arc<io::Error>),
    /// Mostly with TLS 1.3, where a server verifies the client's certificate after the client's
    /// handshake is complete.
    #[error(transparent)]
    Ssl(Arc<SslError>),
    #[error("the server has been silent for {} s", .0.as_secs_f32())]
    Silent(Duration),
    #[error("the server sent an invalid message")]
    Frame(#[from] FrameError),
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
    #[error("the server cancelled a monitor, as it does when its database is removed or converted")]
    MonitorCanceled,
    /// The reader of a monitor did not keep up.
    #[error("{0} bytes of updates have not been read")]
    Backlog(usize),
    /// Only with [`Options::leader_only`](crate::Options::leader_only): this server is not the
    /// leader, or no longer.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// Only of a [`Client`](crate::Client): the database cannot be monitored as requested.
    #[error("the database cannot be monitored")]
    Monitor(#[source] Arc<MonitorError>),
    /// The last handle was dropped, or the connection's task ended with its runtime.
    #[error("the connection is no longer used")]
    Unused,
}

/// Why a client leaves a member of a clustered database for another
/// ([`Options::leader_only`](crate::Options::leader_only)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("the server does not serve the database any more")]
    Absent,
    #[error("the server is not in touch with the majority of its cluster")]
    Disconnected,
    #[error("the server is not the leader of its cluster")]
    Follower,
    #[error(
        "the server is behind its cluster: at entry {index} of the log, of which entry {seen} was seen"
    )]
    Stale { index: i64, seen: i64 },
}

/// Why a connection to an endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{endpoint}")]
pub struct ConnectError {
    /// The endpoint that was tried.
    pub endpoint: Endpoint,
    /// What went wrong.
    #[source]
    pub fault: ConnectFault,
}

/// What went wrong at an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("no answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    #[error(transparent)]
    Ssl(#[from] SslError),
    #[error(transparent)]
    Closed(#[from] Closed),
    /// Mostly [`UnknownDatabase`](crate::ErrorKind::UnknownDatabase).
    #[error("the server has no schema for the database {database:?}")]
    Refused {
        database: String,
        #[source]
        error: OvsdbError,
    },
    #[error("the schema of the database makes no sense: {0}")]
    Schema(String),
}
