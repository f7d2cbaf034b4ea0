//! The pass and fail criteria of the benchmark. Pure.
//!
//! Limits are relative to figures of the same run, so that a slow machine moves both sides.

use std::fmt;

use serde::Serialize;

use super::{
    measurements::{Cell, Contestant, Measurements, Process, Verb},
    processes::Growth,
    statistics::{Summaries, Summary},
};

/// Largest permitted size of the plugin's executable. Each CNI call executes the file anew.
const MAX_PLUGIN_BYTES: u64 = 4_000_000;
const MEGABYTE: f64 = 1e6;

/// One criterion, and whether it is met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Gate {
    /// The criterion.
    pub(crate) demand: &'static str,
    pub(crate) kind: Kind,
    pub(crate) holds: bool,
    /// The measured value and the limit.
    pub(crate) found: String,
}

/// The kind of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Durations or rates. Other load on the machine affects them.
    Time,
    /// Results that do not depend on the machine.
    Outcome,
}

/// Leftovers of the run on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leftovers {
    None,
    /// The difference.
    Some(String),
}

/// One figure of the plugin, compared with the same figure of another contestant.
struct Comparison {
    demand: &'static str,
    verb: Verb,
    at_once: usize,
    figure: Figure,
    with: Contestant,
    /// Computes the limit from the other contestant's figure.
    limit: fn(f64) -> f64,
}

#[derive(Clone, Copy)]
enum Figure {
    P50,
    /// Of the median round.
    P99,
    Rate,
}

const COMPARISONS: [Comparison; 5] = [
    Comparison {
        demand: "ADD at one at a time: p50 at most the floor's + 5 ms",
        verb: Verb::Add,
        at_once: 1,
        figure: Figure::P50,
        with: Contestant::Floor,
        limit: |floor| floor + 5.0,
    },
    Comparison {
        demand: "ADD at 32 at once: p99 of the median round at most 1.5 times the floor's",
        verb: Verb::Add,
        at_once: 32,
        figure: Figure::P99,
        with: Contestant::Floor,
        limit: |floor| 1.5 * floor,
    },
    Comparison {
        demand: "ADD at 100 at once: at least 0.9 times the floor's rate",
        verb: Verb::Add,
        at_once: 100,
        figure: Figure::Rate,
        with: Contestant::Floor,
        limit: |floor| 0.9 * floor,
    },
    Comparison {
        demand: "DEL at one at a time: p50 at most 1.3 times the floor's + 2 ms",
        verb: Verb::Del,
        at_once: 1,
        figure: Figure::P50,
        with: Contestant::Floor,
        limit: |floor| 1.3 * floor + 2.0,
    },
    Comparison {
        demand: "VERSION: p50 at most that of /bin/true + 1 ms",
        verb: Verb::Version,
        at_once: 1,
        figure: Figure::P50,
        with: Contestant::BinTrue,
        limit: |floor| floor + 1.0,
    },
];

/// Only where upstream's plugin was measured.
const WITH_UPSTREAM: Comparison = Comparison {
    demand: "ADD at 100 at once: at least 8 times the rate of upstream's plugin",
    verb: Verb::Add,
    at_once: 100,
    figure: Figure::Rate,
    with: Contestant::Upstream,
    limit: |upstream| 8.0 * upstream,
};

impl Figure {
    fn of(self, summary: &Summary) -> f64 {
        match self {
            Self::P50 => summary.p50,
            Self::P99 => summary.usual_p99(),
            Self::Rate => summary.rate,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::P50 | Self::P99 => "ms",
            Self::Rate => "a second",
        }
    }

    /// Whether `measured` is within `limit`: times have an upper one, rates a lower one.
    fn within(self, measured: f64, limit: f64) -> bool {
        match self {
            Self::P50 | Self::P99 => measured <= limit,
            Self::Rate => measured >= limit,
        }
    }
}

impl Gate {
    /// Every criterion.
    pub(crate) fn all(
        summaries: &Summaries,
        measurements: &Measurements,
        leftovers: &Leftovers,
        plugin_bytes: u64,
    ) -> Vec<Self> {
        let was_upstream = summaries.keys().any(|cell| cell.contestant == Contestant::Upstream);
        let mut gates: Vec<Self> = COMPARISONS
            .iter()
            .chain(was_upstream.then_some(&WITH_UPSTREAM))
            .map(|comparison| Self::compare(comparison, summaries))
            .collect();
        gates.extend([
            Self::size(plugin_bytes),
            Self::no_errors(measurements),
            Self::nothing_left(leftovers),
            Self::nothing_held(&measurements.processes),
        ]);
        gates
    }

