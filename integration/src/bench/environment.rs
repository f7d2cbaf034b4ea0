//! On what machine and with which versions a run was made: figures of two runs compare only where this is the same.

use std::{fmt, fs, thread};

use anyhow::{Context as _, Result};
use integration::Versions;
use serde::Serialize;

/// The machine, and what runs on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Environment {
    pub(crate) kernel: String,
    pub(crate) cpus: usize,
    /// Model, as `/proc/cpuinfo` has it.
    pub(crate) cpu: String,
    /// `/proc/loadavg` before the first round. More than the benchmark's own 1 to 2 at the end means that others were at work.
    pub(crate) load_before: String,
    /// The same after the last.
    pub(crate) load_after: String,
    pub(crate) open_vswitch: String,
    pub(crate) ovn: String,
    /// Who forwards: always Open vSwitch itself in the lab, `netdev`.
    pub(crate) datapath: &'static str,
    pub(crate) scheduling: Scheduling,
    /// Version of the package.
    pub(crate) version: &'static str,
    /// Size of the plugin's executable.
    pub(crate) plugin_bytes: u64,
}

/// How the kernel treats the benchmark and the lab's daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scheduling {
    /// As everything else.
    Normal,
    /// Ahead of everything else.
    Realtime,
}

impl Environment {
    pub(crate) fn of_this_machine(plugin_bytes: u64, scheduling: Scheduling) -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
        let load = load()?;
        let Versions { open_vswitch, ovn } = Versions::installed()?;
        Ok(Self {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").context("kernel release")?.trim().to_owned(),
            cpus: thread::available_parallelism()?.get(),
            cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
            load_before: load.clone(),
            load_after: load,
            open_vswitch,
            ovn,
            datapath: "netdev",
            scheduling,
            version: env!("CARGO_PKG_VERSION"),
            plugin_bytes,
        })
    }

    /// The same, at the end of the run.
    pub(crate) fn at_the_end(self) -> Result<Self> {
        Ok(Self { load_after: load()?, ..self })
    }
}

fn load() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("load average")?;
    Ok(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, cpus, cpu, load_before, load_after, open_vswitch, ovn, datapath, scheduling, .. } = self;
        let scheduling = match scheduling {
            Scheduling::Normal => "",
            Scheduling::Realtime => ", ahead of other work",
        };
        write!(
            f,
            "Linux {kernel}, {cpus} x {cpu}, load {load_before} before and {load_after} after{scheduling}; \
             Open vSwitch {open_vswitch} ({datapath}), OVN {ovn}"
        )
    }
}
