//! The pass and fail criteria of the benchmark. Pure.
//!
//! Limits are relative to figures of the same run, so that a slow machine moves both sides.

use std::fmt;

use integration::Program;
use serde::Serialize;

use super::{
    measurements::{Cell, Contestant, Phase, Summary, Verb},
    processes::Growth,
};

/// Largest permitted size of the plugin's executable in bytes. Each CNI call executes the file
/// anew.
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

/// One figure of the plugin, compared with the same figure of another contestant: which call, how
/// many at once, the limit in words, and computed from the other contestant's figure.
type Comparison = (Verb, usize, Figure, Contestant, &'static str, fn(f64) -> f64);

const COMPARISONS: [Comparison; 5] = [
    (Verb::Add, 1, P50, Contestant::Floor, "at most the floor's + 5 ms", |floor| floor + 5.0),
    (Verb::Add, 32, P99, Contestant::Floor, "at most 1.5 times the floor's", |floor| 1.5 * floor),
    (Verb::Add, 100, RATE, Contestant::Floor, "at least 0.9 times the floor's", |floor| {
        0.9 * floor
    }),
    (Verb::Del, 1, P50, Contestant::Floor, "at most 1.3 times the floor's + 2 ms", |f| {
        1.3 * f + 2.0
    }),
    (Verb::Version, 1, P50, Contestant::BinTrue, "at most that of /bin/true + 1 ms", |time| {
        time + 1.0
    }),
];
/// Only where upstream's plugin was measured.
const WITH_UPSTREAM: Comparison =
    (Verb::Add, 100, RATE, Contestant::Upstream, "at least 8 times upstream's", |other| {
        8.0 * other
    });

impl Gate {
    /// Every criterion. `leftovers` is the difference of the node before and after, if there is
    /// one.
    pub(crate) fn all(
        summaries: &[Summary],
        phases: &[Phase],
        processes: &[Growth],
        leftovers: Option<String>,
        plugin_bytes: u64,
    ) -> Vec<Self> {
        let was_upstream =
            summaries.iter().any(|summary| summary.cell.contestant == Contestant::Upstream);
        let comparisons = COMPARISONS.iter().chain(was_upstream.then_some(&WITH_UPSTREAM));
        // Exact: an executable is smaller than 2^52 bytes.
        let size =
            format!("{:.2} MB, limit {:.2}", plugin_bytes as f64 / 1e6, MAX_PLUGIN as f64 / 1e6);
        let equal = "links, namespaces and rows are what they were before";
        comparisons
            .map(|comparison| Self::compare(comparison, summaries))
            .chain([
                Self::outcome("size of the plugin", plugin_bytes <= MAX_PLUGIN, size),
                Self::no_errors(phases),
                Self::outcome(
                    equal,
                    leftovers.is_none(),
                    leftovers.unwrap_or_else(|| "equal".to_owned()),
                ),
                Self::nothing_held(processes),
            ])
            .collect()
    }

    fn outcome(demand: &str, holds: bool, found: String) -> Self {
        Self { demand: demand.to_owned(), kind: Kind::Outcome, holds, found }
    }

    fn compare(comparison: &Comparison, summaries: &[Summary]) -> Self {
        let &(verb, at_once, (name, value, is_within), with, words, limit) = comparison;
        let of = |contestant| {
            let cell = Cell { verb, ports: 0, at_once, contestant };
            let summary = summaries.iter().find(|summary| summary.cell == cell)?;
            (summary.calls > 0).then(|| value(summary))
        };
        let (holds, found) = match (of(Contestant::Ours), of(with)) {
            (Some(ours), Some(other)) => (
                is_within(&ours, &limit(other)),
                format!("{ours:.2}, limit {:.2}, {with} {other:.2}", limit(other)),
            ),
            _ => (false, "not measured".to_owned()),
        };
        Self {
            demand: format!("{verb}, {at_once} at once: {name} {words}"),
            kind: Kind::Time,
            holds,
            found,
        }
    }

    /// Counts failed calls, also in the warm-up. Failures of upstream's plugin are shown in the
    /// table only.
    fn no_errors(phases: &[Phase]) -> Self {
        let phases = phases.iter().filter(|phase| phase.cell.contestant != Contestant::Upstream);
        let calls: Vec<_> = phases
            .flat_map(|phase| phase.calls.iter().map(|call| (phase.cell, &call.error)))
            .collect();
        let errors = calls.iter().filter(|(_, error)| error.is_some()).count();
        let first = calls.iter().find_map(|(cell, error)| Some((cell, error.as_ref()?)));
        let first = first.map(|(Cell { verb, at_once, contestant, .. }, error)| {
            format!("; first: {contestant} {verb} of {at_once}: {error}")
        });
        let found = format!("{} calls, {errors} errors{}", calls.len(), first.unwrap_or_default());
        Self::outcome("no call fails", errors == 0 && !calls.is_empty(), found)
    }

    fn nothing_held(processes: &[Growth]) -> Self {
        let server = processes.iter().find(|growth| growth.process == Program::Server);
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
    use integration::faults::process::Held;

    use super::*;
    use crate::bench::{measurements::Call, processes::CpuTimes};
    use crate::report::percentiles::Percentiles;

    fn summary(cell: Cell, value: f64) -> Summary {
        let times = Percentiles { p50: value, ..Percentiles::default() };
        let rounds_p99 = vec![1.0, value, 1000.0];
        Summary { calls: 1, times, rounds_p99, rate: value, ..Summary::of(cell, &[]) }
    }

    #[test]
    fn each_figure_holds_at_its_limit_and_is_missed_beyond_it() {
        // The other contestant's figure is 10.
        let limits = [15.0, 15.0, 9.0, 15.0, 11.0, 80.0];
        for (comparison, limit) in COMPARISONS.iter().chain([&WITH_UPSTREAM]).zip(limits) {
            let &(verb, at_once, (.., is_within), with, ..) = comparison;
            let gate = |ours| {
                let cell = |contestant| Cell { verb, ports: 0, at_once, contestant };
                let summaries = [summary(cell(with), 10.0), summary(cell(Contestant::Ours), ours)];
                Gate::compare(comparison, &summaries)
            };
            let beyond = if is_within(&1.0, &2.0) { 0.1 } else { -0.1 };
            assert!(gate(limit).holds && !gate(limit + beyond).holds, "{}", gate(limit));
        }
    }

    #[test]
    fn errors_leftovers_growth_and_a_large_plugin_are_missed_and_said() {
        let missed = |error: Option<&str>, left: Option<&str>, bytes, more| {
            let cell = Cell { verb: Verb::Add, ports: 0, at_once: 8, contestant: Contestant::Ours };
            let calls = vec![Call { error: error.map(str::to_owned), ..Call::default() }];
            let phase = Phase { cell, round: 0, wall: 1.0, calls, cpu: CpuTimes::new() };
            let before = Held { memory: 1, allocated: None, descriptors: 20, threads: 4 };
            let after = Held { descriptors: before.descriptors + more, ..before };
            let growth = Growth { process: Program::Server, before, after };
            let gates = Gate::all(&[], &[phase], &[growth], left.map(str::to_owned), bytes);
            let missed = gates.iter().filter(|gate| gate.kind == Kind::Outcome && !gate.holds);
            missed.map(ToString::to_string).collect::<String>()
        };
        assert_eq!(missed(None, None, 4_000_000, 0), "");
        assert!(missed(None, None, 4_000_001, 0).contains("size"));
        assert!(
            missed(Some("code 11"), None, 1, 0).contains("1 errors; first: ours ADD of 8: code 11")
        );
        assert!(missed(None, Some("+ link x"), 1, 0).contains("+ link x"));
        assert!(missed(None, None, 1, 1).contains("21 descriptors (before 20)"));
    }

    #[test]
    fn what_was_not_measured_does_not_hold_and_upstreams_plugin_counts_if_it_was() {
        let missed = |summaries: &[Summary]| {
            let gates = Gate::all(summaries, &[], &[], None, 1);
            gates.iter().filter(|gate| !gate.holds).count()
        };
        // The calls that were not made and the server that was not sampled are the two more.
        assert_eq!(missed(&[]), COMPARISONS.len() + 2);
        let cell =
            Cell { verb: Verb::Add, ports: 0, at_once: 100, contestant: Contestant::Upstream };
        assert_eq!(missed(&[summary(cell, 2.0)]), COMPARISONS.len() + 3);
    }
}
