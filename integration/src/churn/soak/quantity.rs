//! The quantities that a soak samples, their units, and their demands.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Program;

/// A sampled number that could grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Resident memory in kB (1,024 bytes), as proc_pid_smaps(5) counts it.
    Rss(Program),
    /// Anonymous memory, which a leak consists of; without pages of the executable, which are
    /// loaded when code runs for the first time.
    Own(Program),
    /// Resident memory, where a page that n processes share counts as 1/n. It rises when another
    /// process with the same executable ends.
    Pss(Program),
    /// Open file descriptors.
    Descriptors(Program),
    /// Threads.
    Threads(Program),
    /// Rows of the table `Port`.
    Ports,
    /// Rows of the table `Interface`.
    Interfaces,
    /// Rows of the tables `QoS` and `Queue`.
    Limits,
    /// Network interfaces of the node's namespace.
    Links,
    /// Names of network namespaces.
    Namespaces,
    /// Mounts in the node's mount namespace.
    Mounts,
    /// Files, sockets and links below the directories that the plugin and the server write to.
    Files,
    /// Connections that the node's kernel tracks.
    Connections,
    /// OpenFlow flows of `br-int`.
    Flows,
    /// Size of `conf.db` in kB.
    Database,
    /// The same right after compaction, at the start and at the end.
    Compacted,
    /// Size of the plugin's log in kB.
    PluginLog,
    /// Size of the server's log in kB.
    ServerLog,
    /// Median time of an ADD in ms, since the sample before.
    AddTime,
    /// Median time of a DEL in ms.
    DelTime,
}

/// The condition for a quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Demand {
    /// The same number in every sample.
    Same,
    /// The trend line through the second half rises by at most this much from its start to its end.
    Flat(f64),
    /// None: the quantity is only shown.
    Nothing,
}

/// Permitted growth of the server's memory, in kB: pages come one at a time, and the allocator
/// returns them at its own pace. Over the 5,000 cycles that are the second half of 10,000 it is 61
/// bytes a cycle.
pub const MEMORY: f64 = 300.0;
/// One descriptor: the connection of a call that has just ended.
const DESCRIPTORS: f64 = 1.0;
/// The runtime ends an idle thread for blocking work only after ten seconds.
const THREADS: f64 = 4.0;
/// Permitted growth of the compacted database, in kB, after 10,000 pods that are gone. A row of a
/// pod has some 600 bytes, so that a leak of one row in a thousand pods stays below it and a
/// systematic one does not.
const DATABASE: f64 = 8.0;

impl Quantity {
    /// The demand on this quantity.
    pub fn demand(self) -> Demand {
        match self {
            Self::Own(Program::Server) => Demand::Flat(MEMORY),
            Self::Descriptors(Program::Server) => Demand::Flat(DESCRIPTORS),
            Self::Threads(Program::Server) => Demand::Flat(THREADS),
            Self::Ports
            | Self::Interfaces
            | Self::Limits
            | Self::Links
            | Self::Namespaces
            | Self::Mounts
            | Self::Files => Demand::Same,
            Self::Compacted => Demand::Flat(DATABASE),
            // Leaks of other programs are not this project's, logs are rotated, and the database is
            // compacted when it has doubled.
            Self::Rss(_)
            | Self::Own(_)
            | Self::Pss(_)
            | Self::Descriptors(_)
            | Self::Threads(_) => Demand::Nothing,
            Self::Connections
            | Self::Flows
            | Self::Database
            | Self::PluginLog
            | Self::ServerLog
            | Self::AddTime
            | Self::DelTime => Demand::Nothing,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rss(process) => write!(f, "{process}: RSS, kB"),
            Self::Own(process) => write!(f, "{process}: own memory, kB"),
            Self::Pss(process) => write!(f, "{process}: PSS, kB"),
            Self::Descriptors(process) => write!(f, "{process}: descriptors"),
            Self::Threads(process) => write!(f, "{process}: threads"),
            Self::Ports => f.write_str("rows of Port"),
            Self::Interfaces => f.write_str("rows of Interface"),
            Self::Limits => f.write_str("rows of QoS and Queue"),
            Self::Links => f.write_str("network interfaces"),
            Self::Namespaces => f.write_str("network namespaces"),
            Self::Mounts => f.write_str("mounts"),
            Self::Files => f.write_str("files"),
            Self::Connections => f.write_str("tracked connections"),
            Self::Flows => f.write_str("flows of br-int"),
            Self::Database => f.write_str("conf.db, kB"),
            Self::Compacted => f.write_str("conf.db compacted, kB"),
            Self::PluginLog => f.write_str("plugin's log, kB"),
            Self::ServerLog => f.write_str("server's log, kB"),
            Self::AddTime => f.write_str("ADD, median ms"),
            Self::DelTime => f.write_str("DEL, median ms"),
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("the same"),
            Self::Flat(growth) => write!(f, "+{growth} in the second half"),
            Self::Nothing => Ok(()),
        }
    }
}
