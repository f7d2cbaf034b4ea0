//! What is measured: every call of every phase; and the figures of calls: percentiles, rates, CPU
//! time. Pure.

use std::{collections::BTreeMap, fmt};

use anyhow::Result;
use integration::Program;
use serde::Serialize;

use super::processes::CpuTimes;
use crate::report::percentiles::{Percentiles, median};

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
    Status,
    Version,
    /// GC with nothing to remove: every attachment is valid.
    Gc,
    /// GC that removes attachments.
    GcStale,
}

/// A contestant of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Contestant {
    /// The work that no plugin can avoid, in one process; see [`super::floor`].
    Floor,
    /// `/bin/true`: the cost of starting any program.
    BinTrue,
    /// The plugin, with the server.
    Ours,
    /// `bridge` and `host-local` of the CNI project, without Open vSwitch, OVN or a server.
    Bridge,
    /// Upstream's plugin, with this project's server.
    Upstream,
}

/// One combination that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Cell {
    pub(crate) verb: Verb,
    /// Number of pods that are attached already and stay.
    pub(crate) ports: usize,
    /// Number of calls at the same time.
    pub(crate) at_once: usize,
    pub(crate) contestant: Contestant,
}

/// A process, or group of processes, whose CPU time is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Process {
    /// The contestant: the plugin's processes, or the floor in the driver.
    Caller,
    #[serde(untagged)]
    Daemon(Program),
}

/// One turn of a contestant: one call per pod, or per repetition.
#[derive(Debug, Clone)]
pub(crate) struct Phase {
    pub(crate) cell: Cell,
    /// Round 0 is the warm-up and does not count.
    pub(crate) round: u32,
    /// Wall time from the first start to the last end, in milliseconds.
    pub(crate) wall: f64,
    pub(crate) calls: Vec<Call>,
    /// CPU time of the whole phase, until the daemons are idle; empty if the phase is too short to
    /// measure it.
    pub(crate) cpu: CpuTimes,
}

/// One call. Times are in milliseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    pub(crate) duration: f64,
    /// Its stages; `outside`, the start and the end of the process; `between`, what no stage
    /// accounts for. Parts may overlap.
    pub(crate) parts: BTreeMap<String, f64>,
    /// The error of a call that failed; such a call is excluded from the figures.
    pub(crate) error: Option<String>,
    /// Of an ADD, to find it in the plugin's log.
    pub(crate) sandbox: String,
}

impl Call {
    /// The call after a check of its answer.
    pub(crate) fn and(mut self, verdict: Result<()>) -> Self {
        self.error = self.error.or(verdict.err().map(|error| format!("{error:#}")));
        self
    }
}

/// The figures of one cell, over all rounds that count. Durations are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Summary {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    /// Calls that succeeded; all other figures are computed from these.
    pub(crate) calls: usize,
    /// Calls that failed.
    pub(crate) errors: usize,
    #[serde(flatten)]
    pub(crate) times: Percentiles,
    /// Calls per second while the phases ran.
    pub(crate) rate: f64,
    /// CPU time per call, by process, including the work of the daemons after the call.
    pub(crate) cpu: CpuTimes,
    /// Figures of each part. Parts overlap, and medians do not add up.
    pub(crate) parts: BTreeMap<String, Percentiles>,
    /// The median of each round, in order: the spread shows the influence of other load.
    pub(crate) rounds: Vec<f64>,
    /// The p99 of each round, in order.
    pub(crate) rounds_p99: Vec<f64>,
}

/// The figures of every cell, in order.
pub(crate) fn summarise(phases: &[Phase]) -> Vec<Summary> {
    let mut cells: BTreeMap<Cell, Vec<&Phase>> = BTreeMap::new();
    for phase in phases.iter().filter(|phase| phase.round > 0) {
        cells.entry(phase.cell).or_default().push(phase);
    }
    cells.into_iter().map(|(cell, phases)| Summary::of(cell, &phases)).collect()
}

