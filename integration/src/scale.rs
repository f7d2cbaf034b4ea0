//! `integration scale`: runs the control plane with any number of nodes and pods, compares it with
//! the speed of the API server itself in the same run, and fails if a goal is missed.
//!
//! The API server, etcd, the northbound database and the control plane are real; nodes and pods are
//! objects without a kubelet. Results are observed through an independent watch and an independent
//! OVSDB monitor, not reported by the control plane.
//!
//! | file | what it is |
//! |---|---|
//! | [`site`] | the programs |
//! | [`run`] | the phases of one size, in order |
//! | [`join`] | a world of its own: nodes with gateways join |
//! | [`node_ports`] | another one: a node with many node ports |
//! | [`applied`] | another one: many nodes are asked what is in force |
//! | [`latency`] | the phase in which pods come at a rate |
//! | [`services`] | the phase with Services, after all others |
//! | [`policies`] | the policies, and the phase in which labels and policies change |
//! | [`objects`], [`calls`] | nodes and pods; many calls to the API server at once |
//! | [`pods`], [`northbound`], [`seen`] | the two observers, and waiting for what they observe |
//! | [`process`] | memory and processor time |
//! | [`figures`] | the measured figures |
//! | [`gates`] | the goals; pure |
//! | [`report`] | the text on the terminal and the file of figures |

use std::{fmt, fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, ensure};
use applied::figures::Applied;
use clap::Args;
use figures::Figures;
use integration::{executable, inside};
use join::figures::Joined;
use node_ports::figures::NodePorts;
use report::{Report, Sizes};
use run::{Blocks, Plan};
use serde::Serialize;
use site::Site;

use crate::{
    report::{environment::Environment, gate::Gate, progress, publish},
    run_inside::run_inside,
};

mod applied;
mod calls;
mod figures;
mod gates;
mod join;
mod latency;
mod node_ports;
mod northbound;
mod objects;
mod pods;
mod policies;
mod process;
mod report;
mod run;
mod seen;
mod services;
mod site;

/// Measure the control plane with many nodes and pods. Exit status 1 if a goal is missed.
///
/// All figures, with their fields, go to scale/scale.json in cargo's target directory.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Scale {
    /// Number of nodes.
    #[arg(long, value_name = "N", default_value_t = 500)]
    nodes: usize,
    /// Number of pods, on all nodes together.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pods: usize,
    /// Rates at which pods are created when their latency is measured, in pods a second.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10,50,200")]
    rates: Vec<usize>,
    /// Further runs with other numbers of pods, to compare the cost of a pod between them.
    #[arg(long, value_name = "PODS,…", value_delimiter = ',')]
    compare: Vec<usize>,
    /// Number of Services that are created when everything else is measured.
    #[arg(long, value_name = "N", default_value_t = 0)]
    services: usize,
    /// Endpoints of each Service.
    #[arg(long, value_name = "N", default_value_t = 5)]
    backends: usize,
    /// Number of NetworkPolicies, twenty in each namespace, which exist from the start.
    #[arg(long, value_name = "N", default_value_t = 0)]
    policies: usize,
    /// Run the same world once more with an exception in every block of the policies, and compare.
    #[arg(long, requires = "policies")]
    except: bool,
    /// Run the same world once more with this many times the policies, and compare what a pod
    /// costs. The further policies select no pod.
    #[arg(long, value_name = "N", requires = "policies", value_parser = clap::value_parser!(u8).range(2..=20))]
    times: Option<u8>,
    /// The policies of each namespace.
    #[arg(long, hide = true, default_value_t = policies::TOGETHER)]
    together: usize,
    /// The blocks of policies.
    #[arg(long, hide = true, value_enum, default_value = "whole")]
    blocks: Blocks,
    /// Measure another world instead: this many nodes, an even number, with gateways and without
    /// pods, that join within ten seconds. Figures go to scale/join.json.
    #[arg(
        long,
        value_name = "NODES",
        conflicts_with_all = [
            "nodes", "pods", "rates", "compare", "services", "backends", "policies", "except", "times",
        ]
    )]
    join: Option<usize>,
    /// Measure another world instead: this many node ports of a node whose gateway router serves
    /// them. Figures go to scale/node-ports.json.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(node_ports::MOST)),
        conflicts_with_all = [
            "nodes", "pods", "rates", "compare", "services", "backends", "policies", "except", "times", "join",
            "northd",
        ]
    )]
    node_ports: Option<u16>,
    /// Measure another world instead: this many nodes are asked whether an object is in force
    /// (`ovnkube applied`). Figures go to scale/applied.json.
    #[arg(
        long,
        value_name = "NODES",
        value_parser = clap::value_parser!(u16).range(1..=900),
        conflicts_with_all = [
            "nodes", "pods", "rates", "compare", "services", "backends", "policies", "except",
            "times", "join", "node_ports", "northd",
        ]
    )]
    applied: Option<u16>,
    /// Run a southbound database and ovn-northd, too, which use the same processors.
    #[arg(long)]
    northd: bool,
    /// Print the goals without failing for them.
    #[arg(long)]
    no_gates: bool,
    /// Run one size inside the namespaces, and write the figures to this file.
    #[arg(long, hide = true)]
    into: Option<PathBuf>,
}

