//! The world of many chassis, each of which says how far it is: what `ovnkube applied` costs, and
//! what it costs while nobody asks.
//!
//! Databases and ovn-northd are real. A chassis is a connection to the southbound database that
//! does what ovn-controller does for `nb_cfg`: it monitors `SB_Global` and its own row of
//! `Chassis_Private`, and writes the number that it has seen. It installs no flows, so the figures
//! are those of the question alone.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Daemon,
    central::{Central, NORTHBOUND, SOUTHBOUND},
    eventually, executable, let_pass,
};
use serde_json::Value;
use tokio::runtime::Builder;

use self::figures::{Applied, Costs, Question};
use super::process::Usage;

mod chassis;
pub(crate) mod figures;

/// Questions, one after the other.
const QUESTIONS: usize = 20;
/// How long nobody asks.
const QUIET: Duration = Duration::from_secs(10);
/// Far longer than any time that is worth measuring.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pod that is asked about.
const POD: &str = "web";
const NAMESPACE: &str = "shop";

/// Measures everything, and reports progress to `say`.
pub(crate) fn run(nodes: usize, say: &(dyn Fn(&str) + Sync)) -> Result<Applied> {
    let central = Central::create()?;
    central.start_northbound()?;
    central.start_southbound()?;
    central.northd.spawn()?;
    central.nbctl(["ls-add", "node-0"])?;
    central.nbctl(["lsp-add", "node-0", &format!("{NAMESPACE}_{POD}")])?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // They end with the runtime.
    for number in 0..nodes {
        let chassis = runtime.block_on(chassis::register(number))?;
        runtime.spawn(async {
            // One that is away is missing in the answers, too.
            if let Err(error) = chassis::follow(chassis).await {
                eprintln!("{error:#}");
            }
        });
    }
    // What their rows, and the first question, cause has to be over.
    let world = AskedNodes { central: &central, nodes };
    world.ask()?;
    eventually("the databases are at rest", PATIENCE, || {
        let before = world.central.transactions()?;
        let_pass(Duration::from_secs(1));
        let now = world.central.transactions()?;
        ensure!(now == before, "transactions: {before:?}, and {now:?} a second later");
        Ok(())
    })?;
    say(&format!("{nodes} chassis; nobody asks for {} s", QUIET.as_secs()));
    let before = world.costs()?;
    let_pass(QUIET);
    let quiet = world.costs()?.since(&before);
    say(&format!("{QUESTIONS} questions, one after the other"));
    let before = world.costs()?;
    let questions = (0..QUESTIONS).map(|_| world.ask()).collect::<Result<Vec<_>>>()?;
    let asked = world.costs()?.since(&before);
    Ok(Applied { nodes, quiet_seconds: QUIET.as_secs(), quiet, questions, asked })
}

struct AskedNodes<'a> {
    central: &'a Central,
    nodes: usize,
}

impl AskedNodes<'_> {
    /// What the partners have used so far.
    fn costs(&self) -> Result<Costs> {
        let Central { northbound, southbound, northd, .. } = self.central;
        let cpu = |daemon: &Daemon| Usage::of(daemon).map(|usage| usage.cpu * 1e3);
        let [north, south] = self.central.transactions()?;
        Ok(Costs {
            northbound: cpu(northbound)?,
            southbound: cpu(southbound)?,
            northd: cpu(northd)?,
            northbound_transactions: north,
            southbound_transactions: south,
        })
    }

    /// One question, as an administrator asks it.
    fn ask(&self) -> Result<Question> {
        let mut command = Command::new(executable::under_test(executable::SERVER)?);
        command.env("HOME", "/nonexistent").args(["applied", "pod", POD, "-n", NAMESPACE]);
        command.args(["-o", "json", "--wait"]);
        command.args([format!("--nb-address={NORTHBOUND}"), format!("--sb-address={SOUTHBOUND}")]);
        let began = Instant::now();
        let output = command.output().context("start ovnkube")?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let report: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let verdict = report["findings"].as_array().and_then(|all| all.last());
        let verdict = verdict.context("a report has findings")?;
        let number =
            |name: &str| verdict["details"][name].as_u64().with_context(|| name.to_owned());
        let applied = number("applied").with_context(|| format!("{verdict:#}"))?;
        ensure!(applied == u64::try_from(self.nodes)?, "applied on {applied} nodes: {verdict:#}");
        Ok(Question { answered: number("milliseconds")? as f64, took })
    }
}
