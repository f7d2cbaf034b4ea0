//! The machine and the versions of a run: figures of two runs compare only where these are equal.

use std::{fmt, fs, thread, time::Instant};

use anyhow::{Context as _, Result};
use integration::{Datapath, Versions, executable, process};
use rustix::{
    thread::{MembarrierCommand, membarrier},
    time::{ClockId, clock_getres},
};
use serde::Serialize;

use super::percentiles::median;

/// The machine, and the versions of the programs on it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Environment {
    pub(crate) kernel: String,
    pub(crate) cpus: usize,
    /// The kernel's ticks per second, from the resolution of its coarse clock. An RCU grace period
    /// takes several ticks.
    pub(crate) hz: Option<u64>,
    /// Length of an RCU grace period in milliseconds: median of 21 global `membarrier(2)` calls.
    /// The kernel waits for one or two grace periods in every DEL, before it frees the link.
    pub(crate) grace_period: Option<f64>,
    /// Model, from `/proc/cpuinfo`.
    pub(crate) cpu: String,
    /// `/proc/loadavg` before the first round. The benchmark itself adds 1 to 2; a higher value at
    /// the end means that the machine had other work.
    pub(crate) load_before: String,
    /// `/proc/loadavg` after the last round.
    pub(crate) load_after: String,
    pub(crate) open_vswitch: String,
    pub(crate) ovn: String,
    /// Datapath type of the lab's switches.
    pub(crate) datapath: &'static str,
    /// How the kernel treats this process and its children: `normal`, or `realtime`, ahead of all
    /// others.
    pub(crate) scheduling: &'static str,
    /// Version of the package.
    pub(crate) version: &'static str,
    /// Size of the plugin's executable.
    pub(crate) plugin_bytes: u64,
}

/// sched(7).
const SCHED_RR: u32 = 2;

impl Environment {
    /// This machine, with the size of the executable of the server and the control plane.
    pub(crate) fn with_server() -> Result<Self> {
        Self::of_this_machine(executable::under_test(executable::SERVER)?.metadata()?.len())
    }

    pub(crate) fn of_this_machine(plugin_bytes: u64) -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
        let load = load()?;
        let is_realtime = process(std::process::id())?.stat()?.policy == Some(SCHED_RR);
        let Versions { open_vswitch, ovn } = Versions::installed()?;
        Ok(Self {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .context("kernel release")?
                .trim()
                .to_owned(),
            cpus: thread::available_parallelism()?.get(),
            hz: hz(),
            grace_period: grace_period(),
            cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
            load_before: load.clone(),
            load_after: load,
            open_vswitch,
            ovn,
            datapath: Datapath::of_lab().name(),
            scheduling: if is_realtime { "realtime" } else { "normal" },
            version: env!("CARGO_PKG_VERSION"),
            plugin_bytes,
        })
    }

    /// Adds the load at the end of the run.
    pub(crate) fn at_the_end(self) -> Result<Self> {
        Ok(Self { load_after: load()?, ..self })
    }
}

fn hz() -> Option<u64> {
    // The coarse clock advances once per tick: its resolution is the length of a tick.
    let tick = clock_getres(ClockId::MonotonicCoarse);
    u64::try_from(tick.tv_nsec).ok().filter(|tick| *tick > 0).map(|tick| 1_000_000_000 / tick)
}

fn grace_period() -> Option<f64> {
    // A global membarrier returns after one grace period (kernel/sched/membarrier.c:
    // synchronize_rcu).
    let time = || {
        let began = Instant::now();
        membarrier(MembarrierCommand::Global).ok().map(|()| began.elapsed().as_secs_f64() * 1e3)
    };
    (0..21).map(|_| time()).collect::<Option<Vec<f64>>>().map(median)
}

fn load() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg").context("load average")?;
    Ok(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = || "unknown".to_owned();
        let hz = self.hz.map_or_else(unknown, |hz| format!("{hz} Hz"));
        let grace_period = self.grace_period.map_or_else(unknown, |time| format!("{time:.1} ms"));
        let Self {
            kernel,
            cpus,
            cpu,
            load_before,
            load_after,
            open_vswitch,
            ovn,
            datapath,
            scheduling,
            ..
        } = self;
        write!(
            f,
            "Linux {kernel} ({hz}, grace period {grace_period}), {cpus} x {cpu}, \
             load {load_before} before and {load_after} after, {scheduling} priority; \
             Open vSwitch {open_vswitch} ({datapath}), OVN {ovn}"
        )
    }
}
