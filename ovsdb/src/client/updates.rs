//! The replica of a reconnecting client.

use std::{collections::VecDeque, fmt, pin::Pin, sync::Arc};

use tokio::sync::watch;

use super::{State, next_connection};
use crate::{
    connection::{Connection, Overflow},
    error::{Closed, MonitorError},
    monitor::{Monitor, MonitorTables, Started},
    monitored::Feed,
    replica::{Changes, Replica},
    table::Table,
    update::Applied,
    value::Uuid,
};

/// The receiving half of a reconnecting client: a replica and its changes. The rows change only in
/// [`next`](Self::next).
///
/// While there is no connection, the rows stay as they were last seen. Updates that are not read
/// pile up. Beyond [`Options::backlog`](crate::Options::backlog) the monitor is cancelled, and the
/// rows are requested again once those updates are read. Other readers of the connection are not
/// disturbed.
#[derive(Debug)]
pub struct Updates {
    state: watch::Receiver<State>,
    monitor: Monitor,
    replica: Replica,
    phase: Phase,
    events: VecDeque<Event>,
    /// What the replica is a copy of: the request, and the last transaction that it includes.
    /// `None` if that is unknown, and all rows have to be requested again.
    resume: Option<(MonitorTables, Uuid)>,
}

/// What happened to the connection or the rows.
#[derive(Debug)]
pub enum Event {
    /// The replica matches the database, after the first connection or a reconnection.
    Connected,
    /// The rows are no longer kept up to date. Also sent if a connection was made, but the tables
    /// could not be monitored, and if too many updates were not read ([`Closed::Backlog`]), in
    /// which case the connection stays.
    Disconnected(Closed),
    /// Rows changed; the replica already shows the new ones. The first `Changed` after
    /// [`Connected`](Self::Connected) has the differences from the rows before it: every row on the
    /// first connection, the missed changes on a later one.
    Changed(Changes),
}

enum Phase {
    Waiting,
    /// The monitor request was sent.
    Starting {
        connection: Connection,
        request: MonitorTables,
        started: Pin<Box<dyn Future<Output = Result<Started, MonitorError>> + Send + Sync>>,
    },
    Following {
        feed: Feed,
        request: MonitorTables,
    },
}

impl Updates {
    pub(super) fn new(state: watch::Receiver<State>, monitor: Monitor) -> Self {
        let replica = monitor.blank_replica();
        Self {
            state,
            monitor,
            replica,
            phase: Phase::Waiting,
            events: VecDeque::new(),
            resume: None,
        }
    }

    /// Waits for the next event. Events never end, because the client reconnects without end.
    /// Cancellation-safe.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            match &mut self.phase {
                Phase::Waiting => {
                    let connection = next_connection(&mut self.state).await;
                    self.start(connection);
                }
                Phase::Starting { started, .. } => {
                    let started = started.await;
                    self.load(started);
                }
                Phase::Following { feed, .. } => {
                    let params = feed.next().await;
                    match params {
                        Ok(params) => {
                            let applied = feed.apply(&mut self.replica, &params);
                            self.take(applied);
                        }
                        Err(closed) => self.disconnect(closed),
                    }
                }
            }
        }
    }

    /// The connection that keeps the rows up to date; `None` while no connection does. The changes
    /// of a transaction on this connection are queued for [`next`](Self::next) before its outcome
    /// is known.
    pub fn connection(&self) -> Option<&Connection> {
        match &self.phase {
            Phase::Following { feed, .. } => Some(feed.connection()),
            Phase::Waiting | Phase::Starting { .. } => None,
        }
    }

    /// The rows of a table, in no particular order; empty if the monitor does not include the
    /// table.
    pub fn rows<T: Table>(&self) -> impl Iterator<Item = (Uuid, &T)> {
        self.replica.rows()
    }

    /// One row, if it exists and its table is monitored.
    pub fn row<T: Table>(&self, uuid: Uuid) -> Option<&T> {
        self.replica.row(uuid)
    }

    /// All tables, for code that only reads.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    fn start(&mut self, connection: Connection) {
        match MonitorTables::new(&self.monitor, connection.schema(), &mut self.replica) {
            Ok(request) => {
                // Only with the same request: another schema has other columns, of which the
                // replica has no values.
                let since = self
                    .resume
                    .as_ref()
                    .filter(|(same, _)| *same == request)
                    .map(|(_, last)| *last);
                let started = Box::pin(request.send(&connection, since, Overflow::EndsMonitor));
                self.phase = Phase::Starting { connection, request, started };
            }
            Err(error) => self.refuse(&connection, error),
        }
    }

    fn load(&mut self, started: Result<Started, MonitorError>) {
        let Phase::Starting { connection, request, .. } =
            std::mem::replace(&mut self.phase, Phase::Waiting)
        else {
            unreachable!("the future belongs to this phase");
        };
        match started {
            Ok(started) => {
                let (feed, answer) = Feed::new(connection, started);
                let applied = feed.load(&mut self.replica, &answer);
                // Before the changes, which `take` queues.
                self.events.extend(applied.result.is_ok().then_some(Event::Connected));
                self.phase = Phase::Following { feed, request };
                self.take(applied);
            }
            Err(MonitorError::Closed(closed)) => self.disconnect(closed),
            Err(error) => self.refuse(&connection, error),
        }
    }

    fn take(&mut self, Applied { changes, result }: Applied<Closed>) {
        // Also after an error: the rows have changed, and this is the only report of it.
        if !changes.is_empty() {
            self.events.push_back(Event::Changed(changes));
        }
        match result {
            Ok(last) => {
                let Phase::Following { request, .. } = &self.phase else {
                    unreachable!("only followed tables change")
                };
                match (&mut self.resume, last) {
                    (Some((same, known)), Some(last)) if same == request => *known = last,
                    (resume, last) => *resume = last.map(|last| (request.clone(), last)),
                }
            }
            Err(closed) => {
                // Part of an update was applied, so the replica matches no transaction that could
                // be resumed from.
                self.resume = None;
                self.disconnect(closed);
            }
        }
    }

    fn disconnect(&mut self, closed: Closed) {
        self.phase = Phase::Waiting;
        self.events.push_back(Event::Disconnected(closed));
    }

    fn refuse(&mut self, connection: &Connection, error: MonitorError) {
        let closed = Closed::Monitor(Arc::new(error));
        connection.close(closed.clone());
        self.disconnect(closed);
    }
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "Waiting",
            Self::Starting { .. } => "Starting",
            Self::Following { .. } => "Following",
        })
    }
}
