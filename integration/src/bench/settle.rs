//! Waits until the work of a phase is done: ovs-vswitchd has applied its database, and ovn-controller has
//! applied OVN's.
//!
//! Otherwise the work of one phase would slow down the next: ovs-vswitchd takes 12 ms to remove a port, long
//! after DEL has returned.

use std::time::Duration;

use anyhow::{Context as _, Result};
use contract::paths::OVSDB_ENDPOINT;
use integration::central::NORTHBOUND;
use ovsdb::{Connection, Monitor, Monitored, Mutation, Mutator, Options, Table, Transaction, Where};
use tokio::{runtime::Runtime, time::timeout};

/// Limit for one daemon. Removing 100 ports takes it about a second.
const PATIENCE: Duration = Duration::from_secs(30);

ovsdb::table! {
    /// `cur_cfg` follows `next_cfg`; `ovs-vsctl` waits in the same way (ovs-vsctl(8), "--no-wait").
    struct OpenVswitch in "Open_vSwitch" { cur_cfg: i64, }

    /// `hv_cfg` follows `nb_cfg`, as with `ovn-nbctl --wait=hv sync`.
    struct NbGlobal in "NB_Global" { hv_cfg: i64, }
}

/// Connections to the local Open vSwitch database and to the northbound database, with their counters.
#[derive(Debug)]
pub(crate) struct Settler {
    runtime: Runtime,
    switch: (Connection, Monitored),
    northbound: (Connection, Monitored),
}

impl Settler {
    pub(crate) fn open() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let switch = runtime.block_on(follow::<OpenVswitch>(OVSDB_ENDPOINT, "Open_vSwitch"))?;
        let northbound = runtime.block_on(follow::<NbGlobal>(NORTHBOUND, "OVN_Northbound"))?;
        Ok(Self { runtime, switch, northbound })
    }

    /// Returns once all daemons have finished the work that was requested before this call.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let Self { runtime, switch, northbound } = self;
        // Open vSwitch first: changes that ovs-vswitchd makes to its database are new work for ovn-controller.
        let switch = advance::<OpenVswitch>(switch, "next_cfg", |row| row.cur_cfg);
        runtime.block_on(async {
            timeout(PATIENCE, switch).await.context("ovs-vswitchd does not come to rest")?
        })?;
        let northbound = advance::<NbGlobal>(northbound, "nb_cfg", |row| row.hv_cfg);
        runtime.block_on(async {
            timeout(PATIENCE, northbound).await.context("ovn-controller does not come to rest")?
        })
    }
}

async fn follow<T: Table>(endpoint: &str, database: &str) -> Result<(Connection, Monitored)> {
    // The connection is not served between waits: a probe would go unanswered, and close it.
    let options = Options { probe_interval: None, ..Options::default() };
    let connection = Connection::open(&endpoint.parse()?, database, options).await?;
    let rows = connection.monitor(Monitor::new().table::<T>(Where::all())).await?;
    Ok((connection, rows))
}

/// Increments the column `wanted`, and waits until the daemon has copied its value to `done`.
async fn advance<T: Table>(
    (connection, rows): &mut (Connection, Monitored),
    wanted: &str,
    done: fn(&T) -> i64,
) -> Result<()> {
    let mut tx = Transaction::new();
    tx.mutate(T::NAME, Where::all(), vec![Mutation::new(wanted, Mutator::Add, 1)]);
    // Selected in the same transaction: other clients increment the counter, too.
    let selected = tx.select(T::NAME, Where::all(), &[wanted]);
    let outcome = connection.transact(tx).await?;
    let goal =
        outcome.rows(selected).first().and_then(|row| row.integer(wanted)).context("the table has a row")?;
    while rows.rows::<T>().map(|(_, row)| done(row)).max().is_none_or(|done| done < goal) {
        rows.changed().await?;
    }
    Ok(())
}
