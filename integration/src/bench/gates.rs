//! What must hold for the plugin to be near enough to the floor. Pure.
//!
//! Limits are relative to what was measured in the same run, so that a slow machine moves both sides.

use std::fmt;

use serde::Serialize;

use super::{
    measurements::{Cell, Contestant, Measurements, Verb},
    statistics::{Summaries, Summary},
};

/// What the plugin's executable may weigh.
const MAX_PLUGIN_BYTES: u64 = 4_000_000;
const MEGABYTE: f64 = 1e6;

/// One demand, and whether it is met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Gate {
    /// The demand.
    pub(crate) demand: &'static str,
    pub(crate) holds: bool,
    /// What was measured, and the limit.
    pub(crate) found: String,
}

/// What the run left on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leftovers {
    None,
    /// The difference.
    Some(String),
}

impl Gate {
    /// Every demand.
    pub(crate) fn all(summaries: &Summaries, measurements: &Measurements, leftovers: &Leftovers, plugin_bytes: u64) -> Vec<Self> {
        vec![
            Self::time("ADD at one at a time: p50 at most the floor's + 5 ms", summaries, Verb::Add, Contestant::Floor, |floor| {
                floor + 5.0
            }),
            Self::time(
                "DEL at one at a time: p50 at most 1.3 times the floor's + 2 ms",
                summaries,
                Verb::Del,
                Contestant::Floor,
                |floor| 1.3 * floor + 2.0,
            ),
            Self::time("VERSION: p50 at most that of /bin/true + 1 ms", summaries, Verb::Version, Contestant::BinTrue, |floor| floor + 1.0),
            Self::size(plugin_bytes),
            Self::no_errors(measurements),
            Self::nothing_left(leftovers),
        ]
    }

    fn time(demand: &'static str, summaries: &Summaries, verb: Verb, floor: Contestant, limit: impl Fn(f64) -> f64) -> Self {
        let of = |contestant| summaries.get(&Cell { verb, at_once: 1, contestant }).filter(|summary| summary.calls > 0);
        let (Some(Summary { p50: ours, .. }), Some(Summary { p50: floor, .. })) = (of(Contestant::Ours), of(floor)) else {
            return Self { demand, holds: false, found: "not measured".to_owned() };
        };
        let limit = limit(*floor);
        Self { demand, holds: *ours <= limit, found: format!("{ours:.2} ms, limit {limit:.2} ms over a floor of {floor:.2} ms") }
    }

    fn size(bytes: u64) -> Self {
        // Exact: an executable is smaller than 2^52 bytes.
        let megabytes = |bytes: u64| bytes as f64 / MEGABYTE;
        let found = format!("{:.2} MB, limit {:.2} MB", megabytes(bytes), megabytes(MAX_PLUGIN_BYTES));
        Self { demand: "size of the plugin", holds: bytes <= MAX_PLUGIN_BYTES, found }
    }

    /// In the warm-up too.
    fn no_errors(measurements: &Measurements) -> Self {
        let calls: usize = measurements.phases.iter().map(|phase| phase.calls.len()).sum();
        let errors: Vec<String> = measurements
            .phases
            .iter()
            .flat_map(|phase| phase.calls.iter().filter_map(|call| call.error.as_ref()).map(move |error| (phase, error)))
            .map(|(phase, error)| format!("{} {} of {}: {error}", phase.cell.contestant, phase.cell.verb, phase.cell.at_once))
            .collect();
        let found = match errors.first() {
            None => format!("{calls} calls, 0 errors"),
            Some(first) => format!("{calls} calls, {} errors; first: {first}", errors.len()),
        };
        Self { demand: "no call fails", holds: errors.is_empty() && calls > 0, found }
    }

    fn nothing_left(leftovers: &Leftovers) -> Self {
        let demand = "links, namespaces and rows are what they were before";
        match leftovers {
            Leftovers::None => Self { demand, holds: true, found: "equal".to_owned() },
            Leftovers::Some(difference) => Self { demand, holds: false, found: difference.clone() },
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { demand, holds, found } = self;
        write!(f, "{}  {demand}: {found}", if *holds { "held  " } else { "MISSED" })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::measurements::{Call, Phase};

    fn summaries(add: [f64; 2], del: [f64; 2], version: [f64; 2]) -> Summaries {
        let mut summaries = Summaries::new();
        let rows =
            [(Verb::Add, Contestant::Floor, add), (Verb::Del, Contestant::Floor, del), (Verb::Version, Contestant::BinTrue, version)];
        for (verb, base, [floor, ours]) in rows {
            for (contestant, p50) in [(base, floor), (Contestant::Ours, ours)] {
                summaries.insert(Cell { verb, at_once: 1, contestant }, Summary { calls: 1, p50, ..Summary::default() });
            }
        }
        summaries
    }

    fn measurements(error: Option<&str>) -> Measurements {
        let cell = Cell { verb: Verb::Add, at_once: 8, contestant: Contestant::Ours };
        let calls = vec![Call { duration: 1.0, parts: Vec::new(), error: error.map(str::to_owned) }];
        Measurements { phases: vec![Phase { cell, round: 0, wall: 1.0, calls, cpu: BTreeMap::new() }] }
    }

    fn missed(summaries: &Summaries, error: Option<&str>, leftovers: &Leftovers, bytes: u64) -> Vec<String> {
        let gates = Gate::all(summaries, &measurements(error), leftovers, bytes);
        gates.iter().filter(|gate| !gate.holds).map(ToString::to_string).collect()
    }

    #[test]
    fn all_gates_hold_at_their_limits() {
        let at_limits = summaries([30.0, 35.0], [10.0, 15.0], [0.5, 1.5]);
        assert_eq!(missed(&at_limits, None, &Leftovers::None, 4_000_000), Vec::<String>::new());
    }

    #[test]
    fn each_gate_is_missed_beyond_its_limit_and_says_so() {
        let fine = summaries([30.0, 35.0], [10.0, 15.0], [0.5, 1.5]);
        let none = &Leftovers::None;
        let one = |missed: Vec<String>, word: &str| assert!(missed.len() == 1 && missed[0].contains(word), "{word}: {missed:?}");
        one(missed(&summaries([30.0, 35.1], [10.0, 15.0], [0.5, 1.5]), None, none, 1), "ADD");
        one(missed(&summaries([30.0, 35.0], [10.0, 15.1], [0.5, 1.5]), None, none, 1), "DEL");
        one(missed(&summaries([30.0, 35.0], [10.0, 15.0], [0.5, 1.6]), None, none, 1), "VERSION");
        one(missed(&fine, None, none, 4_000_001), "size");
        one(missed(&fine, Some("code 11"), none, 1), "ours ADD of 8: code 11");
        one(missed(&fine, None, &Leftovers::Some("+ link x".to_owned()), 1), "+ link x");
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        assert_eq!(missed(&Summaries::new(), None, &Leftovers::None, 1).len(), 3);
        let gates = Gate::all(&Summaries::new(), &Measurements::default(), &Leftovers::None, 1);
        assert_eq!(gates.iter().filter(|gate| !gate.holds).count(), 4, "without a call, there is none that did not fail");
    }
}
