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
    struct OpenVswitch in "Open_vSwitch" {
        cur_cfg: i64,
    }

    /// `hv_cfg` follows `nb_cfg`, as with `ovn-nbctl --wait=hv sync`.
    struct NbGlobal in "NB_Global" {
        hv_cfg: i64,
    }
}

/// Connections to the local Open vSwitch database and to the northbound database.
#[derive(Debug)]
pub(crate) struct Settler {
    runtime: Runtime,
    switch: Counter,
    northbound: Counter,
}

impl Settler {
    pub(crate) fn open() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (switch, northbound) = runtime.block_on(async {
            anyhow::Ok((
                Counter::open::<OpenVswitch>(OVSDB_ENDPOINT, "Open_vSwitch", "next_cfg").await?,
                Counter::open::<NbGlobal>(NORTHBOUND, "OVN_Northbound", "nb_cfg").await?,
            ))
        })?;
        Ok(Self { runtime, switch, northbound })
    }

    /// Returns once all daemons have finished the work that was requested before this call.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let Self { runtime, switch, northbound } = self;
        runtime.block_on(async {
            // Open vSwitch first: changes that ovs-vswitchd makes to the database are new work for
            // ovn-controller.
            let wait = switch.advance(|rows| rows.rows::<OpenVswitch>().map(|(_, row)| row.cur_cfg).max());
            timeout(PATIENCE, wait).await.context("ovs-vswitchd does not come to rest")??;
            let wait = northbound.advance(|rows| rows.rows::<NbGlobal>().map(|(_, row)| row.hv_cfg).max());
            timeout(PATIENCE, wait).await.context("ovn-controller does not come to rest")?
        })
    }
}

/// A pair of counters: clients increment `wanted`, and the daemon copies its value to the other when it has
/// caught up.
#[derive(Debug)]
struct Counter {
    connection: Connection,
    table: &'static str,
    wanted: &'static str,
    done: Monitored,
}

impl Counter {
    async fn open<T: Table>(endpoint: &str, database: &str, wanted: &'static str) -> Result<Self> {
        let options = Options { probe_interval: None, ..Options::default() };
        let connection = Connection::open(&endpoint.parse()?, database, options).await?;
        let done = connection.monitor(Monitor::new().table::<T>(Where::all())).await?;
        Ok(Self { connection, table: T::NAME, wanted, done })
    }

    /// Increments `wanted`, and waits until the other counter has reached that value.
    async fn advance(&mut self, done: impl Fn(&Monitored) -> Option<i64>) -> Result<()> {
        let mut tx = Transaction::new();
        tx.mutate(self.table, Where::all(), vec![Mutation::new(self.wanted, Mutator::Add, 1)]);
        // Selected in the same transaction: other clients increment the counter, too.
        let wanted = tx.select(self.table, Where::all(), &[self.wanted]);
        let outcome = self.connection.transact(tx).await?;
        let wanted = outcome
            .rows(wanted)
            .first()
            .and_then(|row| row.integer(self.wanted))
            .context("the table has a row")?;
        while done(&self.done).is_none_or(|done| done < wanted) {
            self.done.changed().await?;
        }
        Ok(())
    }
}
