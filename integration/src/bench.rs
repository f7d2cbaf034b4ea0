//! `integration bench`: measures the plugin against the floor, in one run on one node, and fails if the
//! plugin is too slow.
//!
//! The floor is the work that no ADD can avoid: the netlink messages, one OVSDB transaction, and the wait for
//! ovs-vswitchd and ovn-controller, done by one process whose connections are already open. Gates limit how
//! far above the floor the plugin may be. Contestants take turns in small portions, so that other load on the
//! machine affects all of them alike.
//!
//! | file | what it is |
//! |---|---|
//! | [`size`] | what the run measures, and how often |
//! | [`driver`] | measures, inside the node's namespaces: rounds, turns, phases |
//! | [`floor`], [`plugin`] | the contestants: in this process without exec; a plugin, from start to exit |
//! | [`processes`] | CPU time, memory, descriptors and threads of the daemons |
//! | [`measurements`] | every call, as it was measured |
//! | [`summary`], [`gates`] | figures; the pass and fail criteria; pure |
//! | [`report`] | the table on the terminal, and `bench.json` |
//!
//! A new contestant is a variant of [`measurements::Contestant`] and a plugin in [`driver`]; a new kind of
//! call is a [`measurements::Verb`]; a new criterion is an entry of [`gates::Gate::all`].

mod driver;
mod floor;
mod gates;
mod measurements;
mod plugin;
mod processes;
mod report;
mod size;
mod summary;

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitCode},
    time::Instant,
};

use anyhow::{Context as _, Result};
use clap::Args;
use driver::Driver;
use gates::{Gate, Kind};
use integration::{Lab, command, executable};
use report::{CellReport, FORMAT, Report};
use size::Size;

use crate::report::{environment::Environment, publish};

/// Measure ADD, DEL and the other verbs against the floor. Exit status 1 if a gate is missed.
///
/// All figures go to bench/bench.json in cargo's target directory (docs/bench.md lists its fields).
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    size: Size,
    /// Path of upstream's plugin, to measure it with this project's server.
    #[arg(long, value_name = "FILE", value_parser = |file: &str| fs::canonicalize(file))]
    upstream: Option<PathBuf>,
    /// Report the gates on times without failing for them; failed calls and leftovers still fail the run.
    #[arg(long)]
    no_time_gates: bool,
    /// Give the benchmark real-time priority (SCHED_RR), for a machine that has other work.
    #[arg(long)]
    realtime: bool,
}

impl Bench {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        // Priorities are inherited by child processes: set them before any contestant or daemon starts.
        let own = std::process::id().to_string();
        // -10 is the niceness that ovs-ctl(8) and ovn-ctl(8) give daemons.
        command::output(Command::new("renice").args(["-n", "-10", "-p", &own]))
            .context("run as the daemons of a node do")?;
        if self.realtime {
            command::output(Command::new("chrt").args(["--rr", "--pid", "1", &own]))
                .context("run ahead of other work")?;
        }
        let report = self.measure()?;
        publish(&report, &report, "bench/bench.json")?;
        let is_demanded = |gate: &&Gate| !self.no_time_gates || gate.kind != Kind::Time;
        let holds = report.gates.iter().filter(is_demanded).all(|gate| gate.holds);
        Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn measure(&self) -> Result<Report> {
        let began = Instant::now();
        let size = self.size.clone().completed(self.upstream.as_deref())?;
        eprintln!("bench: starting a node with {} pods", size.all_pods());
        // 4,094 addresses: more than the 2,000 pods that a plan may have.
        let lab = Lab::of_nodes(1).v4_prefix_len(20).build()?;
        let node = &lab.nodes[0];
        node.start_server()?;
        let pods = lab.new_pods(node, size.all_pods())?;
        lab.central.sync()?;
        // ovn-northd scans its whole database for each port that comes up; in a cluster it runs on another
        // machine, and no ADD waits for it.
        let northd = lab.central.northd.pid().context("ovn-northd is not running")?.to_string();
        command::output(Command::new("renice").args(["-n", "19", "-p", &northd]))
            .context("give ovn-northd the least priority")?;
        let plugin_bytes = executable::under_test(executable::PLUGIN)?.metadata()?.len();
        let environment = Environment::of_this_machine(plugin_bytes)?;
        // The census comes after `sync`, so that the rows of the planned pods are in it.
        let before = node.census()?;
        let upstream = self.upstream.as_deref();
        let measurements = node.inside(|| Driver::new(&lab, &size, &pods, upstream)?.run())?;
        let leftovers = before.must_equal(&node.census()?).err().map(|difference| difference.to_string());
        let summaries = summary::summarise(&measurements);
        let errors = measurements.phases.iter().flat_map(|phase| &phase.calls);
        Ok(Report {
            format: FORMAT,
            environment: environment.at_the_end()?,
            size,
            seconds: began.elapsed().as_secs_f64(),
            gates: Gate::all(&summaries, &measurements, leftovers, plugin_bytes),
            errors: errors.filter_map(|call| call.error.clone()).take(10).collect(),
            cells: summaries.into_iter().map(|(cell, summary)| CellReport { cell, summary }).collect(),
            processes: measurements.processes,
        })
    }
}
