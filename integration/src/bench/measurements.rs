//! What is measured: every call of every phase, without statistics.

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use super::processes::{CpuTimes, Growth};

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
    Status,
    Version,
    /// GC with nothing to remove: every attachment is valid.
    Gc,
    /// GC that removes attachments: see `stale` of [`super::size::Size`].
    GcStale,
}

/// A contestant of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Contestant {
    /// The work that no plugin can avoid, in one process; see [`super::floor`].
    Floor,
    /// `/bin/true`: the cost of starting any program.
    #[value(skip)]
    BinTrue,
    /// The plugin, with the server.
    Ours,
    /// `bridge` and `host-local` of the CNI project, without Open vSwitch, OVN or a server.
    Bridge,
    /// Upstream's plugin, with this project's server. So slow that it takes part in fewer phases.
    #[value(skip)]
    Upstream,
}

/// One combination that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Cell {
    pub(crate) verb: Verb,
    /// Number of pods that are attached already and stay.
    pub(crate) ports: usize,
    /// Number of calls at the same time.
    pub(crate) at_once: usize,
    pub(crate) contestant: Contestant,
}

/// A process, or group of processes, whose CPU time is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Process {
    /// The contestant: the plugin's processes, or the floor in the driver.
    Caller,
    Server,
    OvsdbServer,
    Vswitchd,
    OvnController,
}

/// One turn of a contestant: one call per pod, or per repetition.
#[derive(Debug, Clone)]
pub(crate) struct Phase {
    pub(crate) cell: Cell,
    /// Round 0 is the warm-up and does not count.
    pub(crate) round: u32,
    /// Wall time from the first start to the last end, in milliseconds.
    pub(crate) wall: f64,
    pub(crate) calls: Vec<Call>,
    /// CPU time of the whole phase, until the daemons are idle; empty if the phase is too short to measure it.
    pub(crate) cpu: CpuTimes,
}

/// One call. Times are in milliseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    pub(crate) duration: f64,
    /// Its stages; `outside`, the start and the end of the process; `between`, what no stage accounts for.
    /// Parts may overlap.
    pub(crate) parts: BTreeMap<String, f64>,
    /// The error of a call that failed; such a call is excluded from the figures.
    pub(crate) error: Option<String>,
    /// Of an ADD, to find it in the plugin's log.
    pub(crate) sandbox: String,
}

impl Call {
    /// The call after a check of its answer.
    pub(crate) fn and(mut self, verdict: Result<()>) -> Self {
        self.error = self.error.or(verdict.err().map(|error| format!("{error:#}")));
        self
    }
}

/// All measurements of the driver.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measurements {
    pub(crate) phases: Vec<Phase>,
    /// Memory, descriptors and threads of the daemons.
    pub(crate) processes: Vec<Growth>,
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

// The names in the table are those in `bench.json`.
macro_rules! named_as_in_json {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        }
    )*};
}
named_as_in_json!(Verb Contestant Process);
