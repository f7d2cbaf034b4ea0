//! CPU time of processes, as the kernel's scheduler counts it (`schedstat` of each thread).

use std::collections::BTreeMap;

use anyhow::Result;
use integration::process;
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
    // The time of a thread that ends meanwhile is lost: schedstat goes with the thread.
    let times = process(pid)?.tasks()?.flatten().filter_map(|thread| thread.schedstat().ok());
    let nanoseconds: u64 = times.map(|time| time.sum_exec_runtime).sum();
    // f64 is exact up to 104 days of nanoseconds.
    Ok(nanoseconds as f64 / 1e6)
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
