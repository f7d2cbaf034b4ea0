//! The result of a run: a table for the terminal, and `bench.json`, whose fields are those of [`Report`].

use std::{collections::BTreeSet, fmt, time::Duration};

use serde::Serialize;

use super::{
    environment::Environment,
    gates::{Gate, Kind},
    measurements::{Cell, Contestant, Measurements, Part, Process, Verb},
    plan::Size,
    processes::Growth,
    statistics::{Summaries, Summary},
};

/// `bench.json`. All durations, including CPU times, are in milliseconds, unless the field says otherwise.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// Version of the format; it grows when a field is removed or changes its meaning.
    pub(crate) format: u32,
    pub(crate) environment: Environment,
    /// `pods` per phase, `rounds` that count, `at_once`.
    pub(crate) size: Size,
    /// Duration of the whole run in seconds, including the start of the lab.
    pub(crate) seconds: f64,
    /// The figures, one entry per line of the table.
    pub(crate) cells: Vec<CellReport>,
    /// `demand`, `holds`, `found`.
    pub(crate) gates: Vec<Gate>,
    /// Resources of each daemon: `process`, and `before` and `after` with `rss_kb`, `peak_rss_kb`,
    /// `descriptors`, `threads`.
    pub(crate) processes: Vec<Growth>,
    /// Up to ten messages of failed calls.
    pub(crate) errors: Vec<String>,
}

/// One line of the table: `verb`, `ports`, `at_once`, `contestant` and the fields of [`Summary`].
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CellReport {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    #[serde(flatten)]
    pub(crate) summary: Summary,
}

/// The current value of [`Report::format`].
const FORMAT: u32 = 3;
const PROCESSES: [Process; 5] =
    [Process::Caller, Process::Server, Process::OvsdbServer, Process::Vswitchd, Process::OvnController];

impl Report {
    pub(crate) fn new(
        environment: Environment,
        size: Size,
        measurements: &Measurements,
        summaries: Summaries,
        gates: Vec<Gate>,
        took: Duration,
    ) -> Self {
        let errors =
            measurements.phases.iter().flat_map(|phase| &phase.calls).filter_map(|call| call.error.clone());
        Self {
            format: FORMAT,
            environment,
            size,
            seconds: took.as_secs_f64(),
            errors: errors.take(10).collect(),
            processes: measurements.processes.clone(),
            cells: summaries.into_iter().map(|(cell, summary)| CellReport { cell, summary }).collect(),
            gates,
        }
    }

    /// Whether every gate of these kinds holds.
    pub(crate) fn holds(&self, demanded: impl Fn(Kind) -> bool) -> bool {
        self.gates.iter().filter(|gate| demanded(gate.kind)).all(|gate| gate.holds)
    }

    pub(crate) fn find(&self, cell: Cell) -> Option<&Summary> {
        self.cells.iter().find(|other| other.cell == cell).map(|found| &found.summary)
    }

    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<8}{:>6}{:>9}  {:<10}{:>6}{:>8}{:>8}{:>8}{:>8}{:>8}   CPU ms per call",
            "", "", "", "", "", "p50", "p90", "p99", "max", ""
        )?;
        writeln!(
            f,
            "{:<8}{:>6}{:>9}  {:<10}{:>6}{:>8}{:>8}{:>8}{:>8}{:>8}{:>9}{:>8}{:>8}{:>10}{:>12}",
            "verb",
            "there",
            "at once",
            "",
            "calls",
            "ms",
            "ms",
            "ms",
            "ms",
            "per s",
            "caller",
            "server",
            "ovsdb",
            "vswitchd",
            "controller"
        )?;
        let mut last = None;
        for CellReport { cell, summary } in &self.cells {
            let Cell { verb, ports, at_once, contestant } = cell;
            if last.is_some_and(|last| last != *verb) {
                writeln!(f)?;
            }
            last = Some(*verb);
            let Summary { calls, errors, p50, p90, p99, max, rate, cpu, .. } = summary;
            write!(
                f,
                "{verb:<8}{ports:>6}{at_once:>9}  {contestant:<10}{calls:>6}\
                 {p50:>8.2}{p90:>8.2}{p99:>8.2}{max:>8.2}{rate:>8.1}"
            )?;
            for (process, width) in PROCESSES.into_iter().zip([9, 8, 8, 10, 12]) {
                match cpu.get(&process) {
                    Some(time) => write!(f, "{time:>width$.2}")?,
                    None => write!(f, "{:>width$}", "")?,
                }
            }
            if *errors > 0 {
                write!(f, "   {errors} FAILED")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn parts(&self, f: &mut fmt::Formatter<'_>, verb: Verb, at_once: usize) -> fmt::Result {
        let of = |contestant| self.find(Cell { verb, ports: 0, at_once, contestant });
        let columns = [of(Contestant::Floor), of(Contestant::Ours)];
        let rows: BTreeSet<Part> =
            columns.iter().flatten().flat_map(|summary| summary.parts.keys().copied()).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let title = format!("{verb}, {at_once} at once, ms");
        writeln!(f, "{title:<32}{:>10}{:>10}{:>10}", "floor p50", "ours p50", "ours p99")?;
        for part in rows {
            let [floor, ours] = columns.map(|summary| summary.and_then(|summary| summary.parts.get(&part)));
            write!(f, "  {part:<30}")?;
            for time in
                [floor.map(|times| times.p50), ours.map(|times| times.p50), ours.map(|times| times.p99)]
            {
                match time {
                    Some(time) => write!(f, "{time:>10.2}")?,
                    None => write!(f, "{:>10}", "-")?,
                }
            }
            writeln!(f, "{}", explanation(part))?;
        }
        writeln!(f)
    }

    fn memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16}{:>10}{:>10}{:>10}{:>14}{:>10}",
            "after / before", "RSS kB", "before", "peak", "descriptors", "threads"
        )?;
        for Growth { process, before, after } in &self.processes {
            let process = process.to_string();
            let descriptors = format!("{} / {}", after.descriptors, before.descriptors);
            let threads = format!("{} / {}", after.threads, before.threads);
            writeln!(
                f,
                "{process:<16}{:>10}{:>10}{:>10}{descriptors:>14}{threads:>10}",
                after.rss_kb, before.rss_kb, after.peak_rss_kb
            )?;
        }
        writeln!(f)
    }
}

