//! Memory and CPU time of a process, from the kernel (proc_pid_status(5)).

use std::fs;

use anyhow::{Context as _, Result};
use integration::Daemon;
use serde::{Deserialize, Serialize};

use crate::bench::cpu::of_threads;

/// Memory in MB; processor time in seconds since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) rss: f64,
    pub(crate) peak_rss: f64,
    pub(crate) cpu: f64,
}

impl Usage {
    pub(crate) fn of(daemon: &Daemon) -> Result<Self> {
        let pid = daemon.pid().with_context(|| format!("{} is not running", daemon.name()))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .with_context(|| format!("status of {}", daemon.name()))?;
        Ok(Self {
            rss: megabytes(&status, "VmRSS:"),
            peak_rss: megabytes(&status, "VmHWM:"),
            cpu: of_threads(pid)? / 1e3,
        })
    }
}

fn megabytes(status: &str, field: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    // The kernel's "kB" are units of 1,024 bytes.
    line.split_whitespace().next().and_then(|number| number.parse::<f64>().ok()).unwrap_or_default() * 1024.0
        / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_millions_of_bytes() {
        assert_eq!(megabytes("Name:\tx\nVmHWM:\t  100000 kB\nVmRSS:\t   50000 kB\n", "VmHWM:"), 102.4);
    }
}
