//! Questions to OVN's databases, each with an end.

use std::time::Duration;

pub(crate) use controller::{engine::northbound::DATABASE as NORTHBOUND, remove_node::SOUTHBOUND};
use ovsdb::{Connection, Endpoints, Options, SelectedRow, Transaction, Where};
use tokio::time::timeout;

use crate::chain;

/// How long a partner may take for one answer. Longer than a busy one needs; short enough to be
/// waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to the first server of a database that answers.
///
/// # Errors
/// What each of them says.
pub(crate) async fn open(
    endpoints: &Endpoints,
    schema: &'static str,
    options: Options,
) -> Result<Connection, String> {
    let options = Options { connect_timeout: PATIENCE, leader_only: false, ..options };
    let mut silent = Vec::new();
    for endpoint in endpoints.iter() {
        match answer(Connection::open(endpoint, schema, options.clone())).await {
            Ok(connection) => return Ok(connection),
            Err(why) => silent.push(why),
        }
    }
    Err(silent.join("; "))
}

/// The answer to a question, or why there is none in time.
pub(crate) async fn answer<T, E: std::error::Error>(
    question: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(PATIENCE, question).await {
        Ok(answer) => answer.map_err(|error| chain(&error)),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

/// The rows of a table, within the patience.
pub(crate) async fn rows(
    database: &Connection,
    table: &str,
    which: Where,
    columns: &[&str],
) -> Result<Vec<SelectedRow>, String> {
    let mut query = Transaction::new();
    let selection = query.select(table, which, columns);
    let outcome = answer(database.transact(query))
        .await
        .map_err(|why| format!("{table} cannot be read: {why}"))?;
    Ok(outcome.rows(selection).to_vec())
}