fn explanation(part: Part) -> &'static str {
    match part {
        Part::Stage(_) => "",
        Part::Outside => "   exec, start and end of the process",
        Part::Between => "   before the first stage, between stages, after the last",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { environment, size: Size { pods, rounds, .. }, seconds, .. } = self;
        writeln!(f, "\n{rounds} rounds of {pods} pods, {seconds:.0} s; {environment}\n")?;
        self.figures(f)?;
        writeln!(f)?;
        for verb in [Verb::Add, Verb::Del] {
            self.size.at_once.iter().try_for_each(|at_once| self.parts(f, verb, *at_once))?;
        }
        self.memory(f)?;
        self.gates.iter().try_for_each(|gate| writeln!(f, "{gate}"))
    }
}

#[cfg(test)]
mod tests {
    use contract::stage::Stage;

    use super::*;
    use crate::bench::{environment::Scheduling, statistics::PartSummary};

    fn report(holds: bool) -> Report {
        let environment = Environment {
            kernel: "6.1".to_owned(),
            cpus: 2,
            hz: Some(250),
            grace_period: Some(8.0),
            cpu: "processor".to_owned(),
            load_before: "0.1 0.1 0.1".to_owned(),
            load_after: "0.2 0.1 0.1".to_owned(),
            open_vswitch: "3.1.0".to_owned(),
            ovn: "23.03.1".to_owned(),
            datapath: "netdev",
            scheduling: Scheduling::Normal,
            version: "0.1.0",
            plugin_bytes: 1,
        };
        let cell = Cell { verb: Verb::Add, ports: 0, at_once: 1, contestant: Contestant::Ours };
        let summary = Summary { calls: 3, p50: 41.25, p99: 912.5, rate: 24.0, ..Summary::default() };
        let parts = [(Part::Stage(Stage::OvnInstalled), 6.5), (Part::Outside, 1.25)];
        let parts = parts.map(|(part, p50)| (part, PartSummary { p50, ..PartSummary::default() })).into();
        let cells = Summaries::from([(cell, Summary { parts, ..summary })]);
        let size = Size {
            pods: 3,
            few_pods: 3,
            stale: 3,
            rounds: 1,
            slow_rounds: 1,
            at_once: vec![1],
            ports: vec![0],
            at_once_with_ports: vec![1],
            contestants: vec![Contestant::Ours],
        };
        let gates = vec![Gate { demand: "speed", kind: Kind::Time, holds, found: "too slow".to_owned() }];
        Report::new(environment, size, &Measurements::default(), cells, gates, Duration::from_secs(9))
    }

    #[test]
    fn the_table_has_the_figures_the_stages_and_the_gates() {
        let text = report(false).to_string();
        for expected in [
            "41.25",
            "ovn_installed",
            "6.50",
            "Linux 6.1 (250 Hz, grace period 8.0 ms), 2 x processor",
            "MISSED  speed: too slow",
        ] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
        assert!(!report(false).holds(|_| true));
        assert!(report(false).holds(|kind| kind == Kind::Outcome), "a time that is missed is not an outcome");
        assert!(report(true).holds(|_| true));
    }

    #[test]
    fn bench_json_has_flat_cells() {
        let json = serde_json::to_value(report(true)).unwrap();
        let cell = &json["cells"][0];
        assert_eq!(
            (cell["verb"].as_str(), cell["contestant"].as_str(), cell["p50"].as_f64()),
            (Some("ADD"), Some("ours"), Some(41.25))
        );
        assert_eq!(cell["parts"]["ovn_installed"]["p50"], 6.5);
        assert_eq!(json["environment"]["kernel"], "6.1");
    }
}
