//! CPU time, memory, descriptors and threads of the daemons; of those the last two must not grow
//! during a run.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use integration::{Node, Program, eventually, faults::process::Held, process::cpu_time};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use serde::Serialize;

use super::measurements::{Contestant, Process};
use crate::report::milliseconds;

/// Limit of the wait for idle threads: the runtime ends a blocking thread after ten seconds without
/// work.
const PATIENCE: Duration = Duration::from_secs(15);

/// Milliseconds.
pub(crate) type CpuTimes = BTreeMap<Process, f64>;

/// CPU time so far of `contestant`: this process, or the children that it has started and waited
/// for.
pub(crate) fn cpu_of_caller(contestant: Contestant) -> Result<f64> {
    let is_own = contestant == Contestant::Floor;
    let usage = getrusage(if is_own { UsageWho::RUSAGE_SELF } else { UsageWho::RUSAGE_CHILDREN })?;
    // f64 is exact up to 285 years of microseconds.
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e3)
}

/// CPU time so far of the daemons.
pub(crate) fn cpu_of_daemons(node: &Node) -> Result<CpuTimes> {
    let of = |program: Program| cpu_time(node.daemon(program).running_pid()?).map(milliseconds);
    Program::ALL.into_iter().map(|program| Ok((Process::Daemon(program), of(program)?))).collect()
}

/// A process at two moments: when every kind of call has been made once, and at the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Growth {
    pub(crate) process: Program,
    pub(crate) before: Held,
    pub(crate) after: Held,
}

/// What each daemon holds now.
pub(crate) fn holdings(node: &Node) -> Result<BTreeMap<Program, Held>> {
    let of = |program| Ok((program, Held::by(node.daemon(program).running_pid()?)?));
    Program::ALL.into_iter().map(of).collect()
}

impl Growth {
    /// The daemons now, and what they held `before`, after a wait for connections and threads of
    /// the last calls to end. A process that still holds more is reported, not an error.
    pub(crate) fn since(before: &BTreeMap<Program, Held>, node: &Node) -> Result<Vec<Self>> {
        let growth = |(process, after)| Self { process, before: before[&process], after };
        let all = || -> Result<Vec<Self>> { Ok(holdings(node)?.into_iter().map(growth).collect()) };
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
