//! The replica of a lasting connection.

use std::{collections::VecDeque, fmt, pin::Pin, sync::Arc};

use tokio::sync::watch;

use super::{State, next_connection};
use crate::{
    closed::Closed,
    connection::Connection,
    monitor::{Monitor, MonitorError, Request, Started},
    monitored::Feed,
    replica::{Changes, Replica},
    table::Table,
    update::Applied,
    value::Uuid,
};

/// The receiving half of a lasting connection: a replica, and what happens to it. The rows change only in [`next`](Self::next).
///
/// While there is no connection the rows stay as they were last seen. Updates that are not read pile up; beyond
/// [`Options::backlog`](crate::Options::backlog) the connection is given up and, once read, made anew.
#[derive(Debug)]
pub struct Updates {
    state: watch::Receiver<State>,
    monitor: Monitor,
    replica: Replica,
    phase: Phase,
    events: VecDeque<Event>,
    /// What the replica is a copy of: the request, and the last transaction in it. Absent where nobody can say.
    resume: Option<(Request, Uuid)>,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The rows are those of the database, after the first connection or another one.
    Connected,
    /// The rows are no longer kept up to date. Also comes where a connection was made, but its tables could not be read.
    Disconnected(Closed),
    /// Rows changed, and are already as they are now. After [`Connected`](Self::Connected) follows at first what differs from
    /// the rows of before: on the first connection every row, later what was missed meanwhile.
    Changed(Changes),
}

enum Phase {
    Waiting,
    /// The tables were asked for.
    Starting {
        connection: Connection,
        request: Request,
        started: Pin<Box<dyn Future<Output = Result<Started, MonitorError>> + Send + Sync>>,
    },
    Following {
        feed: Feed,
        request: Request,
    },
}

impl Updates {
    pub(super) fn new(state: watch::Receiver<State>, monitor: Monitor) -> Self {
        let replica = monitor.blank_replica();
        Self { state, monitor, replica, phase: Phase::Waiting, events: VecDeque::new(), resume: None }
    }

    /// Waits for the next event. It never ends, for the connection is made again and again. Cancellation-safe.
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

    /// The connection that the rows follow; none while they follow nothing. What a transaction on it does is among the
    /// [`next`](Self::next) events before its outcome is known.
    pub fn connection(&self) -> Option<&Connection> {
        match &self.phase {
            Phase::Following { feed, .. } => Some(feed.connection()),
            Phase::Waiting | Phase::Starting { .. } => None,
        }
    }

    /// The rows of a table, in no order; none if the monitor does not include it.
    pub fn rows<T: Table>(&self) -> impl Iterator<Item = (Uuid, &T)> {
        self.replica.rows()
    }

    /// One row, if it is there and its table is monitored.
    pub fn row<T: Table>(&self, uuid: Uuid) -> Option<&T> {
        self.replica.row(uuid)
    }

    /// All tables, to hand to code that only reads.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    fn start(&mut self, connection: Connection) {
        match Request::new(&self.monitor, connection.schema(), &mut self.replica) {
            Ok(request) => {
                let since = self.resume.as_ref().filter(|(same, _)| *same == request).map(|(_, last)| *last);
                let started = Box::pin(request.send(&connection, since));
                self.phase = Phase::Starting { connection, request, started };
            }
            Err(error) => self.refuse(&connection, error),
        }
    }

    fn load(&mut self, started: Result<Started, MonitorError>) {
        let Phase::Starting { connection, request, .. } = std::mem::replace(&mut self.phase, Phase::Waiting) else {
            unreachable!("the future belongs to this phase");
        };
        match started {
            Ok(started) => {
                let (feed, answer) = Feed::new(connection, started);
                let applied = feed.load(&mut self.replica, &answer);
                self.events.extend(applied.result.is_ok().then_some(Event::Connected));
                self.phase = Phase::Following { feed, request };
                self.take(applied);
            }
            Err(MonitorError::Closed(closed)) => self.disconnect(closed),
            Err(error) => self.refuse(&connection, error),
        }
    }

    fn take(&mut self, Applied { changes, result }: Applied<Closed>) {
        if !changes.is_empty() {
            self.events.push_back(Event::Changed(changes));
        }
        match result {
            Ok(last) => {
                let Phase::Following { request, .. } = &self.phase else { unreachable!("only followed tables change") };
                match (&mut self.resume, last) {
                    (Some((same, known)), Some(last)) if same == request => *known = last,
                    (resume, last) => *resume = last.map(|last| (request.clone(), last)),
                }
            }
            Err(closed) => {
                // Part of an update was applied: the replica is a copy of no transaction.
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