    fn compare(comparison: &Comparison, summaries: &Summaries) -> Self {
        let Comparison { demand, verb, at_once, figure, with, limit } = comparison;
        let of = |contestant| {
            let cell = Cell { verb: *verb, ports: 0, at_once: *at_once, contestant };
            summaries.get(&cell).filter(|summary| summary.calls > 0).map(|summary| figure.of(summary))
        };
        let gate = |holds, found| Self { demand, kind: Kind::Time, holds, found };
        let (Some(ours), Some(other)) = (of(Contestant::Ours), of(*with)) else {
            return gate(false, "not measured".to_owned());
        };
        let (limit, unit) = (limit(other), figure.unit());
        gate(figure.within(ours, limit), format!("{ours:.2} {unit}, limit {limit:.2}, {with} {other:.2}"))
    }

    fn size(bytes: u64) -> Self {
        // Exact: an executable is smaller than 2^52 bytes.
        let megabytes = |bytes: u64| bytes as f64 / MEGABYTE;
        let found = format!("{:.2} MB, limit {:.2} MB", megabytes(bytes), megabytes(MAX_PLUGIN_BYTES));
        Self { demand: "size of the plugin", kind: Kind::Outcome, holds: bytes <= MAX_PLUGIN_BYTES, found }
    }

    /// Counts failed calls, also in the warm-up. Failures of upstream's plugin are shown in the table only.
    fn no_errors(measurements: &Measurements) -> Self {
        let phases = || measurements.phases.iter().filter(|phase| !phase.cell.contestant.is_slow());
        let calls: usize = phases().map(|phase| phase.calls.len()).sum();
        let errors: Vec<String> = phases()
            .flat_map(|phase| {
                phase.calls.iter().filter_map(|call| call.error.as_ref()).map(move |error| (phase, error))
            })
            .map(|(phase, error)| {
                format!("{} {} of {}: {error}", phase.cell.contestant, phase.cell.verb, phase.cell.at_once)
            })
            .collect();
        let found = match errors.first() {
            None => format!("{calls} calls, 0 errors"),
            Some(first) => format!("{calls} calls, {} errors; first: {first}", errors.len()),
        };
        Self { demand: "no call fails", kind: Kind::Outcome, holds: errors.is_empty() && calls > 0, found }
    }

    fn nothing_held(processes: &[Growth]) -> Self {
        let text = |Growth { process, before, after }: &Growth| {
            let (of, ot) = (before.descriptors, before.threads);
            format!(
                "{process} {} descriptors (before {of}), {} threads (before {ot})",
                after.descriptors, after.threads
            )
        };
        let server = |growth: &&Growth| growth.process == Process::Server;
        let grown = processes.iter().filter(server).any(Growth::has_grown);
        let found: Vec<String> = processes.iter().filter(server).map(text).collect();
        Self {
            demand: "the server holds no more descriptors and threads than after the warm-up",
            kind: Kind::Outcome,
            holds: !found.is_empty() && !grown,
            found: if found.is_empty() { "not measured".to_owned() } else { found.join(", ") },
        }
    }

