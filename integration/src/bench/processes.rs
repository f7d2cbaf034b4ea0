//! CPU time, memory, descriptors and threads of the daemons; of those the last two must not grow during a run.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Node, Program, eventually,
    process::{cpu_time, process},
};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use serde::Serialize;

use super::measurements::{Contestant, Process, milliseconds};

/// Limit of the wait for idle threads: the runtime ends a blocking thread after ten seconds without work.
const PATIENCE: Duration = Duration::from_secs(15);

/// Milliseconds.
pub(crate) type CpuTimes = BTreeMap<Process, f64>;

/// CPU time so far of `contestant`: this process, or the children that it has started and waited for.
pub(crate) fn cpu_of_caller(contestant: Contestant) -> Result<f64> {
    let is_own = contestant == Contestant::Floor;
    let usage = getrusage(if is_own { UsageWho::RUSAGE_SELF } else { UsageWho::RUSAGE_CHILDREN })?;
    // f64 is exact up to 285 years of microseconds.
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e3)
}

/// CPU time so far of the daemons.
pub(crate) fn cpu_of_daemons(node: &Node) -> Result<CpuTimes> {
    let of = |program: Program| cpu_time(node.daemon(program).running_pid()?);
    Program::ALL
        .into_iter()
        .map(|program| Ok((Process::Daemon(program), milliseconds(of(program)?))))
        .collect()
}

/// The resources of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Holding {
    /// Resident memory, in kB.
    pub(crate) rss_kb: u64,
    pub(crate) peak_rss_kb: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
}

/// A process at two moments: when every kind of call has been made once, and at the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Growth {
    pub(crate) process: Program,
    pub(crate) before: Holding,
    pub(crate) after: Holding,
}

/// What each daemon holds now.
pub(crate) fn holdings(node: &Node) -> Result<BTreeMap<Program, Holding>> {
    let of = |program| {
        let pid = node.daemon(program).running_pid()?;
        let status = process(pid)?.status()?;
        let holding = Holding {
            rss_kb: status.vmrss.context("a process has memory")?,
            peak_rss_kb: status.vmhwm.context("a process has memory")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: status.threads,
        };
        Ok((program, holding))
    };
    Program::ALL.into_iter().map(of).collect()
}

impl Growth {
    /// The daemons now, and what they held `before`, after a wait for connections and threads of the last
    /// calls to end. A process that still holds more is reported, not an error.
    pub(crate) fn since(before: &BTreeMap<Program, Holding>, node: &Node) -> Result<Vec<Self>> {
        let all = || {
            let after = holdings(node)?.into_iter();
            anyhow::Ok(
                after.map(|(process, after)| Self { process, before: before[&process], after }).collect(),
            )
        };
        let settled = eventually("descriptors and threads as before", PATIENCE, || {
            let all: Vec<Self> = all()?;
            ensure!(!all.iter().any(Self::has_grown), "{all:?}");
            Ok(all)
        });
        settled.or_else(|_| all())
    }

    /// Whether descriptors or threads have grown. Memory may grow: the allocator keeps freed pages.
    pub(crate) fn has_grown(&self) -> bool {
        self.after.descriptors > self.before.descriptors || self.after.threads > self.before.threads
    }
}
