//! Whether a member of a clustered database is fit for a client that wants the leader: it leads, is
//! connected, and is not behind what the client has seen before.
//!
//! Monitors the table `Database` of the database `_Server`, in which every server describes itself
//! (ovsdb-server(5)). Does not look at the contents of the database itself.

use tokio::time::timeout;

use crate::{
    connection::Connection,
    error::{Closed, ConnectFault, ErrorKind, MonitorError, Unfit},
    monitor::Monitor,
    monitored::Monitored,
    transaction::Where,
    value::Uuid,
};

const SERVER: &str = "_Server";

crate::table! {
    /// A server's description of one of its databases.
    struct Served in "Database" {
        name: String,
        /// `standalone`, `clustered` or `relay`.
        model: String,
        /// Whether the member is connected to a majority of its cluster, or the relay to its
        /// source.
        connected: bool,
        leader: bool,
        /// The id of the cluster.
        cid: Option<Uuid>,
        /// The index of the last log entry that the member has.
        index: Option<i64>,
    }
}

/// The newest state of the cluster that a client has seen, over all its connections.
#[derive(Debug, Default)]
pub(super) struct Seen {
    cluster: Option<Uuid>,
    index: i64,
}

/// A server that was found fit, and the monitor of its self-description.
#[derive(Debug)]
pub(super) struct Member(Option<Monitored>);

impl Member {
    /// A server that is not checked.
    pub(super) fn any() -> Self {
        Self(None)
    }

    /// Checks a server over an open connection, within the connect timeout.
    pub(super) async fn admit(
        connection: &Connection,
        seen: &mut Seen,
    ) -> Result<Self, ConnectFault> {
        let patience = connection.options().connect_timeout;
        timeout(patience, Self::ask(connection, seen))
            .await
            .unwrap_or(Err(ConnectFault::TimedOut(patience)))
    }

    async fn ask(connection: &Connection, seen: &mut Seen) -> Result<Self, ConnectFault> {
        let server = match connection.beside(SERVER).await {
            Ok(server) => server,
            // Open vSwitch before 2.9 has no `_Server` database, and no clusters.
            Err(ConnectFault::Refused { error, .. })
                if error.kind == ErrorKind::UnknownDatabase =>
            {
                return Ok(Self::any());
            }
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

    /// Waits until the server is no longer fit.
    pub(super) async fn unfit(self, database: &str, seen: &mut Seen) -> Unfit {
        // When the connection closes, this waits for ever: the caller selects on the end of the
        // connection, too.
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
        let (_, served) = monitored
            .rows::<Served>()
            .find(|(_, served)| served.name == database)
            .ok_or(Unfit::Absent)?;
        match served.model.as_str() {
            "clustered" if !served.connected => Err(Unfit::Disconnected),
            "clustered" if !served.leader => Err(Unfit::Follower),
            "clustered" => self.advance(served.cid, served.index.unwrap_or_default()),
            "relay" if !served.connected => Err(Unfit::Disconnected),
            _ => Ok(()),
        }
    }

    /// Records the member's log index; an index lower than one seen before is stale. Another
    /// cluster id means that the database was set up again: its log starts anew, so indexes are not
    /// comparable.
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
