//! Memory and CPU time of a process, from the kernel (proc_pid_status(5)).

use anyhow::{Context as _, Result};
use integration::{
    Daemon,
    process::{cpu_time, process},
};
use serde::{Deserialize, Serialize};

/// Memory in MB; processor time in seconds since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) rss: f64,
    pub(crate) peak_rss: f64,
    /// Of `rss`: pages of the executable's file, which the kernel may drop.
    pub(crate) file: f64,
    pub(crate) cpu: f64,
}

impl Usage {
    pub(crate) fn of(daemon: &Daemon) -> Result<Self> {
        let pid = daemon.running_pid()?;
        let status =
            process(pid)?.status().with_context(|| format!("status of {}", daemon.name()))?;
        // The kernel's "kB" are units of 1,024 bytes; exact, for memory is smaller than 2^52 bytes.
        let megabytes =
            |kilobytes: Option<u64>| kilobytes.unwrap_or_default() as f64 * 1024.0 / 1e6;
        Ok(Self {
            rss: megabytes(status.vmrss),
            peak_rss: megabytes(status.vmhwm),
            file: megabytes(status.rssfile),
            cpu: cpu_time(pid)?.as_secs_f64(),
        })
    }
}
