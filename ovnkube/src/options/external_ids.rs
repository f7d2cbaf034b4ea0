//! Reads `external_ids` of Open vSwitch's database once: for `--print-config`, the control plane
//! and `--remove-node`. A node's server follows the database instead.

use std::{collections::BTreeMap, time::Duration};

use ovsdb::{Connection, Endpoint, Transaction, Where};

/// Limit for the connection and the answer. The database is on the same machine and answers in
/// milliseconds; a limit ten times shorter would miss one that is busy. A database that hangs
/// delays the start of the control plane by this, so it is not longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a process knows of `external_ids`, the last source before the defaults.
#[derive(Debug, Clone)]
pub(super) enum ExternalIds {
    /// They are read later: an option that is missing may still come from there.
    Awaited,
    /// They are not read, and there is no other source.
    Ignored,
    Read(BTreeMap<String, String>),
    /// Why they could not be read.
    Unreadable(String),
}

/// The same as [`read`], before the process has a runtime.
pub(super) fn read_now(endpoint: &Endpoint) -> ExternalIds {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(read(endpoint)))
    {
        Ok(external_ids) => ExternalIds::Read(external_ids),
        Err(reason) => ExternalIds::Unreadable(reason),
    }
}

/// The problem that is added to a missing option which `external_ids` could have given.
pub(super) fn unread(reason: &str) -> String {
    format!("external_ids of Open vSwitch, which may say more, could not be read ({reason})")
}

/// `external_ids` of the `Open_vSwitch` table, or the reason why they cannot be read.
pub(super) async fn read(endpoint: &Endpoint) -> Result<BTreeMap<String, String>, String> {
    let options = ovsdb::Options { connect_timeout: PATIENCE, ..ovsdb::Options::small() };
    let ask = async {
        let connection = Connection::open(endpoint, "Open_vSwitch", options)
            .await
            .map_err(|error| crate::chain(&error))?;
        let mut transaction = Transaction::new();
        let selection = transaction.select("Open_vSwitch", Where::all(), &["external_ids"]);
        let outcome =
            connection.transact(transaction).await.map_err(|error| crate::chain(&error))?;
        Ok(outcome.rows(selection).first().map(|row| row.map("external_ids")).unwrap_or_default())
    };
    tokio::time::timeout(PATIENCE, ask)
        .await
        .unwrap_or_else(|_| Err(format!("{endpoint}: no answer within {} s", PATIENCE.as_secs())))
}
