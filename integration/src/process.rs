//! Any process, as the kernel describes it (proc(5)).

use anyhow::{Context as _, Result};

/// The process with this ID.
///
/// # Errors
///
/// There is none.
pub fn process(pid: u32) -> Result<procfs::process::Process> {
    procfs::process::Process::new(pid.try_into()?).with_context(|| format!("process {pid}"))
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
