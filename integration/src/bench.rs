//! `integration bench`: measures the plugin against the floor, in one run on one node, and fails if
//! the plugin is too slow.
//!
//! The floor is the work that no ADD can avoid: the netlink messages, one OVSDB transaction, and
//! the wait for ovs-vswitchd and ovn-controller, done by one process whose connections are already
//! open. Gates limit how far above the floor the plugin may be. Contestants take turns in small
//! portions, so that other load on the machine affects all of them alike.
//!
//! | file | what it is |
//! |---|---|
//! | [`driver`] | measures, inside the node's namespaces: rounds, turns, phases |
//! | [`floor`], [`plugin`] | the contestants: in this process without exec; a plugin, from start to exit |
//! | [`processes`] | CPU time, memory, descriptors and threads of the daemons |
//! | [`measurements`] | every call, as it was measured, and the figures; pure |
//! | [`gates`] | the pass and fail criteria; pure |
//! | [`report`] | the table on the terminal, and `bench.json` |
//!
//! A new contestant is a variant of [`measurements::Contestant`] and a plugin in [`driver`]; a new
//! kind of call is a [`measurements::Verb`]; a new criterion is an entry of [`gates::Gate::all`].

mod driver;
mod floor;
mod gates;
mod measurements;
mod plugin;
mod processes;
mod report;

use std::{fs, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use driver::Driver;
use gates::{Gate, Kind};
use integration::{Lab, executable};
use measurements::Contestant;
use report::{FORMAT, Report};
use rustix::process::{Pid, setpriority_process};
use serde::Serialize;

use crate::report::{environment::Environment, publish};

/// Measure ADD, DEL and the other verbs against the floor. Exit status 1 if a gate is missed.
///
/// All figures go to bench/bench.json in cargo's target directory (docs/figures/bench.md lists its
/// fields).
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    size: Size,
    /// Path of upstream's plugin, to measure it with this project's server.
    #[arg(long, value_name = "FILE", value_parser = |file: &str| fs::canonicalize(file))]
    upstream: Option<PathBuf>,
    /// Report the gates on times without failing for them; failed calls and leftovers still fail
    /// the run.
    #[arg(long)]
    no_time_gates: bool,
}

/// Size of the measurement.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize)]
pub(crate) struct Size {
    /// Less than two minutes: what the gates need, in fewer rounds.
    #[arg(long)]
    #[serde(skip)]
    quick: bool,
    /// Pods that each contestant adds and deletes in each round; at least the number of calls at
    /// once.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) pods: usize,
    /// Of these, how many with fewer than 32 calls at once, or by upstream's plugin.
    #[arg(long, value_name = "N", default_value_t = 60, default_value_if("quick", "true", "16"))]
    pub(crate) few_pods: usize,
    /// Rounds that count; one more comes before them, to warm up.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// How many calls at the same time; 1 is always among them, because of its gates.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,8,32,100")]
    #[arg(default_value_if("quick", "true", "1,32,100"))]
    pub(crate) at_once: Vec<usize>,
    /// How many pods are attached already while others come and go; 0 is always among them.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,100,250")]
    #[arg(default_value_if("quick", "true", "0"))]
    pub(crate) ports: Vec<usize>,
}

impl Size {
    /// The same size with what has to be in it.
    pub(crate) fn completed(mut self) -> Result<Self> {
        ensure!(!self.at_once.contains(&0), "0 calls at once measure nothing");
        self.at_once.push(1);
        self.ports.push(0);
        for list in [&mut self.at_once, &mut self.ports] {
            list.sort_unstable();
            list.dedup();
        }
        // At least one pod for each caller, also where `--pods` asks for fewer.
        self.pods = self.at_once.iter().copied().fold(self.pods, usize::max);
        self.few_pods = self.few_pods.min(self.pods);
        ensure!(self.all_pods() <= 2000, "{} pods: the node has room for 2000", self.all_pods());
        Ok(self)
    }

    /// How many pods `contestant` adds and deletes in a round.
    pub(crate) fn share(&self, contestant: Contestant, at_once: usize) -> usize {
        let few = at_once < 32 || contestant == Contestant::Upstream;
        if few { self.few_pods.max(at_once) } else { self.pods }
    }

    /// Pods on the node: those that come and go, and those that stay.
    pub(crate) fn all_pods(&self) -> usize {
        self.pods + self.ports.last().copied().unwrap_or(0)
    }
}

impl Bench {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        // -10 is the niceness that ovs-ctl(8) and ovn-ctl(8) give daemons. Child processes inherit
        // it: it comes before any contestant or daemon starts.
        setpriority_process(None, -10).context("raise the priority")?;
        let report = self.measure()?;
        publish(&report, &report, "bench/bench.json")?;
        let is_demanded = |gate: &&Gate| !self.no_time_gates || gate.kind != Kind::Time;
        let holds = report.gates.iter().filter(is_demanded).all(|gate| gate.holds);
        Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn measure(&self) -> Result<Report> {
        let began = Instant::now();
        let size = self.size.clone().completed()?;
        eprintln!("bench: starting a node with {} pods", size.all_pods());
        // 4,094 addresses: more than the 2,000 pods that a plan may have.
        let lab = Lab::of_nodes(1).v4_prefix_len(20).build()?;
        let node = &lab.nodes[0];
        node.start_server()?;
        let pods = lab.new_pods(node, size.all_pods())?;
        lab.central.sync()?;
        // ovn-northd scans its whole database for each port that comes up; in a cluster it runs on
        // another machine, and no ADD waits for it.
        let northd = Pid::from_raw(lab.central.northd.running_pid()?.try_into()?);
        setpriority_process(northd, 19).context("lower the priority of ovn-northd")?;
        let plugin_bytes = executable::under_test(executable::PLUGIN)?.metadata()?.len();
        let environment = Environment::of_this_machine(plugin_bytes)?;
        // The census comes after `sync`, so that the rows of the planned pods are in it.
        let before = node.census()?;
        let upstream = self.upstream.as_deref();
        let (phases, processes) =
            node.inside(|| Driver::new(&lab, &size, &pods, upstream)?.run())?;
        let leftovers =
            before.must_equal(&node.census()?).err().map(|difference| difference.to_string());
        let cells = measurements::summarise(&phases);
        Ok(Report {
            format: FORMAT,
            environment: environment.at_the_end()?,
            size,
            seconds: began.elapsed().as_secs_f64(),
            gates: Gate::all(&cells, &phases, &processes, leftovers, plugin_bytes),
            cells,
            processes,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn one_at_once_is_always_measured_and_a_size_that_measures_nothing_is_refused() {
        #[derive(Debug, Parser)]
        struct Arguments {
            #[command(flatten)]
            size: Size,
        }
        let size = |words: &str| {
            Arguments::try_parse_from(["bench"].into_iter().chain(words.split(' ')))?
                .size
                .completed()
        };
        let usual = size("--pods 4 --at-once 32,8,8").unwrap();
        assert_eq!((usual.at_once, usual.pods), (vec![1, 8, 32], 32));
        assert_eq!(usual.ports, [0, 100, 250]);
        let quick = size("--quick").unwrap();
        assert_eq!((quick.few_pods, quick.at_once, quick.ports), (16, vec![1, 32, 100], vec![0]));
        for words in ["--at-once 0", "--pods 3000"] {
            assert!(size(words).is_err(), "{words}");
        }
    }
}
