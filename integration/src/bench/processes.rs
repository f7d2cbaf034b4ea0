//! Memory, descriptors and threads of the daemons (proc_pid_status(5)), which must not grow during a run.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{eventually, process};
use serde::{Deserialize, Serialize};

use super::measurements::Process;

/// Limit of the wait for idle threads: the runtime ends a blocking thread after ten seconds without work.
const PATIENCE: Duration = Duration::from_secs(15);

/// The resources of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holding {
    /// Resident memory, in kB.
    pub(crate) rss_kb: u64,
    /// Peak resident memory, in kB.
    pub(crate) peak_rss_kb: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
}

/// A process at two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Growth {
    pub(crate) process: Process,
    /// At the end of the warm-up round: every kind of call has been made once.
    pub(crate) before: Holding,
    /// At the end of the run.
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

    /// The resources of each of `daemons`.
    pub(crate) fn of_all(daemons: &[(Process, u32)]) -> Result<Vec<(Process, Self)>> {
        daemons.iter().map(|(process, pid)| Ok((*process, Self::of(*pid)?))).collect()
    }
}

impl Growth {
    /// Compares with `before`, after a wait for connections and threads of the last calls to end. A process
    /// that still holds more is reported, not an error.
    pub(crate) fn since(before: &[(Process, Holding)], daemons: &[(Process, u32)]) -> Result<Vec<Self>> {
        let now = || -> Result<Vec<Self>> {
            let after = Holding::of_all(daemons)?;
            let pairs = before.iter().zip(after).filter(|((process, _), (other, _))| process == other);
            Ok(pairs
                .map(|((process, before), (_, after))| Self { process: *process, before: *before, after })
                .collect())
        };
        let settled = eventually("descriptors and threads as before", PATIENCE, || {
            let grown: Vec<Self> = now()?.into_iter().filter(Self::has_grown).collect();
            ensure!(grown.is_empty(), "{grown:?}");
            Ok(())
        });
        // The wait may time out: the gate reports the growth.
        drop(settled);
        now()
    }

    /// Whether descriptors or threads have grown. Memory may grow: the allocator keeps freed pages.
    pub(crate) fn has_grown(&self) -> bool {
        self.after.descriptors > self.before.descriptors || self.after.threads > self.before.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_is_a_descriptor_more() {
        let own = std::process::id();
        let before = Holding::of(own).unwrap();
        let many: Vec<_> = (0..500).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let after = Holding::of(own).unwrap();
        // Other tests of this process open and close files meanwhile.
        assert!(
            after.descriptors > before.descriptors + 400,
            "{before:?}, then {after:?} with {} files more",
            many.len()
        );
        assert!(after.rss_kb > 0 && after.peak_rss_kb >= after.rss_kb && after.threads > 0, "{after:?}");
    }
}
