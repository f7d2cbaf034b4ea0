//! Which member of a clustered database is good to talk to: the leader, and not one that has fallen behind.
//!
//! Follows the table `Database` of the database `_Server`, which every server keeps about itself (ovsdb-server(5)). Knows nothing of
//! what the database holds.

use tokio::time::timeout;

use crate::{
    closed::{Closed, ConnectFault, Unfit},
    connection::Connection,
    error::ErrorKind,
    monitor::{Monitor, MonitorError},
    monitored::Monitored,
    transaction::Where,
    value::Uuid,
};

const SERVER: &str = "_Server";

crate::table! {
    /// What a server says of a database of its own.
    struct Served in "Database" {
        name: String,
        /// `standalone`, `clustered` or `relay`.
        model: String,
        /// Whether the member is in touch with a majority, or the relay with its source.
        connected: bool,
        leader: bool,
        /// The cluster.
        cid: Option<Uuid>,
        /// The last entry of the cluster's log that the member has.
        index: Option<i64>,
    }
}

/// What a client has seen of its cluster, on whichever connection.
#[derive(Debug, Default)]
pub(super) struct Seen {
    cluster: Option<Uuid>,
    index: i64,
}

/// A server that was found good, and what it goes on to say of itself.
#[derive(Debug)]
pub(super) struct Member(Option<Monitored>);

impl Member {
    /// A server of which nothing is asked.
    pub(super) fn any() -> Self {
        Self(None)
    }

    /// Asks a server, over the connection there is.
    pub(super) async fn admit(connection: &Connection, seen: &mut Seen) -> Result<Self, ConnectFault> {
        let patience = connection.options().connect_timeout;
        timeout(patience, Self::ask(connection, seen)).await.unwrap_or(Err(ConnectFault::TimedOut(patience)))
    }

    async fn ask(connection: &Connection, seen: &mut Seen) -> Result<Self, ConnectFault> {
        let server = match connection.beside(SERVER).await {
            Ok(server) => server,
            // Before Open vSwitch 2.9, when there were no clusters.
            Err(ConnectFault::Refused { error, .. }) if error.kind == ErrorKind::UnknownDatabase => return Ok(Self::any()),
            Err(fault) => return Err(fault),
        };
        let monitored = match server.monitor(Monitor::new().table::<Served>(Where::all())).await {
            Ok(monitored) => monitored,
            Err(MonitorError::Closed(closed)) => return Err(closed.into()),
            Err(error) => return Err(Closed::Monitor(error.into()).into()),
        };
        seen.judge(&monitored, connection.database()).map_err(Closed::Unfit)?;
        Ok(Self(Some(monitored)))
    }

    /// Waits until the server is no longer good.
    pub(super) async fn unfit(self, database: &str, seen: &mut Seen) -> Unfit {
        // The end of the connection is for others to tell.
        if let Some(mut monitored) = self.0 {
            while monitored.changed().await.is_ok() {
                if let Err(unfit) = seen.judge(&monitored, database) {
                    return unfit;
                }
            }
        }
        std::future::pending().await
    }
}

impl Seen {
    fn judge(&mut self, monitored: &Monitored, database: &str) -> Result<(), Unfit> {
        let (_, served) = monitored.rows::<Served>().find(|(_, served)| served.name == database).ok_or(Unfit::Absent)?;
        match served.model.as_str() {
            "clustered" if !served.connected => Err(Unfit::Disconnected),
            "clustered" if !served.leader => Err(Unfit::Follower),
            "clustered" => self.advance(served.cid, served.index.unwrap_or_default()),
            "relay" if !served.connected => Err(Unfit::Disconnected),
            _ => Ok(()),
        }
    }

    /// Another cluster is another database, whose log begins anew: it has been set up again, and the one of before is no more.
    fn advance(&mut self, cluster: Option<Uuid>, index: i64) -> Result<(), Unfit> {
        if self.cluster != cluster {
            if let (Some(before), Some(now)) = (self.cluster, cluster) {
                tracing::warn!(%before, %now, "the cluster of the database is another one than before");
            }
            *self = Self { cluster, index };
        } else if index < self.index {
            return Err(Unfit::Stale { index, seen: self.index });
        }
        self.index = index;
        Ok(())
    }
}
