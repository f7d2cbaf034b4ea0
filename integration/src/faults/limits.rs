//! Resource limits of a running daemon.

use anyhow::Result;

use crate::{Daemon, command};

/// A limit of one resource, setrlimit(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Open descriptors (`RLIMIT_NOFILE`).
    Descriptors(u32),
    /// Processes and threads of its user (`RLIMIT_NPROC`); root is exempt unless it lacks
    /// CAP_SYS_ADMIN and CAP_SYS_RESOURCE.
    Processes(u32),
    /// Bytes of address space (`RLIMIT_AS`): a thread that needs a stack does not start.
    AddressSpace(u64),
}

impl Daemon {
    /// Sets the soft limit of the running daemon until it ends, with prlimit(1). The hard limit
    /// stays, so that a test can lift the limit again without CAP_SYS_RESOURCE.
    pub fn limit(&self, limit: Limit) -> Result<()> {
        // `N:` is the soft limit alone.
        let option = match limit {
            Limit::Descriptors(count) => format!("--nofile={count}:"),
            Limit::Processes(count) => format!("--nproc={count}:"),
            Limit::AddressSpace(bytes) => format!("--as={bytes}:"),
        };
        let pid = self.running_pid()?;
        command::output(
            std::process::Command::new("prlimit").arg("--pid").arg(pid.to_string()).arg(option),
        )
        .map(drop)
    }
}