impl Summary {
    pub(crate) fn of(cell: Cell, phases: &[&Phase]) -> Self {
        let succeeded: Vec<&Call> = phases.iter().flat_map(|phase| phase.succeeded()).collect();
        let all: usize = phases.iter().map(|phase| phase.calls.len()).sum();
        let wall: f64 = phases.iter().map(|phase| phase.wall).sum();
        let mut cpu = CpuTimes::new();
        for (process, time) in phases.iter().flat_map(|phase| &phase.cpu) {
            // Exact: there are fewer calls than 2^52.
            *cpu.entry(*process).or_default() += time / all as f64;
        }
        let mut parts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (part, time) in succeeded.iter().flat_map(|call| &call.parts) {
            parts.entry(part.clone()).or_default().push(*time);
        }
        let rounds: Vec<Percentiles> = phases
            .iter()
            .map(|phase| Percentiles::of(phase.succeeded().map(|call| call.duration)))
            .collect();
        Self {
            cell,
            calls: succeeded.len(),
            errors: all - succeeded.len(),
            times: Percentiles::of(succeeded.iter().map(|call| call.duration)),
            rate: if wall > 0.0 { succeeded.len() as f64 * 1e3 / wall } else { 0.0 },
            cpu,
            parts: parts.into_iter().map(|(part, times)| (part, Percentiles::of(times))).collect(),
            rounds: rounds.iter().map(|round| round.p50).collect(),
            rounds_p99: rounds.iter().map(|round| round.p99).collect(),
        }
    }

    /// The p99 of the median round. One disturbance by other load decides the p99 of its round and
    /// that of all calls, but not that of the median round.
    pub(crate) fn usual_p99(&self) -> f64 {
        median(self.rounds_p99.iter().copied())
    }
}

impl Phase {
    fn succeeded(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.error.is_none())
    }
}

// The names in the table are those in `bench.json`.
macro_rules! named_as_in_json {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        }
    )*};
}
named_as_in_json!(Verb Contestant Process);

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Cell = Cell { verb: Verb::Add, ports: 0, at_once: 1, contestant: Contestant::Ours };

    fn summary(phases: &[(u32, f64, &[f64])], error: Option<&str>) -> Summary {
        let call = |duration: &f64| Call {
            duration: *duration,
            parts: BTreeMap::from([("veth".to_owned(), duration / 2.0)]),
            ..Call::default()
        };
        let phase = |(round, wall, durations): &(u32, f64, &[f64])| Phase {
            cell: CELL,
            round: *round,
            wall: *wall,
            calls: durations.iter().map(call).collect(),
            cpu: BTreeMap::from([(Process::Caller, 6.0)]),
        };
        let mut phases: Vec<Phase> = phases.iter().map(phase).collect();
        phases[0].calls[0].error = error.map(str::to_owned);
        summarise(&phases).remove(0)
    }

    #[test]
    fn rounds_are_put_together_and_the_first_does_not_count() {
        let summary =
            summary(&[(0, 1.0, &[900.0]), (1, 40.0, &[10.0, 30.0]), (2, 20.0, &[20.0])], None);
        assert_eq!((summary.calls, summary.times.p50, summary.times.max), (3, 20.0, 30.0));
        assert_eq!((&summary.rounds[..], summary.rate), (&[10.0, 20.0][..], 50.0));
        assert_eq!((summary.cpu[&Process::Caller], summary.parts["veth"].p50), (4.0, 10.0));
    }

    #[test]
    fn a_call_that_failed_is_counted_and_not_timed() {
        let summary = summary(&[(1, 10.0, &[1.0, 5.0])], Some("no"));
        assert_eq!((summary.calls, summary.errors, summary.times.p50), (1, 1, 5.0));
        assert_eq!(summary.parts["veth"].p50, 2.5);
    }
}
