//! The pass and fail criteria of the benchmark. Pure.
//!
//! Limits are relative to figures of the same run, so that a slow machine moves both sides.

use std::fmt;

use serde::Serialize;

use super::{
    measurements::{Cell, Contestant, Measurements, Process, Verb},
    processes::Growth,
    summary::{Summaries, Summary},
};

/// Largest permitted size of the plugin's executable in bytes. Each CNI call executes the file anew.
const MAX_PLUGIN: u64 = 4_000_000;

/// One criterion, and whether it is met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Gate {
    /// The criterion.
    pub(crate) demand: String,
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

/// A figure: its name, its value, and how that has to compare with its limit.
type Figure = (&'static str, fn(&Summary) -> f64, fn(&f64, &f64) -> bool);

const P50: Figure = ("p50", |summary| summary.times.p50, f64::le);
const P99: Figure = ("p99 of the median round", Summary::usual_p99, f64::le);
const RATE: Figure = ("rate", |summary| summary.rate, f64::ge);

/// One figure of the plugin, compared with the same figure of another contestant: which call, how many at
/// once, the limit in words, and computed from the other contestant's figure.
type Comparison = (Verb, usize, Figure, Contestant, &'static str, fn(f64) -> f64);

const COMPARISONS: [Comparison; 5] = [
    (Verb::Add, 1, P50, Contestant::Floor, "at most the floor's + 5 ms", |floor| floor + 5.0),
    (Verb::Add, 32, P99, Contestant::Floor, "at most 1.5 times the floor's", |floor| 1.5 * floor),
    (Verb::Add, 100, RATE, Contestant::Floor, "at least 0.9 times the floor's", |floor| 0.9 * floor),
    (Verb::Del, 1, P50, Contestant::Floor, "at most 1.3 times the floor's + 2 ms", |f| 1.3 * f + 2.0),
    (Verb::Version, 1, P50, Contestant::BinTrue, "at most that of /bin/true + 1 ms", |time| time + 1.0),
];
/// Only where upstream's plugin was measured.
const WITH_UPSTREAM: Comparison =
    (Verb::Add, 100, RATE, Contestant::Upstream, "at least 8 times upstream's", |other| 8.0 * other);

impl Gate {
    /// Every criterion. `leftovers` is the difference of the node before and after, if there is one.
    pub(crate) fn all(
        summaries: &Summaries,
        measurements: &Measurements,
        leftovers: Option<String>,
        plugin_bytes: u64,
    ) -> Vec<Self> {
        let was_upstream = summaries.keys().any(|cell| cell.contestant == Contestant::Upstream);
        let comparisons = COMPARISONS.iter().chain(was_upstream.then_some(&WITH_UPSTREAM));
        // Exact: an executable is smaller than 2^52 bytes.
        let size = format!("{:.2} MB, limit {:.2}", plugin_bytes as f64 / 1e6, MAX_PLUGIN as f64 / 1e6);
        let equal = "links, namespaces and rows are what they were before";
        comparisons
            .map(|comparison| Self::compare(comparison, summaries))
            .chain([
                Self::outcome("size of the plugin", plugin_bytes <= MAX_PLUGIN, size),
                Self::no_errors(measurements),
                Self::outcome(equal, leftovers.is_none(), leftovers.unwrap_or_else(|| "equal".to_owned())),
                Self::nothing_held(&measurements.processes),
            ])
            .collect()
    }

    fn outcome(demand: &str, holds: bool, found: String) -> Self {
        Self { demand: demand.to_owned(), kind: Kind::Outcome, holds, found }
    }

    fn compare(comparison: &Comparison, summaries: &Summaries) -> Self {
        let &(verb, at_once, (name, value, is_within), with, words, limit) = comparison;
        let of = |contestant| {
            let summary = summaries.get(&Cell { verb, ports: 0, at_once, contestant })?;
            (summary.calls > 0).then(|| value(summary))
        };
        let (holds, found) = match (of(Contestant::Ours), of(with)) {
            (Some(ours), Some(other)) => (
                is_within(&ours, &limit(other)),
                format!("{ours:.2}, limit {:.2}, {with} {other:.2}", limit(other)),
            ),
            _ => (false, "not measured".to_owned()),
        };
        Self { demand: format!("{verb}, {at_once} at once: {name} {words}"), kind: Kind::Time, holds, found }
    }

    /// Counts failed calls, also in the warm-up. Failures of upstream's plugin are shown in the table only.
    fn no_errors(measurements: &Measurements) -> Self {
        let phases = measurements.phases.iter().filter(|phase| phase.cell.contestant != Contestant::Upstream);
        let calls: Vec<_> =
            phases.flat_map(|phase| phase.calls.iter().map(|call| (phase.cell, &call.error))).collect();
        let errors = calls.iter().filter(|(_, error)| error.is_some()).count();
        let first = calls.iter().find_map(|(cell, error)| Some((cell, error.as_ref()?)));
        let first = first.map(|(Cell { verb, at_once, contestant, .. }, error)| {
            format!("; first: {contestant} {verb} of {at_once}: {error}")
        });
        let found = format!("{} calls, {errors} errors{}", calls.len(), first.unwrap_or_default());
        Self::outcome("no call fails", errors == 0 && !calls.is_empty(), found)
    }

    fn nothing_held(processes: &[Growth]) -> Self {
        let server = processes.iter().find(|growth| growth.process == Process::Server);
        let found = server.map_or("not measured".to_owned(), |Growth { before, after, .. }| {
            format!(
                "{} descriptors (before {}), {} threads (before {})",
                after.descriptors, before.descriptors, after.threads, before.threads
            )
        });
        let demand = "the server holds no more descriptors and threads than after the warm-up";
        Self::outcome(demand, server.is_some_and(|server| !server.has_grown()), found)
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
    use super::*;
    use crate::bench::{
        measurements::{Call, Phase},
        processes::{CpuTimes, Holding},
    };
    use crate::report::percentiles::Percentiles;

    /// The plugin's figure in each comparison, exactly at its limit: the other contestant's figure is 10.
    const AT_LIMITS: [f64; COMPARISONS.len()] = [15.0, 15.0, 9.0, 15.0, 11.0];

    /// All figures are at their limits, but that of comparison `spoilt`, which is a tenth beyond.
    fn summaries(spoilt: Option<usize>) -> Summaries {
        let all = |value| Summary {
            calls: 1,
            times: Percentiles { p50: value, ..Percentiles::default() },
            rounds_p99: vec![1.0, value, 1000.0],
            rate: value,
            ..Summary::default()
        };
        let mut summaries = Summaries::new();
        for (index, (verb, at_once, (.., is_within), with, ..)) in COMPARISONS.into_iter().enumerate() {
            let beyond = if is_within(&1.0, &2.0) { 0.1 } else { -0.1 };
            let ours = AT_LIMITS[index] + if spoilt == Some(index) { beyond } else { 0.0 };
            for (contestant, value) in [(with, 10.0), (Contestant::Ours, ours)] {
                summaries.insert(Cell { verb, ports: 0, at_once, contestant }, all(value));
            }
        }
        summaries
    }

    fn missed(
        summaries: &Summaries,
        error: Option<&str>,
        left: Option<&str>,
        bytes: u64,
        more: usize,
    ) -> Vec<String> {
        let cell = Cell { verb: Verb::Add, ports: 0, at_once: 8, contestant: Contestant::Ours };
        let calls = vec![Call { error: error.map(str::to_owned), ..Call::default() }];
        let before = Holding { rss_kb: 1, peak_rss_kb: 1, descriptors: 20, threads: 4 };
        let after = Holding { descriptors: before.descriptors + more, ..before };
        let measurements = Measurements {
            phases: vec![Phase { cell, round: 0, wall: 1.0, calls, cpu: CpuTimes::new() }],
            processes: vec![Growth { process: Process::Server, before, after }],
        };
        let gates = Gate::all(summaries, &measurements, left.map(str::to_owned), bytes);
        gates.iter().filter(|gate| !gate.holds).map(ToString::to_string).collect()
    }

    #[test]
    fn each_gate_holds_at_its_limit_and_is_missed_beyond_it_and_says_so() {
        let one = |missed: Vec<String>, word: &str| {
            assert!(missed.len() == 1 && missed[0].contains(word), "{word}: {missed:?}")
        };
        let fine = &summaries(None);
        assert_eq!(missed(fine, None, None, 4_000_000, 0), Vec::<String>::new());
        for (index, (.., words, _)) in COMPARISONS.into_iter().enumerate() {
            one(missed(&summaries(Some(index)), None, None, 1, 0), words);
        }
        one(missed(fine, None, None, 4_000_001, 0), "size");
        one(missed(fine, Some("code 11"), None, 1, 0), "1 errors; first: ours ADD of 8: code 11");
        one(missed(fine, None, Some("+ link x"), 1, 0), "+ link x");
        one(missed(fine, None, None, 1, 1), "21 descriptors (before 20)");
    }

    #[test]
    fn upstreams_plugin_counts_if_it_was_measured() {
        let mut summaries = summaries(None);
        let cell = Cell { verb: Verb::Add, ports: 0, at_once: 100, contestant: Contestant::Upstream };
        summaries.insert(cell, Summary { calls: 1, rate: 2.0, ..Summary::default() });
        let missed = missed(&summaries, None, None, 1, 0);
        assert!(missed.len() == 1 && missed[0].contains("upstream's"), "{missed:?}");
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let gates = Gate::all(&Summaries::new(), &Measurements::default(), None, 1);
        // The calls that were not made and the server that was not sampled are the two more.
        assert_eq!(gates.iter().filter(|gate| !gate.holds).count(), COMPARISONS.len() + 2);
    }
}
