//! What was measured, raw: every call of every phase. Knows nothing of statistics.

use std::{collections::BTreeMap, fmt};

use clap::ValueEnum;
use contract::stage::Stage;
use serde::{Deserialize, Serialize};

use super::processes::Growth;

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
    Status,
    Version,
    /// GC of nothing: everything that is there is valid.
    Gc,
    /// GC that removes: see `stale` of [`super::plan::Size`].
    #[serde(rename = "GC_STALE")]
    GcStale,
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Contestant {
    /// What cannot be done without, in one process; see [`super::floor`].
    Floor,
    /// `/bin/true`: what starting any program costs.
    #[value(skip)]
    BinTrue,
    /// The plugin, with the server.
    Ours,
    /// `bridge` and `host-local` of the CNI project, which know nothing of Open vSwitch; see [`super::bridge`].
    Bridge,
    /// Upstream's plugin, with this project's server.
    Upstream,
    /// What upstream's plugin does to Open vSwitch, done by the driver; see [`super::emulated`].
    Emulated,
}

impl Contestant {
    /// Whether it takes so much longer than the others that it would take most of the run.
    pub(crate) fn is_slow(self) -> bool {
        match self {
            Self::Floor | Self::BinTrue | Self::Ours | Self::Bridge => false,
            Self::Upstream | Self::Emulated => true,
        }
    }
}

/// One combination that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) verb: Verb,
    /// How many pods are attached already, and stay so.
    pub(crate) ports: usize,
    /// How many calls at the same time.
    pub(crate) at_once: usize,
    pub(crate) contestant: Contestant,
}

/// Whose CPU time is counted.
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

/// One turn of a contestant: each pod, or each repetition, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) cell: Cell,
    /// 0 warms up and does not count.
    pub(crate) round: u32,
    /// From the first start to the last end, in milliseconds.
    pub(crate) wall: f64,
    pub(crate) calls: Vec<Call>,
    /// CPU time of the whole phase, in milliseconds, until everything had settled; empty where a phase is too short to count it.
    pub(crate) cpu: BTreeMap<Process, f64>,
}

/// One call.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Milliseconds from start to end.
    pub(crate) duration: f64,
    /// What its parts took, in milliseconds. Parts may overlap.
    pub(crate) parts: Vec<(Part, f64)>,
    /// Why it does not count.
    pub(crate) error: Option<String>,
}

/// A part of an ADD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    Stage(Stage),
    /// What the plugin does not see of itself: exec, and the way to its own clock; its end and being waited for.
    Outside,
    /// What it does between stages, at its beginning and at its end.
    Between,
}

/// Everything the driver found out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measurements {
    pub(crate) phases: Vec<Phase>,
    /// What the daemons hold.
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
            Self::Emulated => "emulated",
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
