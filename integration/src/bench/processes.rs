//! CPU time, memory, descriptors and threads of the daemons; of those the last two must not grow during a run.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    eventually,
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
pub(crate) fn cpu_of_daemons(daemons: &[(Process, u32)]) -> Result<CpuTimes> {
    daemons.iter().map(|(process, pid)| Ok((*process, milliseconds(cpu_time(*pid)?)))).collect()
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
    pub(crate) process: Process,
    pub(crate) before: Holding,
    pub(crate) after: Holding,
}

impl Holding {
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let status = process(pid)?.status()?;
        Ok(Self {
            rss_kb: status.vmrss.context("a process has memory")?,
            peak_rss_kb: status.vmhwm.context("a process has memory")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: status.threads,
        })
    }
}

impl Growth {
    /// The daemons now, and what they held `before`, after a wait for connections and threads of the last
    /// calls to end. A process that still holds more is reported, not an error.
    pub(crate) fn since(before: &[Holding], daemons: &[(Process, u32)]) -> Result<Vec<Self>> {
        let now = |(&before, &(process, pid)): (&Holding, &(Process, u32))| {
            Ok(Self { process, before, after: Holding::of(pid)? })
        };
        let all = || before.iter().zip(daemons).map(now).collect::<Result<Vec<Self>>>();
        let settled = eventually("descriptors and threads as before", PATIENCE, || {
            let all = all()?;
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
