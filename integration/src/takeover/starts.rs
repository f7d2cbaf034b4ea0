//! `integration starts`: how long a node without a network takes until it has one, with a gateway,
//! by upstream's programs and by this project's. Each start is in a laboratory of its own, in turn.

use std::{
    fmt, fs,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use integration::{cluster::GatewayMode, eventually, executable, inside};
use serde::{Deserialize, Serialize};

use super::programs;
use crate::{
    report::{environment::Environment, percentiles::Percentiles, progress, publish},
    run_inside::run_inside,
};

/// For so long a node may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// What the runtime waits for, and with it the kubelet: upstream's, and this project's.
const CONFIGURATIONS: [&str; 2] =
    ["/etc/cni/net.d/10-ovn-kubernetes.conf", "/etc/cni/net.d/10-ovn-kubernetes.conflist"];

/// Measure a node's start with a gateway, from its programs' start until it is ready for pods, in
/// turn with upstream's. Exit status 1 if this project's median is later.
#[derive(Debug, Args)]
pub(crate) struct Starts {
    /// Directory with upstream's two executables, built statically.
    #[arg(long, value_name = "DIR")]
    upstream: PathBuf,
    /// The node's gateway.
    #[arg(long, value_name = "MODE", default_value_t = GatewayMode::Shared)]
    gateway_mode: GatewayMode,
    /// How often each of them starts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Start these programs once, in the laboratory that this process is in.
    #[arg(long, hide = true, requires = "into")]
    one: Option<Programs>,
    /// Write the figures of that to this file.
    #[arg(long, hide = true, requires = "one")]
    into: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum Programs {
    Upstream,
    Ours,
}

/// Seconds from the start of the programs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Start {
    programs: Programs,
    /// Until the runtime has its configuration.
    configured: f64,
    /// Until the API server says that the node is ready, and takes pods: how soon the kubelet asks
    /// its runtime is in it.
    ready: f64,
}

/// `starts.json`.
#[derive(Serialize)]
struct Report {
    environment: Environment,
    gateway_mode: String,
    starts: Vec<Start>,
}

impl Starts {
    /// Outside of a laboratory, all of them; in one, that of `one`.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if let (Some(programs), Some(file)) = (self.one, &self.into) {
            inside::enter_again()?;
            let start = self.start(programs)?;
            println!("{start}");
            fs::write(file, serde_json::to_vec(&start)?)
                .with_context(|| format!("write {}", file.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let environment = Environment::with_server()?;
        let directory = executable::target_dir()?.join("takeover");
        fs::create_dir_all(&directory)?;
        let mut starts = Vec::new();
        for round in 0..self.rounds {
            for programs in [Programs::Upstream, Programs::Ours] {
                let what = format!("round {round}, {}", programs.name());
                let one = [format!("--one={}", programs.name())];
                starts.push(run_inside("starts", &what, one, directory.join("start.json"))?);
            }
        }
        let gateway_mode = self.gateway_mode.to_string();
        let report = Report { environment: environment.at_the_end()?, gateway_mode, starts };
        publish(&report, &report, "takeover/starts.json")?;
        Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn start(&self, programs: Programs) -> Result<Start> {
        let say = progress();
        let cluster = programs::bare_node(self.gateway_mode, &say)?;
        let zone = match programs {
            Programs::Upstream => programs::upstream(&cluster, &self.upstream, &[])?,
            Programs::Ours => programs::ours(&cluster)?,
        };
        let node = &cluster.lab.nodes[0];
        say(&format!("starting the programs: {}", programs.name()));
        let began = Instant::now();
        zone.spawn()?;
        let configurations = CONFIGURATIONS.map(|path| node.path(path));
        eventually("the runtime is configured", PATIENCE, || {
            ensure!(
                configurations.iter().any(|path| path.exists()),
                "there is none of {CONFIGURATIONS:?}"
            );
            Ok(())
        })?;
        let configured = began.elapsed().as_secs_f64();
        cluster.wait_until_ready()?;
        Ok(Start { programs, configured, ready: began.elapsed().as_secs_f64() })
    }
}

impl Programs {
    fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Ours => "ours",
        }
    }
}

impl Report {
    /// Of both moments, configured and ready.
    fn of(&self, programs: Programs) -> [Percentiles; 2] {
        let starts = || self.starts.iter().filter(move |start| start.programs == programs);
        [
            Percentiles::of(starts().map(|start| start.configured)),
            Percentiles::of(starts().map(|start| start.ready)),
        ]
    }

    fn holds(&self) -> bool {
        let [[ours, _], [upstream, _]] =
            [Programs::Ours, Programs::Upstream].map(|programs| self.of(programs));
        ours.p50 <= upstream.p50
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { programs, configured, ready } = self;
        write!(
            f,
            "{}: configured after {configured:.2} s, ready after {ready:.2} s",
            programs.name()
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { environment, gateway_mode, .. } = self;
        writeln!(
            f,
            "\n{environment}\n\nA node's start, gateway mode {gateway_mode}: seconds, median (slowest)\n"
        )?;
        writeln!(f, "| | upstream | this |\n|---|---|---|")?;
        let [upstream, ours] =
            [Programs::Upstream, Programs::Ours].map(|programs| self.of(programs));
        for (index, what) in
            ["until the runtime is configured", "until the node is ready"].iter().enumerate()
        {
            let [theirs, ours] = [upstream[index], ours[index]];
            let (theirs, ours) = (
                format!("{:.2} ({:.2})", theirs.p50, theirs.max),
                format!("{:.2} ({:.2})", ours.p50, ours.max),
            );
            writeln!(f, "| {what} | {theirs} | {ours} |")?;
        }
        Ok(())
    }
}