    fn nothing_left(leftovers: &Leftovers) -> Self {
        let demand = "links, namespaces and rows are what they were before";
        match leftovers {
            Leftovers::None => Self { demand, kind: Kind::Outcome, holds: true, found: "equal".to_owned() },
            Leftovers::Some(difference) => {
                Self { demand, kind: Kind::Outcome, holds: false, found: difference.clone() }
            }
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { demand, kind: _, holds, found } = self;
        write!(f, "{}  {demand}: {found}", if *holds { "held  " } else { "MISSED" })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::{
        measurements::{Call, Phase},
        processes::Holding,
    };

    /// The plugin's figure in each comparison, exactly at its limit: the other contestant's figure is 10.
    const AT_LIMITS: [f64; COMPARISONS.len()] = [15.0, 15.0, 9.0, 15.0, 11.0];

    fn summaries(figures: [f64; COMPARISONS.len()]) -> Summaries {
        let mut summaries = Summaries::new();
        for (Comparison { verb, at_once, figure, with, .. }, ours) in COMPARISONS.iter().zip(figures) {
            for (contestant, value) in [(*with, 10.0), (Contestant::Ours, ours)] {
                let cell = Cell { verb: *verb, ports: 0, at_once: *at_once, contestant };
                let summary: &mut Summary =
                    summaries.entry(cell).or_insert_with(|| Summary { calls: 1, ..Summary::default() });
                match figure {
                    Figure::P50 => summary.p50 = value,
                    Figure::P99 => summary.rounds_p99 = vec![1.0, value, 1000.0],
                    Figure::Rate => summary.rate = value,
                }
            }
        }
        summaries
    }

    fn measurements(error: Option<&str>) -> Measurements {
        let cell = Cell { verb: Verb::Add, ports: 0, at_once: 8, contestant: Contestant::Ours };
        let calls = vec![Call { duration: 1.0, parts: Vec::new(), error: error.map(str::to_owned) }];
        let held = Holding { rss_kb: 1, peak_rss_kb: 1, descriptors: 20, threads: 4 };
        let processes = vec![Growth { process: Process::Server, before: held, after: held }];
        Measurements {
            phases: vec![Phase { cell, round: 0, wall: 1.0, calls, cpu: BTreeMap::new() }],
            processes,
        }
    }

    fn missed(summaries: &Summaries, error: Option<&str>, leftovers: &Leftovers, bytes: u64) -> Vec<String> {
        let gates = Gate::all(summaries, &measurements(error), leftovers, bytes);
        gates.iter().filter(|gate| !gate.holds).map(ToString::to_string).collect()
    }

    #[test]
    fn all_gates_hold_at_their_limits() {
        assert_eq!(missed(&summaries(AT_LIMITS), None, &Leftovers::None, 4_000_000), Vec::<String>::new());
    }

    #[test]
    fn each_gate_is_missed_beyond_its_limit_and_says_so() {
        let one = |missed: Vec<String>, word: &str| {
            assert!(missed.len() == 1 && missed[0].contains(word), "{word}: {missed:?}")
        };
        for (index, Comparison { demand, figure, .. }) in COMPARISONS.iter().enumerate() {
            let mut figures = AT_LIMITS;
            figures[index] += if matches!(figure, Figure::Rate) { -0.1 } else { 0.1 };
            one(missed(&summaries(figures), None, &Leftovers::None, 1), demand);
        }
        let fine = &summaries(AT_LIMITS);
        one(missed(fine, None, &Leftovers::None, 4_000_001), "size");
        one(missed(fine, Some("code 11"), &Leftovers::None, 1), "ours ADD of 8: code 11");
        one(missed(fine, None, &Leftovers::Some("+ link x".to_owned()), 1), "+ link x");
    }

    #[test]
    fn upstreams_plugin_counts_if_it_was_measured() {
        let mut summaries = summaries(AT_LIMITS);
        let cell = Cell { verb: Verb::Add, ports: 0, at_once: 100, contestant: Contestant::Upstream };
        summaries.insert(cell, Summary { calls: 1, rate: 2.0, ..Summary::default() });
        let missed = missed(&summaries, None, &Leftovers::None, 1);
        assert!(missed.len() == 1 && missed[0].contains("upstream's plugin"), "{missed:?}");
    }

    #[test]
    fn a_server_that_holds_on_to_more_is_a_leak() {
        let mut grown = measurements(None);
        grown.processes[0].after.descriptors += 1;
        let gates = Gate::all(&summaries(AT_LIMITS), &grown, &Leftovers::None, 1);
        let missed: Vec<String> = gates.iter().filter(|gate| !gate.holds).map(ToString::to_string).collect();
        assert!(missed.len() == 1 && missed[0].contains("21 descriptors (before 20)"), "{missed:?}");
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        assert_eq!(missed(&Summaries::new(), None, &Leftovers::None, 1).len(), COMPARISONS.len());
        let gates = Gate::all(&Summaries::new(), &Measurements::default(), &Leftovers::None, 1);
        let missed = gates.iter().filter(|gate| !gate.holds).count();
        assert_eq!(
            missed,
            COMPARISONS.len() + 2,
            "calls that were not made and a server that was not sampled do not hold either"
        );
    }
}
