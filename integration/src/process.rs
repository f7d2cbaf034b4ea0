//! Any process, as the kernel describes it (proc(5)).

use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The process with this ID.
///
/// # Errors
///
/// There is none.
pub fn process(pid: u32) -> Result<procfs::process::Process> {
    procfs::process::Process::new(pid.try_into()?).with_context(|| format!("process {pid}"))
}

/// Lets this process open as many descriptors as its hard limit allows.
///
/// # Errors
///
/// The kernel refuses it.
pub fn allow_descriptors() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("allow this process more descriptors")
}

/// Processor time of a process so far, in ticks of 10 ms.
///
/// # Errors
///
/// There is no such process.
pub fn ticks(pid: u32) -> Result<u64> {
    let stat = process(pid)?.stat()?;
    Ok(stat.utime + stat.stime)
}

/// Processor time of all threads of a process, as the kernel's scheduler counts it (`schedstat`).
///
/// # Errors
///
/// There is no such process.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    // The time of a thread that ends meanwhile is lost: schedstat goes with the thread.
    let times = process(pid)?.tasks()?.flatten().filter_map(|thread| thread.schedstat().ok());
    Ok(Duration::from_nanos(times.map(|time| time.sum_exec_runtime).sum()))
}
