//! The world in which nodes with gateways join, half of them first: how soon a node has its rows,
//! and what each further node costs.
//!
//! A node joins in two writes, as in a cluster: the kubelet creates its object, and its server
//! writes the annotations. The cluster manager's numbers and subnets, and the rows, are the control
//! plane's.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::central::{Central, NORTHBOUND, SOUTHBOUND};
use serde_json::{Value, json};
use tokio::{
    task::{JoinSet, block_in_place},
    time::interval,
};

use self::{
    figures::{Half, Joined, Left, Restart},
    rows::Rows,
    tables::{Growth, Tables},
};
use super::{
    calls, objects,
    process::Usage,
    seen::Seen,
    site::{Northd, Site},
};
use crate::report::percentiles::Percentiles;

pub(crate) mod figures;
mod report;
mod rows;
mod tables;

/// The time in which all nodes join.
const WINDOW: Duration = Duration::from_secs(10);
/// The option of the control plane; nodes say the rest in their annotations.
pub(crate) const OPTION: &str = "--gateway-mode=shared";

/// The world while it is measured.
struct World<'a> {
    site: &'a Site,
    nodes: usize,
    rows: Seen<Rows>,
    /// Limit for one wait: far longer than any time that is worth measuring.
    patience: Duration,
}

/// What is read between the halves.
#[derive(Debug, Clone, Copy)]
struct Reading {
    cpu: f64,
    transactions: u64,
    /// Of the database's log.
    bytes: u64,
}

