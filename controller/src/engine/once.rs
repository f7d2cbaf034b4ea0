//! Rows that a program writes once, before it ends: no reconciler, no lock. Knows nothing of what
//! they are.

use futures_util::FutureExt as _;
use ovsdb::{Connection, TransactError};

use crate::engine::{
    commit::{
        assemble,
        fault::{Fault, classify},
    },
    diff::edit::Edit,
    northbound::{Event, Northbound},
};

/// Waits until the replica has all rows, also those of the last transaction. Waits for a connection
/// for as long as it takes, and returns it.
pub(crate) async fn up_to_date(northbound: &mut Northbound) -> Connection {
    loop {
        // The first changes after a connection hold all rows, and those of a transaction come
        // before its answer. So with all events read, the replica is up to date.
        while northbound.connection().is_none() {
            northbound.next().await;
        }
        while northbound.next().now_or_never().is_some() {}
        if let Some(connection) = northbound.connection() {
            return connection.clone();
        }
    }
}

/// Writes the edits in one transaction. False: the connection was lost or another writer won a
/// race; the rows have to be compared again.
///
/// # Errors
/// The database refuses.
pub(crate) async fn write(
    northbound: &mut Northbound,
    connection: &Connection,
    edits: Vec<Vec<Edit>>,
) -> Result<bool, TransactError> {
    // Without the lock: to take it would stop the controller that holds it.
    match connection.transact(assemble(edits, connection.schema(), None).transaction).await {
        Ok(_) => Ok(true),
        Err(error) => match classify(&error) {
            // Until the replica has noticed, it would offer the same connection.
            Fault::Connection => {
                while !matches!(northbound.next().await, Event::Disconnected(_)) {}
                Ok(false)
            }
            // A row has changed since it was read. The change is among the next events.
            Fault::Race(_) => Ok(false),
            Fault::Operation(_) | Fault::Unnamed | Fault::Server | Fault::Lock => Err(error),
        },
    }
}
