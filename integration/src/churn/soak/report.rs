//! The report of a soak: a verdict for each demand, and the table.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;

use super::{
    Sample, Soak,
    quantity::{Demand, Quantity},
    trend::Trend,
};

/// The report; as JSON, the body of `soak.json`.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of the format; it grows when a field is removed or changes its meaning.
    pub format: u32,
    /// `cycles`, `churn` and `at_once`, as asked for.
    pub size: Soak,
    /// Seconds from the first sample to the last.
    pub seconds: f64,
    /// Completed cycles.
    pub cycles: usize,
    /// Cycles per second, including the time for sampling and preparation.
    pub rate: f64,
    /// The lines of the table.
    pub trends: Vec<Line>,
    /// Calls and pings that failed.
    pub failures: Vec<String>,
    /// How the node differs from its state before the soak, if it does.
    pub left: Option<String>,
    /// All samples.
    pub samples: Vec<Sample>,
}

/// A quantity, its trend, and whether its demand is met.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Its name and unit.
    pub quantity: Quantity,
    /// First, last, slope.
    #[serde(flatten)]
    pub trend: Trend,
    /// Whether its demand is met; `null` without one.
    pub holds: Option<bool>,
}

/// The current value of [`Report::format`].
const FORMAT: u32 = 1;

impl Report {
    pub(super) fn new(
        size: Soak,
        seconds: f64,
        cycles: usize,
        samples: Vec<Sample>,
        failures: Vec<String>,
        left: Option<String>,
    ) -> Self {
        let quantities: BTreeSet<Quantity> =
            samples.iter().flat_map(|sample| sample.values.keys().copied()).collect();
        let trends =
            quantities.into_iter().filter_map(|quantity| Line::of(quantity, &samples)).collect();
        Self {
            format: FORMAT,
            size,
            seconds,
            cycles,
            rate: cycles as f64 / seconds.max(1e-9),
            trends,
            failures,
            left,
            samples,
        }
    }

    /// Everything that misses its demand, one line each; empty if all is well.
    pub fn findings(&self) -> Vec<String> {
        let missed = |line: &Line| {
            let Line { quantity, trend: Trend { first, least, most, growth, .. }, .. } = line;
            match quantity.demand() {
                Demand::Same => {
                    format!("{quantity}: {first} at first, then from {least} to {most}")
                }
                Demand::Flat(limit) => {
                    format!("{quantity}: grew by {growth:.1} in the second half, more than {limit}")
                }
                Demand::Nothing => quantity.to_string(),
            }
        };
        let mut findings: Vec<String> =
            self.trends.iter().filter(|line| line.holds == Some(false)).map(missed).collect();
        if self.cycles < self.size.cycles {
            findings.push(format!(
                "ended after {} of {} cycles, because so much failed",
                self.cycles, self.size.cycles
            ));
        }
        findings.extend(self.failures.iter().map(|failure| format!("failed: {failure}")));
        findings.extend(self.left.iter().map(|left| format!("when all pods were gone, {left}")));
        findings
    }
}

impl Line {
    fn of(quantity: Quantity, samples: &[Sample]) -> Option<Self> {
        let points: Vec<(f64, f64)> = samples
            .iter()
            .filter_map(|sample| Some((sample.cycle as f64, *sample.values.get(&quantity)?)))
            .collect();
        let trend = Trend::of(&points)?;
        let holds = match quantity.demand() {
            Demand::Same => Some(trend.least == trend.most),
            Demand::Flat(limit) => Some(trend.growth <= limit),
            Demand::Nothing => None,
        };
        Some(Self { quantity, trend, holds })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            size: Soak { churn, at_once, .. }, cycles, seconds, rate, trends, failures, ..
        } = self;
        writeln!(
            f,
            "{cycles} cycles with {churn} pods attached, {at_once} at once, \
             {seconds:.0} s, {rate:.1} a second\n"
        )?;
        let heads = ["first", "last", "per 1,000 cycles"];
        writeln!(f, "{:<28}{:>12}{:>12}{:>18}   demand", "", heads[0], heads[1], heads[2])?;
        for Line { quantity, trend: Trend { first, last, slope, .. }, holds } in trends {
            let mark = match holds {
                Some(true) => format!("{}: holds", quantity.demand()),
                Some(false) => format!("{}: MISSED", quantity.demand()),
                None => String::new(),
            };
            writeln!(
                f,
                "{}",
                format!(
                    "{:<28}{first:>12.0}{last:>12.0}{slope:>+18.1}   {mark}",
                    quantity.to_string()
                )
                .trim_end()
            )?;
        }
        writeln!(f, "\n{} calls failed", failures.len())?;
        match self.findings() {
            findings if findings.is_empty() => write!(f, "nothing grows, nothing is left"),
            findings => findings.iter().try_for_each(|finding| writeln!(f, "MISSED  {finding}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Program;

    fn report(value: impl Fn(u32) -> f64, quantity: Quantity) -> Report {
        let sample = |number: u32| Sample {
            cycle: number as usize * 100,
            seconds: 0.0,
            values: BTreeMap::from([(quantity, value(number))]),
        };
        Report::new(
            Soak { cycles: 10_000, churn: 100, at_once: 8 },
            500.0,
            10_000,
            (0..=100).map(sample).collect(),
            Vec::new(),
            None,
        )
    }

    #[test]
    fn a_server_that_keeps_something_of_each_pod_is_found() {
        let memory = Quantity::Own(Program::Server);
        assert_eq!(report(|_| 9000.0, memory).findings(), [""; 0]);
        let found = report(|sample| 9000.0 + 10.0 * f64::from(sample), memory);
        assert!(
            found.findings()[0].starts_with("server: own memory, kB: grew by 500.0"),
            "{:?}",
            found.findings()
        );
        assert!(found.to_string().contains("MISSED  server: own memory"), "{found}");
    }

    #[test]
    fn one_row_too_many_at_one_moment_is_found_and_a_daemon_of_others_is_not() {
        assert_eq!(
            report(|sample| if sample == 50 { 104.0 } else { 103.0 }, Quantity::Ports)
                .findings()
                .len(),
            1
        );
        assert_eq!(report(f64::from, Quantity::Rss(Program::Vswitchd)).findings(), [""; 0]);
    }

    #[test]
    fn what_failed_what_is_left_and_what_was_not_done_is_found() {
        let mut report = report(|_| 1.0, Quantity::Ports);
        report.failures.push("ADD of pod".to_owned());
        report.left = Some("the node has changed".to_owned());
        report.cycles = 200;
        assert_eq!(report.findings().len(), 3, "{report}");
    }

    #[test]
    fn soak_json_names_quantities_as_the_table_does() {
        let json = serde_json::to_value(report(|_| 103.0, Quantity::Ports)).unwrap();
        assert_eq!(json["trends"][0]["quantity"], "rows of Port");
        assert_eq!(json["samples"][1]["values"]["rows of Port"], 103.0);
        assert_eq!(json["trends"][0]["holds"], true);
    }
}