/// Measures everything, and reports progress to `say`.
pub(crate) async fn run(
    site: &Site,
    nodes: usize,
    northd: Northd,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Joined> {
    let world = World {
        site,
        nodes,
        rows: rows::monitor((0..nodes).map(objects::node_name))?,
        patience: Duration::from_secs(60) + Duration::from_millis(200) * u32::try_from(nodes)?,
    };
    site.controller.spawn()?;
    block_in_place(|| site.until_ready(world.patience))?;
    let half = nodes / 2;
    say(&format!(
        "the control plane is ready; {half} nodes join in {:.0} s",
        WINDOW.as_secs_f64() / 2.0
    ));
    let nothing = (Tables::of(&site.central, NORTHBOUND, northd)?, world.reading()?);
    let began = Instant::now();
    let mut posts = world.join(0..half).await?;
    let first = (Tables::of(&site.central, NORTHBOUND, northd)?, world.reading()?);
    say("the others join");
    // Counting the rows of the first half took time in which no node came.
    let paused = Instant::now();
    let posted = posts.last().map_or(Duration::ZERO, |post| *post - began);
    posts.extend(world.join(half..nodes).await?);
    let posted = posted + posts.last().map_or(Duration::ZERO, |post| *post - paused);
    let all = (Tables::of(&site.central, NORTHBOUND, northd)?, world.reading()?);
    let southbound = match northd {
        Northd::On => Some(Tables::of(&site.central, SOUTHBOUND, northd)?),
        Northd::Off => None,
    };
    let usage = Usage::of(&site.controller)?;
    say(&format!(
        "all nodes have their rows, {:.1} MB; starting the control plane again",
        usage.rss
    ));
    let restart = world.restart().await?;
    // After the restart, which has found nothing to add.
    let waits = world.waits(&posts)?;
    say(&format!("ready after {:.2} s; {} nodes leave", restart.ready, nodes - half));
    let left = world.leave(half..nodes).await?;
    let rest = Tables::of(&site.central, NORTHBOUND, northd)?;
    let southbound = match southbound {
        Some(all) => Growth::of_half(&Tables::of(&site.central, SOUTHBOUND, northd)?, &all),
        None => Vec::new(),
    };
    let growth = Growth::of(&nothing.0, &first.0, &all.0);
    Ok(Joined {
        nodes,
        posted: posted.as_secs_f64(),
        last: waits.last().copied().unwrap_or_default(),
        waits: Percentiles::of(waits),
        halves: [Half::between(&nothing.1, &first.1), Half::between(&first.1, &all.1)],
        constant: nothing.0.total(),
        growth,
        left: Left { differences: Growth::differences(&first.0, &rest), ..left },
        southbound,
        usage,
        restart,
    })
}

impl World<'_> {
    /// The nodes join at a steady rate. Returns when each was posted, once all have their rows.
    async fn join(&self, nodes: Range<usize>) -> Result<Vec<Instant>> {
        let mut beat = interval(WINDOW / u32::try_from(self.nodes)?);
        let mut posts = JoinSet::new();
        for number in nodes.clone() {
            beat.tick().await;
            let client = self.site.client().clone();
            posts.spawn(async move {
                let mut node = objects::node(number);
                let mut annotations = node["metadata"]["annotations"].take();
                let (key, gateway) = objects::gateway(number);
                annotations[key] = gateway.into();
                calls::create(&client, NODES, &node).await?;
                let posted = Instant::now();
                let patch = json!({"metadata": {"annotations": annotations}});
                calls::patch(&client, &path(number), &patch).await?;
                anyhow::Ok((number, posted))
            });
        }
        let mut posted = BTreeMap::new();
        while let Some(post) = posts.join_next().await {
            posted.extend([post??]);
        }
        let rows =
            self.rows.wait("every node has its rows", self.patience, |rows| rows.all(0..nodes.end));
        self.site.while_running(rows).await?;
        Ok(posted.into_values().collect())
    }

    /// Deletes the nodes at once, and waits until their rows are gone.
    async fn leave(&self, nodes: Range<usize>) -> Result<Left> {
        let transactions = Central::northbound_transactions()?;
        let cpu = Usage::of(&self.site.controller)?.cpu;
        let took = calls::all(nodes.clone(), async |number| {
            calls::remove(self.site.client(), &path(number)).await
        })
        .await?;
        let answered = Instant::now();
        let gone = self
            .rows
            .wait("the nodes' rows are gone", self.patience, |rows| rows.none(nodes.clone()));
        self.site.while_running(gone).await?;
        Ok(Left {
            deleted: took.as_secs_f64(),
            behind: answered.elapsed().as_secs_f64() * 1e3,
            transactions: Central::northbound_transactions()? - transactions,
            cpu: Usage::of(&self.site.controller)?.cpu - cpu,
            differences: Vec::new(),
        })
    }

    async fn restart(&self) -> Result<Restart> {
        let controller = &self.site.controller;
        block_in_place(|| controller.stop())?;
        let (versions, transactions) =
            (self.versions().await?, Central::northbound_transactions()?);
        let began = Instant::now();
        controller.spawn()?;
        block_in_place(|| self.site.until_ready(self.patience))?;
        let ready = began.elapsed().as_secs_f64();
        let now = self.versions().await?;
        ensure!(now.len() == self.nodes, "{} of {} nodes are there", now.len(), self.nodes);
        Ok(Restart {
            ready,
            transactions: Central::northbound_transactions()? - transactions,
            nodes_written: now
                .iter()
                .filter(|(name, version)| versions.get(*name) != Some(*version))
                .count(),
            cpu: Usage::of(controller)?.cpu,
        })
    }

    /// Milliseconds from each post to the last row of its node, in the order of the posts; zero if
    /// the row was seen before the answer.
    fn waits(&self, posts: &[Instant]) -> Result<Vec<f64>> {
        let rows = self.rows.now();
        let wait = |(number, posted): (usize, &Instant)| {
            let last = rows
                .last(number)
                .with_context(|| format!("{} has no row", objects::node_name(number)))?;
            Ok(last.saturating_duration_since(*posted).as_secs_f64() * 1e3)
        };
        posts.iter().enumerate().map(wait).collect()
    }

    fn reading(&self) -> Result<Reading> {
        Ok(Reading {
            cpu: Usage::of(&self.site.controller)?.cpu,
            transactions: Central::northbound_transactions()?,
            bytes: fs::metadata(Central::northbound_file())?.len(),
        })
    }

    /// The version of each node's object.
    async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let request = http::Request::get(NODES).body(Vec::new())?;
        let nodes: Value = self.site.client().request(request).await.context("list nodes")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = |node: &Value| {
            (text(&node["metadata"]["name"]), text(&node["metadata"]["resourceVersion"]))
        };
        Ok(nodes["items"].as_array().context("a list of nodes")?.iter().map(version).collect())
    }
}

const NODES: &str = "/api/v1/nodes";

fn path(number: usize) -> String {
    format!("{NODES}/{}", objects::node_name(number))
}
