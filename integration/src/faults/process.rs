//! What a process holds: memory, descriptors and threads, before a fault and after it.

use std::{fmt, fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;

use crate::heap;

/// By how much its pages may have grown, in kilobytes, where its allocations are not counted. Wide,
/// because the allocator cannot give back every free page.
const MORE_MEMORY: u64 = 5 * 1024;
/// By how much its allocations may have grown, in kilobytes: tables that had many entries keep
/// their room.
const MORE_ALLOCATED: u64 = 1024;

/// What one process holds at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Kilobytes of its own pages (`RssAnon` of proc(5)). Pages of its executable do not count:
    /// they come when code runs for the first time.
    pub memory: u64,
    /// Kilobytes that it has allocated and not freed, if that is counted. Pages are no measure of
    /// it: which of them the allocator can give back depends on what was allocated between what was
    /// freed, and so on the order in which threads ran.
    pub allocated: Option<u64>,
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
}

impl Held {
    /// What the process with this id holds now; an id of the lab's process namespace.
    pub fn by(pid: u32) -> Result<Self> {
        let dir = Path::new("/proc").join(pid.to_string());
        let status = fs::read_to_string(dir.join("status"))
            .with_context(|| format!("read {}/status", dir.display()))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line
                .and_then(|line| line.split_whitespace().next())
                .with_context(|| format!("no {name} in {status}"))?;
            number.parse::<u64>().with_context(|| format!("{name} of process {pid}"))
        };
        let descriptors = fs::read_dir(dir.join("fd"))?.count();
        let allocated = heap::allocated(pid)?.map(|bytes| bytes / 1024);
        Ok(Self {
            memory: field("RssAnon")?,
            allocated,
            descriptors,
            threads: usize::try_from(field("Threads")?)?,
        })
    }

    /// Compares what the process held before (`self`) with what it holds now.
    ///
    /// # Errors
    /// If it holds more than a process that has released everything.
    pub fn is_back(&self, after: &Self) -> Result<()> {
        ensure!(
            after.descriptors <= self.descriptors,
            "descriptors are open that were not before: {self}, now {after}"
        );
        ensure!(
            after.threads <= self.threads,
            "threads run that did not before: {self}, now {after}"
        );
        let holds_more = match (self.allocated, after.allocated) {
            (Some(before), Some(after)) => after > before + MORE_ALLOCATED,
            (None, None) => after.memory > self.memory + MORE_MEMORY,
            (Some(_), None) | (None, Some(_)) => {
                bail!("allocations are counted at one time only: {self}, now {after}")
            }
        };
        ensure!(!holds_more, "memory is held that was not before: {self}, now {after}");
        Ok(())
    }
}

impl fmt::Display for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, allocated, descriptors, threads } = self;
        write!(formatter, "{memory} kB")?;
        if let Some(allocated) = allocated {
            write!(formatter, " of pages, {allocated} kB allocated")?;
        }
        write!(formatter, ", {descriptors} descriptors, {threads} threads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Held = Held { memory: 20_000, allocated: None, descriptors: 20, threads: 5 };
    const COUNTED: Held = Held { allocated: Some(2000), ..BEFORE };

    #[test]
    fn a_little_more_memory_is_no_leak() {
        BEFORE.is_back(&BEFORE).unwrap();
        BEFORE.is_back(&Held { memory: 25_120, ..BEFORE }).unwrap();
        BEFORE.is_back(&Held { memory: 1, allocated: None, descriptors: 1, threads: 1 }).unwrap();
    }

    #[test]
    fn more_than_that_is_one() {
        for (leak, word) in [
            (Held { memory: 25_121, ..BEFORE }, "memory"),
            (Held { descriptors: 21, ..BEFORE }, "descriptors"),
            (Held { threads: 6, ..BEFORE }, "threads"),
        ] {
            let error = BEFORE.is_back(&leak).unwrap_err().to_string();
            assert!(error.starts_with(word), "{error}");
        }
    }

    #[test]
    fn pages_do_not_count_where_allocations_do() {
        COUNTED.is_back(&Held { memory: 90_000, allocated: Some(3024), ..COUNTED }).unwrap();
        let error = COUNTED
            .is_back(&Held { memory: 1, allocated: Some(3025), ..COUNTED })
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("memory"), "{error}");
        COUNTED.is_back(&BEFORE).unwrap_err();
        BEFORE.is_back(&COUNTED).unwrap_err();
    }

    #[test]
    fn this_process_holds_something() {
        let held = Held::by(std::process::id()).unwrap();
        assert!(held.memory > 0 && held.descriptors > 0 && held.threads > 0, "{held}");
    }
}
