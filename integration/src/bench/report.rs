//! The result of a run: a table for the terminal, and `bench.json`, whose fields are those of [`Report`].

use std::fmt;

use contract::stage::Stage;
use serde::Serialize;

use super::{
    gates::Gate,
    measurements::{Cell, Contestant, Process, Verb},
    plan::Size,
    processes::{Growth, Holding},
    summary::Summary,
};
use crate::report::{environment::Environment, percentiles::Percentiles};

/// `bench.json`. Durations, CPU times too, are in milliseconds, unless the field says otherwise.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// Version of the format, [`FORMAT`].
    pub(crate) format: u32,
    pub(crate) environment: Environment,
    pub(crate) size: Size,
    /// Duration of the whole run in seconds, including the start of the lab.
    pub(crate) seconds: f64,
    /// The figures, one entry per line of the table.
    pub(crate) cells: Vec<CellReport>,
    pub(crate) gates: Vec<Gate>,
    /// Resources of each daemon.
    pub(crate) processes: Vec<Growth>,
    /// Up to ten messages of failed calls.
    pub(crate) errors: Vec<String>,
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CellReport {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    #[serde(flatten)]
    pub(crate) summary: Summary,
}

/// It grows when a field is removed or changes its meaning.
pub(crate) const FORMAT: u32 = 3;
/// The columns of CPU times.
const PROCESSES: [Process; 5] =
    [Process::Caller, Process::Server, Process::OvsdbServer, Process::Vswitchd, Process::OvnController];

impl Report {
    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verb     there  at once                 calls  p50 ms  p90 ms  p99 ms  max ms   per s")?;
        write!(f, "   CPU ms per call:")?;
        PROCESSES.iter().try_for_each(|process| write!(f, " {process}"))?;
        let mut last = None;
        for CellReport { cell: Cell { verb, ports, at_once, contestant }, summary } in &self.cells {
            writeln!(f, "{}", if last.replace(verb) == Some(verb) { "" } else { "\n" })?;
            let Summary { calls, errors, times: Percentiles { p50, p90, p99, max }, rate, cpu, .. } = summary;
            write!(f, "{verb:<8}{ports:>6}{at_once:>9}  {contestant:<10}{calls:>8}")?;
            write!(f, "{p50:>8.2}{p90:>8.2}{p99:>8.2}{max:>8.2}{rate:>8.1}{:19}", "")?;
            for process in PROCESSES {
                let (width, time) = (process.to_string().len() + 1, cpu.get(&process));
                write!(f, "{:>width$}", time.map(|time| format!("{time:.2}")).unwrap_or_default())?;
            }
            if *errors > 0 {
                write!(f, "   {errors} FAILED")?;
            }
        }
        writeln!(f, "\n")
    }

    /// Where the time of a verb goes: the floor's and the plugin's median of each part, and the plugin's p99.
    fn parts(&self, f: &mut fmt::Formatter<'_>, verb: Verb, at_once: usize) -> fmt::Result {
        let [floor, ours] = [Contestant::Floor, Contestant::Ours].map(|contestant| {
            let cell = Cell { verb, ports: 0, at_once, contestant };
            self.cells.iter().find(|other| other.cell == cell).map(|found| &found.summary.parts)
        });
        let names = Stage::ALL.map(|stage| (stage.name(), "")).into_iter().chain([
            ("outside", "   exec, start and end of the process"),
            ("between", "   before the first stage, between stages, after the last"),
        ]);
        let rows: Vec<_> = names
            .map(|(part, explanation)| {
                (part, explanation, floor.and_then(|f| f.get(part)), ours.and_then(|o| o.get(part)))
            })
            .filter(|(_, _, floor, ours)| floor.or(*ours).is_some())
            .collect();
        if !rows.is_empty() {
            let title = format!("{verb}, {at_once} at once, ms");
            writeln!(f, "{title:<32}{:>10}{:>10}{:>10}", "floor p50", "ours p50", "ours p99")?;
        }
        for (part, explanation, floor, ours) in rows {
            let time = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.2}"));
            let [floor, p50, p99] =
                [floor.map(|t| t.p50), ours.map(|t| t.p50), ours.map(|t| t.p99)].map(time);
            writeln!(f, "  {part:<30}{floor:>10}{p50:>10}{p99:>10}{explanation}")?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { environment, size: Size { pods, rounds, at_once, .. }, seconds, .. } = self;
        writeln!(f, "\n{rounds} rounds of {pods} pods, {seconds:.0} s; {environment}\n")?;
        self.figures(f)?;
        for verb in [Verb::Add, Verb::Del] {
            at_once.iter().try_for_each(|at_once| self.parts(f, verb, *at_once))?;
        }
        for Growth { process, before, after } in &self.processes {
            let Holding { rss_kb, peak_rss_kb, descriptors, threads } = after;
            writeln!(
                f,
                "{process}: {rss_kb} kB (before {}, peak {peak_rss_kb}), {descriptors} descriptors \
                 (before {}), {threads} threads (before {})",
                before.rss_kb, before.descriptors, before.threads
            )?;
        }
        writeln!(f)?;
        self.gates.iter().try_for_each(|gate| writeln!(f, "{gate}"))
    }
}
