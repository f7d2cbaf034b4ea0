//! CPU time of processes, as the kernel's scheduler counts it (proc_pid_stat(5), and `schedstat` of each
//! thread in nanoseconds).

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::{TimeVal, TimeValLike as _},
};

use super::measurements::{Contestant, Process};

/// CPU time so far, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CpuTimes(BTreeMap<Process, f64>);

impl CpuTimes {
    /// CPU time of the daemons and of the process that plays `contestant`: this process, or the children that
    /// it has started and waited for.
    pub(crate) fn now(daemons: &[(Process, u32)], contestant: Contestant) -> Result<Self> {
        let mut times = BTreeMap::new();
        for (process, pid) in daemons {
            times.insert(*process, of_threads(*pid)?);
        }
        let usage = getrusage(match contestant {
            Contestant::Floor => UsageWho::RUSAGE_SELF,
            Contestant::Ours | Contestant::Bridge | Contestant::Upstream | Contestant::BinTrue => {
                UsageWho::RUSAGE_CHILDREN
            }
        })?;
        times.insert(Process::Caller, milliseconds(usage.user_time()) + milliseconds(usage.system_time()));
        Ok(Self(times))
    }

    /// CPU time used since `before`.
    pub(crate) fn since(&self, before: &Self) -> BTreeMap<Process, f64> {
        let used = |(process, time): (&Process, &f64)| {
            (*process, (time - before.0.get(process).unwrap_or(time)).max(0.0))
        };
        self.0.iter().map(used).collect()
    }
}

/// CPU time of all threads of a process, in milliseconds.
pub(crate) fn of_threads(pid: u32) -> Result<f64> {
    let dir = format!("/proc/{pid}/task");
    let mut nanoseconds = 0.0;
    for thread in fs::read_dir(&dir).with_context(|| format!("read {dir}"))? {
        // The time of a thread that has ended since `read_dir` is lost: schedstat goes with the thread.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        nanoseconds +=
            text.split_whitespace().next().and_then(|first| first.parse::<f64>().ok()).unwrap_or_default();
    }
    Ok(nanoseconds / 1e6)
}

fn milliseconds(time: TimeVal) -> f64 {
    // f64 is exact up to 285 years of microseconds.
    time.num_microseconds() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_has_used_time() {
        let own = [(Process::Server, std::process::id())];
        let before = CpuTimes::now(&own, Contestant::Floor).unwrap();
        let mut sum = 0_u64;
        for number in 0..20_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_add(number));
        }
        let used = CpuTimes::now(&own, Contestant::Floor).unwrap().since(&before);
        assert!(used[&Process::Caller] > 1.0, "{used:?}");
        assert!(used[&Process::Server] > 1.0, "{used:?}");
    }
}
