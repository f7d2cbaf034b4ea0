//! The result of a run: a table for the terminal, and `bench.json`, whose fields are those of
//! [`Report`].

use std::fmt;

use contract::stage::Stage;
use integration::Program;
use serde::Serialize;

use super::{
    Size,
    gates::Gate,
    measurements::{Cell, Process, Summary},
    processes::Growth,
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
    pub(crate) cells: Vec<Summary>,
    pub(crate) gates: Vec<Gate>,
    /// Resources of each daemon.
    pub(crate) processes: Vec<Growth>,
}

/// It grows when a field is removed or changes its meaning.
pub(crate) const FORMAT: u32 = 5;

impl Report {
    fn figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "verb     there  at once                 calls  p50 ms  p90 ms  p99 ms  max ms   per s"
        )?;
        write!(f, "   CPU ms per call:")?;
        // The columns of CPU times.
        let processes = [Process::Caller].into_iter().chain(Program::ALL.map(Process::Daemon));
        let processes: Vec<Process> = processes.collect();
        processes.iter().try_for_each(|process| write!(f, " {process}"))?;
        let mut last = None;
        for summary in &self.cells {
            let Cell { verb, ports, at_once, contestant } = summary.cell;
            writeln!(f, "{}", if last.replace(verb) == Some(verb) { "" } else { "\n" })?;
            let Summary {
                calls, errors, times: Percentiles { p50, p90, p99, max }, rate, cpu, ..
            } = summary;
            write!(f, "{verb:<8}{ports:>6}{at_once:>9}  {contestant:<10}{calls:>8}")?;
            write!(f, "{p50:>8.2}{p90:>8.2}{p99:>8.2}{max:>8.2}{rate:>8.1}{:19}", "")?;
            for process in &processes {
                let (width, time) = (process.to_string().len() + 1, cpu.get(process));
                write!(f, "{:>width$}", time.map(|time| format!("{time:.2}")).unwrap_or_default())?;
            }
            if *errors > 0 {
                write!(f, "   {errors} FAILED")?;
            }
        }
        writeln!(f, "\n")
    }

    /// Where the time of calls goes: the floor's stages, and those of the plugin.
    fn parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "parts, ms: p50 (p99); outside: exec, start and end of the process; between: the stages"
        )?;
        for summary in self.cells.iter().filter(|summary| summary.cell.ports == 0) {
            let Cell { verb, at_once, contestant, .. } = summary.cell;
            let mut parts: Vec<_> = summary.parts.iter().collect();
            parts.sort_by_key(|(part, _)| {
                Stage::ALL.iter().position(|stage| stage.name() == *part).ok_or(())
            });
            let parts = parts
                .iter()
                .map(|(part, times)| format!("{part} {:.2} ({:.2})", times.p50, times.p99));
            let parts = parts.collect::<Vec<_>>().join(", ");
            if !parts.is_empty() {
                writeln!(f, "  {verb}, {at_once} at once, {contestant}: {parts}")?;
            }
        }
        writeln!(f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { environment, size: Size { pods, rounds, .. }, seconds, .. } = self;
        writeln!(f, "\n{rounds} rounds of {pods} pods, {seconds:.0} s; {environment}\n")?;
        self.figures(f)?;
        self.parts(f)?;
        self.gates.iter().try_for_each(|gate| writeln!(f, "{gate}"))
    }
}
