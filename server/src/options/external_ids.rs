//! What an administrator wrote into Open vSwitch's database, for somebody who waits at a terminal. The server itself follows the database.

use std::{collections::BTreeMap, time::Duration};

use ovsdb::{Connection, Endpoint, Transaction, Where};

/// How long the database may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// `external_ids` of the `Open_vSwitch` table, or why they cannot be read.
pub(super) async fn read(endpoint: &Endpoint) -> Result<BTreeMap<String, String>, String> {
    let options = ovsdb::Options { connect_timeout: PATIENCE, ..ovsdb::Options::small() };
    let ask = async {
        let connection = Connection::open(endpoint, "Open_vSwitch", options).await.map_err(|error| crate::chain(&error))?;
        let mut transaction = Transaction::new();
        let selection = transaction.select("Open_vSwitch", Where::all(), &["external_ids"]);
        let outcome = connection.transact(transaction).await.map_err(|error| crate::chain(&error))?;
        Ok(outcome.rows(selection).first().map(|row| row.map("external_ids")).unwrap_or_default())
    };
    tokio::time::timeout(PATIENCE, ask).await.unwrap_or_else(|_| Err(format!("{endpoint}: no answer within {} s", PATIENCE.as_secs())))
}
