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
//! | [`plan`] | what the run measures, and on which pods |
//! | [`driver`] | the measuring process, inside the node's namespaces: rounds, turns, phases |
//! | [`floor`], [`plugin`] | the contestants: in this process without exec; a plugin, from start to exit |
//! | [`processes`] | CPU time, memory, descriptors and threads of the daemons |
//! | [`measurements`] | the raw measurements, which the driver hands to the report |
//! | [`summary`], [`gates`] | figures; the pass and fail criteria; pure |
//! | [`report`] | the table on the terminal, and `bench.json` |
//!
//! A new contestant is a variant of [`measurements::Contestant`] and a plugin in [`driver`]; a new kind of
//! call is a [`measurements::Verb`]; a new criterion is an entry of [`gates::Gate::all`].

mod driver;
mod floor;
mod gates;
mod measurements;
mod plan;
mod plugin;
mod processes;
mod report;
mod summary;

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
pub(crate) use driver::drive;
use gates::{Gate, Kind};
use integration::{Lab, Node, command, executable};
use measurements::Measurements;
use plan::{Plan, Size};
use report::{CellReport, FORMAT, Report};

use crate::report::{
    environment::{Environment, Scheduling},
    publish,
};

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

        let scheduling = if self.realtime { Scheduling::Realtime } else { Scheduling::Normal };
        let environment = Environment::of_this_machine(plugin_bytes, scheduling)?;
        // The census comes after `sync`, so that the rows of the planned pods are in it.
        let before = node.census()?;
        let measurements = run_driver(node, &Plan::new(size.clone(), pods, node, self.upstream.clone())?)?;
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

/// Runs the driver on the node: one `nsenter` for all calls.
fn run_driver(node: &Node, plan: &Plan) -> Result<Measurements> {
    let mut command = node.command(executable::of_package("integration")?);
    command.arg("bench-driver").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("start the driver on the node")?;
    child.stdin.take().context("standard input is a pipe")?.write_all(&serde_json::to_vec(plan)?)?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the driver ended with {} (see above)", output.status);
    serde_json::from_slice(&output.stdout).context("what the driver reports")
}
