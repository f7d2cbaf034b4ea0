//! How far the nodes of a zone are, by OVN's `nb_cfg`, as `ovn-nbctl --wait=hv sync` asks them.
//!
//! ```text
//! northbound: nb_cfg + 1 ─▶ ovn-northd ─▶ southbound: nb_cfg
//!                                              │
//! Answers ◀─ southbound: Chassis_Private.nb_cfg ◀─ ovn-controller of each node
//! ```
//!
//! ovn-controller writes the number once the flows of everything before it are installed
//! (ovn-sb(5), "Chassis_Private TABLE").

use std::{collections::BTreeMap, time::Duration};

use contract::ovn;
use ovsdb::{Connection, Monitor, Monitored, Mutation, Mutator, SelectedRow, Transaction, Where};
use tokio::time::{Instant, timeout_at};

use crate::ovn_query::{answer, rows};

ovsdb::table! {
    /// How far a chassis is.
    struct ChassisPrivate in "Chassis_Private" {
        name: String,
        nb_cfg: i64,
    }
}

/// When each node has answered.
#[derive(Debug)]
pub(crate) struct Answers {
    wanted: i64,
    /// By the chassis' name: that of its host, and how far it is.
    nodes: BTreeMap<String, ChassisAnswer>,
    /// From the question to the last answer.
    pub(crate) took: Duration,
}

#[derive(Debug, Default)]
struct ChassisAnswer {
    host: String,
    reached: i64,
    after: Option<Duration>,
}

impl ChassisAnswer {
    /// The host's name, or that of the chassis.
    fn name<'a>(&'a self, chassis: &'a str) -> &'a str {
        if self.host.is_empty() { chassis } else { &self.host }
    }
}

impl Answers {
    /// Of these nodes, with the time after which each has answered.
    #[cfg(test)]
    pub(crate) fn given<'a>(nodes: impl IntoIterator<Item = (&'a str, Option<Duration>)>) -> Self {
        let answer = |(host, after): (&str, Option<Duration>)| {
            let (host, reached) = (host.to_owned(), 0);
            (format!("chassis-{host}"), ChassisAnswer { host, reached, after })
        };
        let nodes: BTreeMap<_, _> = nodes.into_iter().map(answer).collect();
        let took = nodes.values().filter_map(|node| node.after).max().unwrap_or_default();
        Self { wanted: 1, nodes, took }
    }

    /// Asks every node, and waits until all have answered or time is up.
    pub(crate) async fn of(
        north: &Connection,
        south: &Connection,
        deadline: Instant,
    ) -> Result<Self, String> {
        let mut nodes = chassis(south).await?;
        let monitor = Monitor::new().table::<ChassisPrivate>(Where::all());
        let mut monitored = answer(south.monitor(monitor)).await?;
        let start = Instant::now();
        let wanted = ask(north).await?;
        loop {
            note(&mut nodes, &monitored, wanted, start.elapsed());
            if nodes.values().all(|node| node.after.is_some()) {
                break;
            }
            match timeout_at(deadline, monitored.changed()).await {
                Ok(Ok(_)) => {}
                Ok(Err(closed)) => return Err(closed.to_string()),
                Err(_) => break,
            }
        }
        let took = nodes.values().filter_map(|node| node.after).max().unwrap_or_default();
        Ok(Self { wanted, nodes, took })
    }

    /// How many nodes were asked.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Of each node its host's name and, since the question, the time of its answer; or how many
    /// numbers it is behind.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, Result<Duration, i64>)> {
        self.nodes.iter().map(|(chassis, node)| {
            let behind = self.wanted - node.reached;
            (node.name(chassis), node.after.ok_or(behind))
        })
    }

    /// The hosts of those that have not answered.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &str> {
        self.each().filter(|(_, answer)| answer.is_err()).map(|(host, _)| host)
    }
}

/// Every chassis that an ovn-controller of this zone has.
async fn chassis(south: &Connection) -> Result<BTreeMap<String, ChassisAnswer>, String> {
    let columns = ["name", "hostname", "other_config"];
    let all = rows(south, "Chassis", Where::all(), &columns).await?;
    let is_remote = |row: &&SelectedRow| ovn::is_remote(&row.map("other_config"));
    let node = |row: &SelectedRow| {
        let host = row.string("hostname").unwrap_or_default().to_owned();
        (
            row.string("name").unwrap_or_default().to_owned(),
            ChassisAnswer { host, ..ChassisAnswer::default() },
        )
    };
    Ok(all.iter().filter(|row| !is_remote(row)).map(node).collect())
}

/// Raises `nb_cfg`, and returns it.
async fn ask(north: &Connection) -> Result<i64, String> {
    let mut raise = Transaction::new();
    let one = Mutation::new("nb_cfg", Mutator::Add, 1);
    raise.mutate("NB_Global", Where::all(), vec![one]);
    let raised = raise.select("NB_Global", Where::all(), &["nb_cfg"]);
    let outcome = answer(north.transact(raise)).await;
    let outcome = outcome.map_err(|why| format!("NB_Global cannot be written: {why}"))?;
    let row = outcome.rows(raised).first().and_then(|row| row.integer("nb_cfg"));
    row.ok_or_else(|| "NB_Global has no row: no control plane has run here".to_owned())
}

fn note(
    nodes: &mut BTreeMap<String, ChassisAnswer>,
    monitored: &Monitored,
    wanted: i64,
    elapsed: Duration,
) {
    for (_, ChassisPrivate { name, nb_cfg }) in monitored.rows::<ChassisPrivate>() {
        let Some(node) = nodes.get_mut(name) else { continue };
        node.reached = *nb_cfg;
        if *nb_cfg >= wanted {
            node.after.get_or_insert(elapsed);
        }
    }
}

/// In milliseconds, with one digit behind the point.
pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
