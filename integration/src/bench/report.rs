//! The result of a run: a table for the terminal, and `bench.json`, whose fields are those of [`Report`].

use std::fmt;

use contract::stage::Stage;
use serde::Serialize;

use super::{
    gates::{Gate, Kind},
    measurements::{Cell, Contestant, Process, Verb},
    plan::Size,
    processes::Growth,
    summary::Summary,
};
use crate::report::environment::Environment;

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
    /// Whether every gate of these kinds holds.
    pub(crate) fn holds(&self, demanded: impl Fn(Kind) -> bool) -> bool {
        self.gates.iter().filter(|gate| demanded(gate.kind)).all(|gate| gate.holds)
    }

    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [verb, there, at_once] = ["verb", "there", "at once"];
        write!(f, "{verb:<8}{there:>6}{at_once:>9}  {:<10}", "")?;
        ["calls", "p50 ms", "p90 ms", "p99 ms", "max ms", "per s"]
            .iter()
            .try_for_each(|head| write!(f, "{head:>8}"))?;
        write!(f, "   CPU ms per call:")?;
        PROCESSES.iter().try_for_each(|process| write!(f, " {process}"))?;
        writeln!(f)?;
        let mut last = Verb::Add;
        for CellReport { cell: Cell { verb, ports, at_once, contestant }, summary } in &self.cells {
            if std::mem::replace(&mut last, *verb) != *verb {
                writeln!(f)?;
            }
            let Summary { calls, errors, times, rate, cpu, .. } = summary;
            write!(f, "{verb:<8}{ports:>6}{at_once:>9}  {contestant:<10}{calls:>8}")?;
            [times.p50, times.p90, times.p99, times.max]
                .iter()
                .try_for_each(|time| write!(f, "{time:>8.2}"))?;
            write!(f, "{rate:>8.1}   {:>16}", "")?;
            for process in PROCESSES {
                let width = process.to_string().len() + 1;
                match cpu.get(&process) {
                    Some(time) => write!(f, "{time:>width$.2}")?,
                    None => write!(f, "{:>width$}", "")?,
                }
            }
            writeln!(f, "{}", if *errors > 0 { format!("   {errors} FAILED") } else { String::new() })?;
        }
        writeln!(f)
    }

    fn parts(&self, f: &mut fmt::Formatter<'_>, verb: Verb, at_once: usize) -> fmt::Result {
        let [floor, ours] = [Contestant::Floor, Contestant::Ours].map(|contestant| {
            let cell = Cell { verb, ports: 0, at_once, contestant };
            self.cells.iter().find(|other| other.cell == cell).map(|found| &found.summary.parts)
        });
        let of = |part: &str| [floor, ours].map(|parts| parts?.get(part));
        let names = Stage::ALL.map(|stage| (stage.name(), "")).into_iter().chain([
            ("outside", "   exec, start and end of the process"),
            ("between", "   before the first stage, between stages, after the last"),
        ]);
        let rows: Vec<_> = names.filter(|(part, _)| of(part) != [None, None]).collect();
        if !rows.is_empty() {
            let title = format!("{verb}, {at_once} at once, ms");
            writeln!(f, "{title:<32}{:>10}{:>10}{:>10}", "floor p50", "ours p50", "ours p99")?;
        }
        for (part, explanation) in rows {
            let [floor, ours] = of(part);
            let times =
                [floor.map(|times| times.p50), ours.map(|times| times.p50), ours.map(|times| times.p99)];
            let times = times.map(|time| time.map_or("-".to_owned(), |time| format!("{time:.2}")));
            let [floor, ours, ours_p99] = times;
            writeln!(f, "  {part:<30}{floor:>10}{ours:>10}{ours_p99:>10}{explanation}")?;
        }
        writeln!(f)
    }

    fn resources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for head in ["after / before", "RSS kB", "peak kB", "descriptors", "threads"] {
            write!(f, "{head:<18}")?;
        }
        writeln!(f)?;
        for Growth { process, before, after } in &self.processes {
            let rss = format!("{} / {}", after.rss_kb, before.rss_kb);
            let descriptors = format!("{} / {}", after.descriptors, before.descriptors);
            let threads = format!("{} / {}", after.threads, before.threads);
            let peak = after.peak_rss_kb;
            writeln!(f, "{process:<18}{rss:<18}{peak:<18}{descriptors:<18}{threads}")?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { environment, size: Size { pods, rounds, at_once, .. }, seconds, .. } = self;
        writeln!(f, "\n{rounds} rounds of {pods} pods, {seconds:.0} s; {environment}\n")?;
        self.figures(f)?;
        at_once.iter().try_for_each(|at_once| self.parts(f, Verb::Add, *at_once))?;
        at_once.iter().try_for_each(|at_once| self.parts(f, Verb::Del, *at_once))?;
        self.resources(f)?;
        self.gates.iter().try_for_each(|gate| writeln!(f, "{gate}"))
    }
}
