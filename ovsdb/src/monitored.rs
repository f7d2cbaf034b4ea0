//! A replica that one connection keeps up to date.

use std::future::Future;

use crate::{
    connection::{Connection, Overflow, UpdateReceiver},
    error::{Closed, MonitorError},
    message::Body,
    monitor::{Monitor, MonitorTables, Started},
    replica::{Changes, Replica},
    table::Table,
    update::{self, Applied, Form},
    value::Uuid,
};

/// Monitored tables, kept up to date while the connection lasts. The rows change only in
/// [`changed`](Self::changed).
#[derive(Debug)]
pub struct Monitored {
    replica: Replica,
    feed: Feed,
}

impl Connection {
    /// Starts to replicate tables. The request is sent at the call, not when the future is first
    /// polled. Resolves when the current rows are loaded.
    ///
    /// # Errors
    /// The monitor does not fit the schema, the server refused it, or the connection was lost
    /// before the rows were loaded.
    pub fn monitor(
        &self,
        monitor: Monitor,
    ) -> impl Future<Output = Result<Monitored, MonitorError>> + Send + use<> {
        Monitored::start(self, monitor)
    }
}

impl Monitored {
    fn start(
        connection: &Connection,
        monitor: Monitor,
    ) -> impl Future<Output = Result<Self, MonitorError>> + Send + use<> {
        let mut replica = monitor.blank_replica();
        let started = MonitorTables::new(&monitor, connection.schema(), &mut replica)
            .map(|request| request.send(connection, None, Overflow::EndsConnection));
        let connection = connection.clone();
        async move {
            let (feed, answer) = Feed::new(connection, started?.await?);
            match feed.load(&mut replica, &answer) {
                Applied { result: Ok(_), .. } => Ok(Self { replica, feed }),
                Applied { result: Err(closed), .. } => Err(MonitorError::Closed(closed)),
            }
        }
    }

    /// Waits for the next changes and applies them. Cancellation-safe: changes that were not
    /// returned were not applied.
    ///
    /// # Errors
    /// The connection is closed, or an update is invalid, which closes it. The rows stay as they
    /// are.
    pub async fn changed(&mut self) -> Result<Changes, Closed> {
        loop {
            let params = self.feed.next().await?;
            let Applied { changes, result } = self.feed.apply(&mut self.replica, &params);
            result?;
            // An update may change nothing here, such as one of a row that a changes-only monitor
            // never got.
            if !changes.is_empty() {
                return Ok(changes);
            }
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

    /// The connection that the updates come over.
    pub fn connection(&self) -> &Connection {
        &self.feed.connection
    }
}

/// The updates of one monitor. Keeps the connection open.
#[derive(Debug)]
pub(crate) struct Feed {
    connection: Connection,
    form: Form,
    updates: UpdateReceiver,
}

impl Feed {
    pub(crate) fn new(
        connection: Connection,
        Started { form, answer, updates }: Started,
    ) -> (Self, Body) {
        (Self { connection, form, updates }, answer)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) async fn next(&mut self) -> Result<Body, Closed> {
        match self.updates.next().await {
            Some(Ok(params)) => Ok(params),
            Some(Err(overflow)) => Err(overflow),
            // Without an overflow, the updates end only with the connection.
            None => Err(self.connection.closed().await),
        }
    }

    pub(crate) fn load(&self, replica: &mut Replica, answer: &Body) -> Applied<Closed> {
        self.checked(update::load(replica, self.form, answer.as_str()))
    }

    pub(crate) fn apply(&self, replica: &mut Replica, params: &Body) -> Applied<Closed> {
        self.checked(update::update(replica, self.form, params.as_str()))
    }

    /// Closes the connection after an invalid update: the replica no longer matches the database.
    fn checked(&self, Applied { changes, result }: Applied<String>) -> Applied<Closed> {
        let result = result.map_err(|error| {
            let closed = Closed::Protocol(error);
            self.connection.close(closed.clone());
            closed
        });
        Applied { changes, result }
    }
}
