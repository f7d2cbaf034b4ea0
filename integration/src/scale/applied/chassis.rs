//! A chassis without flows.

use anyhow::{Context as _, Result, bail};
use integration::central::SOUTHBOUND;
use ovsdb::{Condition, Connection, Datum, Monitor, Monitored, Options, Row, Transaction, Where};

ovsdb::table! {
    struct SbGlobal in "SB_Global" {
        nb_cfg: i64,
    }

    struct ChassisPrivate in "Chassis_Private" {
        name: String,
        nb_cfg: i64,
    }
}

/// A chassis that has its rows.
pub(super) struct Registered {
    name: String,
    connection: Connection,
}

/// Makes the rows of a chassis.
pub(super) async fn register(number: usize) -> Result<Registered> {
    let name = format!("chassis-{number}");
    let endpoint = SOUTHBOUND.parse().context("address of the southbound database")?;
    let options = Options { probe_interval: None, ..Options::default() };
    let connection = Connection::open(&endpoint, "OVN_Southbound", options).await?;
    connection.transact(registration(number, &name)).await?;
    Ok(Registered { name, connection })
}

/// Follows `nb_cfg` until the database is away, which is an error.
pub(super) async fn follow(Registered { name, connection }: Registered) -> Result<()> {
    let own = || Where::from(Condition::equal("name", name.as_str()));
    let monitor = Monitor::new().table::<SbGlobal>(Where::all()).table::<ChassisPrivate>(own());
    let mut monitored = connection.monitor(monitor).await?;
    loop {
        if let Some(wanted) = behind(&monitored) {
            let mut reach = Transaction::new();
            reach.update("Chassis_Private", own(), Row::new().with("nb_cfg", wanted));
            connection.transact(reach).await?;
        }
        if let Err(closed) = monitored.changed().await {
            bail!("{name}: {closed}");
        }
    }
}

/// The number to write, if the chassis has not written it.
fn behind(monitored: &Monitored) -> Option<i64> {
    let (_, SbGlobal { nb_cfg: wanted }) = monitored.rows().next()?;
    let (_, ChassisPrivate { nb_cfg, .. }) = monitored.rows().next()?;
    (wanted != nb_cfg).then_some(*wanted)
}

/// The rows that ovn-controller makes when it starts.
fn registration(number: usize, name: &str) -> Transaction {
    let address = format!("172.18.{}.{}", number / 250, number % 250 + 1);
    let mut rows = Transaction::new();
    let encap = Row::new().with("type", "geneve").with("ip", address).with("chassis_name", name);
    let encap = rows.insert("Encap", encap);
    let chassis = Row::new()
        .with("name", name)
        .with("hostname", format!("node-{number}"))
        .with("encaps", Datum::set([&encap]));
    let chassis = rows.insert("Chassis", chassis);
    let private = Row::new().with("name", name).with("chassis", Datum::set([&chassis]));
    rows.insert("Chassis_Private", private);
    rows
}
