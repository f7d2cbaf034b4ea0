//! Turns calls into figures: percentiles, rates, medians of parts. Pure.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::measurements::{Cell, Measurements, Part, Phase, Process};

/// The figures of one cell, over all rounds that count. Durations are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Calls that succeeded; all other figures are computed from these.
    pub(crate) calls: usize,
    /// Calls that failed.
    pub(crate) errors: usize,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    /// Calls per second while the phases ran.
    pub(crate) rate: f64,
    /// CPU time per call, by process, including the work of the daemons after the call.
    pub(crate) cpu: BTreeMap<Process, f64>,
    /// Figures of each part. Parts overlap, and medians do not add up.
    #[serde(serialize_with = "by_name")]
    pub(crate) parts: BTreeMap<Part, PartSummary>,
    /// The median of each round, in order: the spread shows the influence of other load.
    pub(crate) rounds: Vec<f64>,
    /// The p99 of each round, in order.
    pub(crate) rounds_p99: Vec<f64>,
}

/// The times of one part, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct PartSummary {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
}

pub(crate) type Summaries = BTreeMap<Cell, Summary>;

/// The figures of every cell.
pub(crate) fn summarise(measurements: &Measurements) -> Summaries {
    let mut phases: BTreeMap<Cell, Vec<&Phase>> = BTreeMap::new();
    for phase in measurements.phases.iter().filter(|phase| phase.round > 0) {
        phases.entry(phase.cell).or_default().push(phase);
    }
    phases.into_iter().map(|(cell, phases)| (cell, summary(&phases))).collect()
}

fn summary(phases: &[&Phase]) -> Summary {
    let succeeded = |phase: &Phase| -> Vec<f64> {
        sorted(phase.calls.iter().filter(|call| call.error.is_none()).map(|call| call.duration).collect())
    };
    let durations = sorted(phases.iter().flat_map(|phase| succeeded(phase)).collect());
    let all: usize = phases.iter().map(|phase| phase.calls.len()).sum();
    let wall: f64 = phases.iter().map(|phase| phase.wall).sum();
    let mut cpu: BTreeMap<Process, f64> = BTreeMap::new();
    let mut parts: BTreeMap<Part, Vec<f64>> = BTreeMap::new();
    for phase in phases {
        for (process, time) in &phase.cpu {
            *cpu.entry(*process).or_default() += time / count(all);
        }
        for (part, time) in
            phase.calls.iter().filter(|call| call.error.is_none()).flat_map(|call| &call.parts)
        {
            parts.entry(*part).or_default().push(*time);
        }
    }
    Summary {
        calls: durations.len(),
        errors: all - durations.len(),
        p50: percentile(&durations, 50),
        p90: percentile(&durations, 90),
        p99: percentile(&durations, 99),
        max: percentile(&durations, 100),
        rate: if wall > 0.0 { count(durations.len()) * 1e3 / wall } else { 0.0 },
        cpu,
        parts: parts.into_iter().map(|(part, times)| (part, PartSummary::of(times))).collect(),
        rounds: phases.iter().map(|phase| percentile(&succeeded(phase), 50)).collect(),
        rounds_p99: phases.iter().map(|phase| percentile(&succeeded(phase), 99)).collect(),
    }
}

impl Summary {
    /// The p99 of the median round. One disturbance by other load decides the p99 of its round and that of
    /// all calls, but not that of the median round.
    pub(crate) fn usual_p99(&self) -> f64 {
        percentile(&sorted(self.rounds_p99.clone()), 50)
    }
}

impl PartSummary {
    fn of(times: Vec<f64>) -> Self {
        let times = sorted(times);
        let [p50, p90, p99] = [50, 90, 99].map(|percent| percentile(&times, percent));
        Self { p50, p90, p99 }
    }
}

pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The nearest-rank percentile: the smallest value that at least `percent` percent of the values do not
/// exceed; 0 for an empty list.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// A number of calls as a divisor.
fn count(number: usize) -> f64 {
    // Exact: there are fewer calls than 2^52.
    number as f64
}

fn by_name<S: Serializer>(parts: &BTreeMap<Part, PartSummary>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(parts.iter().map(|(part, times)| (part.to_string(), times)))
}

#[cfg(test)]
mod tests {
    use contract::stage::Stage;

    use super::*;
    use crate::bench::measurements::{Call, Contestant, Verb};

    const CELL: Cell = Cell { verb: Verb::Add, ports: 0, at_once: 1, contestant: Contestant::Ours };

    fn phase(round: u32, wall: f64, durations: &[f64]) -> Phase {
        let call = |duration: &f64| Call {
            duration: *duration,
            parts: vec![(Part::Stage(Stage::Veth), duration / 2.0)],
            error: None,
        };
        let cpu = BTreeMap::from([(Process::Vswitchd, 6.0)]);
        Phase { cell: CELL, round, wall, calls: durations.iter().map(call).collect(), cpu }
    }

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([50, 90, 99, 100].map(|percent| percentile(&hundred, percent)), [50.0, 90.0, 99.0, 100.0]);
        assert_eq!([50, 99].map(|percent| percentile(&[7.0, 9.0, 11.0], percent)), [9.0, 11.0]);
        assert_eq!(percentile(&[], 50), 0.0);
    }

    #[test]
    fn rounds_are_put_together_and_the_first_does_not_count() {
        let measurements = Measurements {
            phases: vec![phase(0, 1.0, &[900.0]), phase(1, 40.0, &[10.0, 30.0]), phase(2, 20.0, &[20.0])],
            ..Measurements::default()
        };
        let summaries = summarise(&measurements);
        let summary = &summaries[&CELL];
        assert_eq!((summary.calls, summary.p50, summary.max), (3, 20.0, 30.0));
        assert_eq!(summary.rounds, [10.0, 20.0]);
        assert_eq!(summary.rate, 50.0);
        assert_eq!(summary.cpu[&Process::Vswitchd], 4.0);
        assert_eq!(summary.parts[&Part::Stage(Stage::Veth)].p50, 10.0);
    }

    #[test]
    fn a_call_that_failed_is_counted_and_not_timed() {
        let mut failed = phase(1, 10.0, &[1.0, 5.0]);
        failed.calls[0].error = Some("no".to_owned());
        let summaries = summarise(&Measurements { phases: vec![failed], ..Measurements::default() });
        let summary = &summaries[&CELL];
        assert_eq!((summary.calls, summary.errors, summary.p50), (1, 1, 5.0));
        assert_eq!(summary.parts[&Part::Stage(Stage::Veth)].p50, 2.5);
    }
}
