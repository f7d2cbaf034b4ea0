//! Waits until what a phase has started is over: ovs-vswitchd has done what its database says, ovn-controller what OVN's say.
//!
//! Otherwise one phase would pay for the one before: ovs-vswitchd takes 12 ms to remove a port, long after DEL has returned.

use std::time::Duration;

use anyhow::{Context as _, Result};
use contract::paths::OVSDB_ENDPOINT;
use integration::central::NORTHBOUND;
use ovsdb::{Connection, Monitor, Monitored, Mutation, Mutator, Options, Table, Transaction, Where};
use tokio::{runtime::Runtime, time::timeout};

const PATIENCE: Duration = Duration::from_secs(30);

ovsdb::table! {
    /// `ovs-vsctl` waits in the same way (ovs-vsctl(8), "--no-wait").
    struct OpenVswitch in "Open_vSwitch" {
        cur_cfg: i64,
    }

    /// `ovn-nbctl --wait=hv sync`.
    struct NbGlobal in "NB_Global" {
        hv_cfg: i64,
    }
}

/// The connections to the two databases that can be asked.
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

    /// Returns once everybody is done with everything before this call.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let Self { runtime, switch, northbound } = self;
        runtime.block_on(async {
            // In this order: what ovs-vswitchd does is news to ovn-controller.
            let wait = switch.advance(|rows| rows.rows::<OpenVswitch>().map(|(_, row)| row.cur_cfg).max());
            timeout(PATIENCE, wait).await.context("ovs-vswitchd does not come to rest")??;
            let wait = northbound.advance(|rows| rows.rows::<NbGlobal>().map(|(_, row)| row.hv_cfg).max());
            timeout(PATIENCE, wait).await.context("ovn-controller does not come to rest")?
        })
    }
}

/// A pair of counters: one says what is wanted, the other what is done.
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

    /// Wants one more, and waits until it is done.
    async fn advance(&mut self, done: impl Fn(&Monitored) -> Option<i64>) -> Result<()> {
        let mut tx = Transaction::new();
        tx.mutate(self.table, Where::all(), vec![Mutation::new(self.wanted, Mutator::Add, 1)]);
        let wanted = tx.select(self.table, Where::all(), &[self.wanted]);
        let outcome = self.connection.transact(tx).await?;
        let wanted = outcome.rows(wanted).first().and_then(|row| row.integer(self.wanted)).context("the table has a row")?;
        while done(&self.done).is_none_or(|done| done < wanted) {
            self.done.changed().await?;
        }
        Ok(())
    }
}
