//! Raw measurements: every call of every phase, without statistics.

use std::{collections::BTreeMap, fmt};

use clap::ValueEnum;
use contract::stage::Stage;
use serde::{Deserialize, Serialize};

use super::processes::Growth;

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
    Status,
    Version,
    /// GC with nothing to remove: every attachment is valid.
    Gc,
    /// GC that removes attachments: see `stale` of [`super::plan::Size`].
    #[serde(rename = "GC_STALE")]
    GcStale,
}

/// A contestant of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Contestant {
    /// The work that no plugin can avoid, in one process; see [`super::floor`].
    Floor,
    /// `/bin/true`: the cost of starting any program.
    #[value(skip)]
    BinTrue,
    /// The plugin, with the server.
    Ours,
    /// `bridge` and `host-local` of the CNI project, without Open vSwitch; see [`super::bridge`].
    Bridge,
    /// Upstream's plugin, with this project's server.
    Upstream,
}

impl Contestant {
    /// Whether this contestant is so slow that it would take up most of the run.
    pub(crate) fn is_slow(self) -> bool {
        match self {
            Self::Floor | Self::BinTrue | Self::Ours | Self::Bridge => false,
            Self::Upstream => true,
        }
    }
}

/// One combination that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) verb: Verb,
    /// Number of pods that are attached already and stay.
    pub(crate) ports: usize,
    /// Number of calls at the same time.
    pub(crate) at_once: usize,
    pub(crate) contestant: Contestant,
}

/// A process, or group of processes, whose CPU time is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) cell: Cell,
    /// Round 0 is the warm-up and does not count.
    pub(crate) round: u32,
    /// Wall time from the first start to the last end, in milliseconds.
    pub(crate) wall: f64,
    pub(crate) calls: Vec<Call>,
    /// CPU time of the whole phase in milliseconds, until the daemons are idle; empty if the phase is too
    /// short to measure it.
    pub(crate) cpu: BTreeMap<Process, f64>,
}

/// One call.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Milliseconds from start to end.
    pub(crate) duration: f64,
    /// Durations of its parts, in milliseconds. Parts may overlap.
    pub(crate) parts: Vec<(Part, f64)>,
    /// The error of a call that failed; such a call is excluded from the figures.
    pub(crate) error: Option<String>,
}

/// A part of an ADD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    Stage(Stage),
    /// The time that the plugin cannot see: exec, the code before its clock starts, its exit, and the wait
    /// for it.
    Outside,
    /// The time of the plugin outside of its stages: before the first, between them and after the last.
    Between,
}

/// All measurements of the driver.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measurements {
    pub(crate) phases: Vec<Phase>,
    /// Memory, descriptors and threads of the daemons.
    pub(crate) processes: Vec<Growth>,
}

impl Verb {
    /// Value of `CNI_COMMAND`.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
            Self::Gc | Self::GcStale => "GC",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if *self == Self::GcStale { "GC stale" } else { self.command() })
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Floor => "floor",
            Self::BinTrue => "/bin/true",
            Self::Ours => "ours",
            Self::Bridge => "bridge",
            Self::Upstream => "upstream",
        })
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Caller => "caller",
            Self::Server => "server",
            Self::OvsdbServer => "ovsdb-server",
            Self::Vswitchd => "ovs-vswitchd",
            Self::OvnController => "ovn-controller",
        })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stage(stage) => stage.name(),
            Self::Outside => "outside",
            Self::Between => "between",
        })
    }
}
