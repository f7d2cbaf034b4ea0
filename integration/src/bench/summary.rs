//! Turns calls into figures: percentiles, rates, CPU time per call. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    measurements::{Call, Cell, Measurements, Phase},
    processes::CpuTimes,
};
use crate::report::percentiles::{Percentiles, median};

/// The figures of one cell, over all rounds that count. Durations are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
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

pub(crate) type Summaries = BTreeMap<Cell, Summary>;

/// The figures of every cell.
pub(crate) fn summarise(measurements: &Measurements) -> Summaries {
    let mut phases: BTreeMap<Cell, Vec<&Phase>> = BTreeMap::new();
    for phase in measurements.phases.iter().filter(|phase| phase.round > 0) {
        phases.entry(phase.cell).or_default().push(phase);
    }
    phases.into_iter().map(|(cell, phases)| (cell, Summary::of(&phases))).collect()
}

impl Summary {
    fn of(phases: &[&Phase]) -> Self {
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
        let rounds: Vec<Percentiles> =
            phases.iter().map(|phase| Percentiles::of(phase.succeeded().map(|call| call.duration))).collect();
        Self {
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

    /// The p99 of the median round. One disturbance by other load decides the p99 of its round and that of
    /// all calls, but not that of the median round.
    pub(crate) fn usual_p99(&self) -> f64 {
        median(self.rounds_p99.iter().copied())
    }
}

impl Phase {
    fn succeeded(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.error.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurements::{Contestant, Process, Verb};

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
            cpu: BTreeMap::from([(Process::Vswitchd, 6.0)]),
        };
        let mut phases: Vec<Phase> = phases.iter().map(phase).collect();
        phases[0].calls[0].error = error.map(str::to_owned);
        summarise(&Measurements { phases, ..Measurements::default() })[&CELL].clone()
    }

    #[test]
    fn rounds_are_put_together_and_the_first_does_not_count() {
        let summary = summary(&[(0, 1.0, &[900.0]), (1, 40.0, &[10.0, 30.0]), (2, 20.0, &[20.0])], None);
        assert_eq!((summary.calls, summary.times.p50, summary.times.max), (3, 20.0, 30.0));
        assert_eq!((&summary.rounds[..], summary.rate), (&[10.0, 20.0][..], 50.0));
        assert_eq!((summary.cpu[&Process::Vswitchd], summary.parts["veth"].p50), (4.0, 10.0));
    }

    #[test]
    fn a_call_that_failed_is_counted_and_not_timed() {
        let summary = summary(&[(1, 10.0, &[1.0, 5.0])], Some("no"));
        assert_eq!((summary.calls, summary.errors, summary.times.p50), (1, 1, 5.0));
        assert_eq!(summary.parts["veth"].p50, 2.5);
    }
}
