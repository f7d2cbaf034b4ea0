//! The result of all bursts, as a table and as `bench-cluster.json`, which has the fields of
//! [`Report`].

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use super::{Network, burst::Burst};
use crate::report::{environment::Environment, percentiles};

/// `bench-cluster.json`. Times are in seconds unless a field says otherwise.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    /// Version of the format; grows when a field changes its meaning or goes.
    format: u32,
    environment: Environment,
    rounds: usize,
    /// Medians of the rounds.
    lines: Vec<Line>,
    /// Every single burst.
    bursts: Vec<Burst>,
}

/// One line of the table: medians of all bursts of this size with this network.
#[derive(Debug, Clone, Serialize)]
struct Line {
    network: Network,
    pods: usize,
    all_ready: f64,
    median_ready: f64,
    all_gone: f64,
    /// Mean of one ADD, in ms.
    add_ms: f64,
    /// Mean of one DEL, in ms.
    del_ms: f64,
    /// The part of the mean time until a pod is ready that is the plugin's ADD, from 0 to 1.
    share: f64,
}

const FORMAT: u32 = 1;

impl Report {
    pub(super) fn new(environment: Environment, rounds: usize, bursts: Vec<Burst>) -> Self {
        let cells: BTreeSet<(usize, Network)> =
            bursts.iter().map(|burst| (burst.pods, burst.network)).collect();
        let lines = cells.into_iter().map(|(pods, network)| {
            let of = bursts.iter().filter(|burst| (burst.pods, burst.network) == (pods, network));
            let median = |value: fn(&Burst) -> f64| percentiles::median(of.clone().map(value));
            Line {
                network,
                pods,
                all_ready: median(|burst| burst.all_ready),
                median_ready: median(|burst| burst.median_ready),
                all_gone: median(|burst| burst.all_gone),
                add_ms: median(|burst| burst.add.mean() * 1e3),
                del_ms: median(|burst| burst.del.mean() * 1e3),
                share: median(Burst::share),
            }
        });
        Self { format: FORMAT, environment, rounds, lines: lines.collect(), bursts }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { environment, rounds, lines, bursts, .. } = self;
        writeln!(f, "\nmedians of {rounds} rounds on one node; {environment}\n")?;
        writeln!(
            f,
            "{:>5}  {:<8}{:>14}{:>14}{:>12}{:>11}{:>11}{:>16}",
            "pods",
            "",
            "median ready",
            "all ready",
            "all gone",
            "mean ADD",
            "mean DEL",
            "ADD's share of"
        )?;
        writeln!(
            f,
            "{:>5}  {:<8}{:>14}{:>14}{:>12}{:>11}{:>11}{:>16}",
            "", "", "s", "s", "s", "ms", "ms", "time to ready"
        )?;
        for Line { network, pods, all_ready, median_ready, all_gone, add_ms, del_ms, share } in
            lines
        {
            let name = match network {
                Network::Ours => "ours",
                Network::Bridge => "bridge",
            };
            let share = format!("{:.1} %", share * 100.0);
            writeln!(
                f,
                "{pods:>5}  {name:<8}{median_ready:>14.2}{all_ready:>14.2}{all_gone:>12.2}{add_ms:>11.1}{del_ms:>11.1}{share:>16}"
            )?;
        }
        let largest = bursts
            .iter()
            .filter(|burst| burst.network == Network::Ours)
            .max_by_key(|burst| burst.pods);
        if let Some(burst) = largest {
            let stages: Vec<String> =
                burst.stages.iter().map(|(stage, time)| format!("{stage} {time:.1}")).collect();
            writeln!(
                f,
                "\nours, {} pods, median ms of the plugin's stages: {}",
                burst.pods,
                stages.join(", ")
            )?;
        }
        Ok(())
    }
}
