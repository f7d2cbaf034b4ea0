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
use serde::{Deserialize, Serialize};

use super::measurements::{Contestant, Process};

/// Limit of the wait for idle threads: the runtime ends a blocking thread after ten seconds without work.
const PATIENCE: Duration = Duration::from_secs(15);

/// Milliseconds.
pub(crate) type CpuTimes = BTreeMap<Process, f64>;

/// CPU time so far of the daemons and of `contestant`: this process, or the children that it has started and
/// waited for.
pub(crate) fn cpu_times(daemons: &[(Process, u32)], contestant: Contestant) -> Result<CpuTimes> {
    let usage = getrusage(match contestant {
        Contestant::Floor => UsageWho::RUSAGE_SELF,
        Contestant::Ours | Contestant::Bridge | Contestant::Upstream | Contestant::BinTrue => {
            UsageWho::RUSAGE_CHILDREN
        }
    })?;
    // f64 is exact up to 285 years of microseconds.
    let own = (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e3;
    let of_daemons = daemons.iter().map(|(process, pid)| Ok((*process, cpu_time(*pid)?.as_secs_f64() * 1e3)));
    of_daemons.chain([Ok((Process::Caller, own))]).collect()
}

/// The resources of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holding {
    /// Resident memory, in kB.
    pub(crate) rss_kb: u64,
    pub(crate) peak_rss_kb: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
}

/// A process at two moments: when every kind of call has been made once, and at the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Growth {
    pub(crate) process: Process,
    pub(crate) before: Holding,
    pub(crate) after: Holding,
}

impl Holding {
    /// The resources of each of `daemons`.
    pub(crate) fn of_all(daemons: &[(Process, u32)]) -> Result<Vec<(Process, Self)>> {
        let of = |pid| -> Result<Self> {
            let status = process(pid)?.status()?;
            Ok(Self {
                rss_kb: status.vmrss.context("a process has memory")?,
                peak_rss_kb: status.vmhwm.context("a process has memory")?,
                descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
                threads: status.threads,
            })
        };
        daemons.iter().map(|(process, pid)| Ok((*process, of(*pid)?))).collect()
    }
}

impl Growth {
    /// Compares with `before`, after a wait for connections and threads of the last calls to end. A process
    /// that still holds more is reported, not an error.
    pub(crate) fn since(before: &[(Process, Holding)], daemons: &[(Process, u32)]) -> Result<Vec<Self>> {
        let now = || -> Result<Vec<Self>> {
            let pairs = before.iter().zip(Holding::of_all(daemons)?);
            Ok(pairs
                .map(|((process, before), (_, after))| Self { process: *process, before: *before, after })
                .collect())
        };
        // The wait may time out: the gate reports the growth.
        drop(eventually("descriptors and threads as before", PATIENCE, || {
            let grown: Vec<Self> = now()?.into_iter().filter(Self::has_grown).collect();
            ensure!(grown.is_empty(), "{grown:?}");
            Ok(())
        }));
        now()
    }

    /// Whether descriptors or threads have grown. Memory may grow: the allocator keeps freed pages.
    pub(crate) fn has_grown(&self) -> bool {
        self.after.descriptors > self.before.descriptors || self.after.threads > self.before.threads
    }
}