impl Scale {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        ensure!(
            self.nodes > 0 && self.pods > 0 && !self.rates.contains(&0),
            "there is nothing to measure with 0 nodes, pods or pods a second"
        );
        ensure!(
            self.join.is_none_or(|nodes| nodes > 0 && nodes % 2 == 0),
            "--join: half of the nodes join first, so their number is even and not 0"
        );
        if let Some(file) = &self.into {
            inside::enter_again()?;
            let figures = if let Some(nodes) = self.join {
                serde_json::to_vec(&self.measure_join(nodes)?)?
            } else if let Some(count) = self.node_ports {
                serde_json::to_vec(&node_ports::run(count, &progress())?)?
            } else if let Some(nodes) = self.applied {
                serde_json::to_vec(&applied::run(nodes.into(), &progress())?)?
            } else {
                serde_json::to_vec(&self.measure()?)?
            };
            fs::write(file, figures).with_context(|| format!("write {}", file.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let directory = executable::target_dir()?.join("scale");
        fs::create_dir_all(&directory)?;
        let environment = Environment::with_server()?;
        if let Some(nodes) = self.join {
            let what = format!("with {nodes} nodes that join");
            let joined: Joined = run_inside("scale", &what, [], directory.join("figures.json"))?;
            return self.report(environment, joined.gates(), joined, "scale/join.json");
        }
        if let Some(count) = self.node_ports {
            let what = format!("with {count} node ports");
            let figures: NodePorts =
                run_inside("scale", &what, [], directory.join("figures.json"))?;
            return self.report(environment, figures.gates(), figures, "scale/node-ports.json");
        }
        if let Some(nodes) = self.applied {
            let what = format!("with {nodes} nodes that are asked");
            let figures: Applied = run_inside("scale", &what, [], directory.join("figures.json"))?;
            return self.report(environment, figures.gates(), figures, "scale/applied.json");
        }
        let sizes: Vec<Figures> = std::iter::once(self.pods)
            .chain(self.compare.iter().copied())
            .map(|pods| {
                let file = directory.join(format!("{pods}.json"));
                // `args_override_self`: the appended `--pods` wins over the one of the command
                // line.
                run_inside("scale", &format!("with {pods} pods"), [format!("--pods={pods}")], file)
            })
            .collect::<Result<_>>()?;
        let except = self.except.then(|| {
            let options = [format!("--pods={}", self.pods), "--blocks=except".to_owned()];
            run_inside("scale", "with exceptions", options, directory.join("except.json"))
        });
        let more = self.times.map(usize::from).map(|times| {
            let options = [
                format!("--pods={}", self.pods),
                format!("--policies={}", times * self.policies),
                format!("--together={}", times * self.together),
            ];
            run_inside("scale", "with more policies", options, directory.join("more-policies.json"))
        });
        let sizes = Sizes {
            sizes,
            with_exceptions: except.transpose()?,
            with_more_policies: more.transpose()?,
        };
        self.report(environment, sizes.gates(), sizes, "scale/scale.json")
    }

    /// Prints what was measured, and writes it to `file`.
    fn report<M: fmt::Display + Serialize>(
        &self,
        environment: Environment,
        gates: Vec<Gate>,
        measured: M,
        file: &str,
    ) -> Result<ExitCode> {
        let report = Report::new(environment.at_the_end()?, measured, gates);
        publish(&report, &report, file)?;
        Ok(if report.holds() || self.no_gates { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn measure(&self) -> Result<Figures> {
        let &Self {
            nodes,
            pods,
            ref rates,
            services,
            backends,
            policies,
            together,
            blocks,
            northd,
            ..
        } = self;
        let say = progress();
        say("starting etcd, the API server and the northbound database");
        // The pods of the latency phase come on top of all others, so the nodes' subnets need room
        // for both.
        let most = rates.iter().map(|rate| latency::pods_at(*rate)).max().unwrap_or(0);
        let site = Site::start((pods + most).div_ceil(nodes), northd.into(), &[])?;
        let plan = Plan {
            nodes,
            pods,
            rates: rates.clone(),
            services,
            backends,
            policies,
            together,
            blocks,
        };
        let runtime = std::sync::Arc::clone(&site.api.runtime);
        runtime.block_on(run::run(&site, &plan, &say))
    }

    fn measure_join(&self, nodes: usize) -> Result<Joined> {
        let say = progress();
        say("starting etcd, the API server and the northbound database");
        let northd = self.northd.into();
        let site = Site::start(PODS_OF_A_NODE, northd, &[join::OPTION])?;
        let runtime = std::sync::Arc::clone(&site.api.runtime);
        runtime.block_on(join::run(&site, nodes, northd, &say))
    }
}

/// Room in the subnets of nodes without pods.
const PODS_OF_A_NODE: usize = 20;
