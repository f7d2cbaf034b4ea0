//! What a run did, in numbers.

use std::{collections::BTreeMap, fmt, ops::AddAssign};

/// What a run of [`super::Chaos`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// ADDs by how they ended.
    pub adds: Calls,
    /// DELs by how they ended.
    pub dels: Calls,
    /// How often each daemon was killed.
    pub daemons: BTreeMap<String, u32>,
}

/// Calls of one verb by how they ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    /// With success.
    pub succeeded: u32,
    /// By SIGKILL.
    pub killed: u32,
    /// With an error, by its code.
    pub failed: BTreeMap<u32, u32>,
}

impl AddAssign for Calls {
    fn add_assign(&mut self, other: Self) {
        let Self { succeeded, killed, failed } = other;
        self.succeeded += succeeded;
        self.killed += killed;
        for (code, count) in failed {
            *self.failed.entry(code).or_default() += count;
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let Self { adds, dels, daemons } = other;
        self.adds += adds;
        self.dels += dels;
        for (name, count) in daemons {
            *self.daemons.entry(name).or_default() += count;
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} succeeded, {} killed", self.succeeded, self.killed)?;
        self.failed.iter().try_for_each(|(code, count)| write!(f, ", {count} with code {code}"))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { adds, dels, daemons } = self;
        let daemons: Vec<String> =
            daemons.iter().map(|(name, count)| format!("{name} {count}")).collect();
        write!(f, "ADD: {adds}\nDEL: {dels}\nkilled: {}", daemons.join(", "))
    }
}
