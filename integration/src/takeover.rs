//! `integration takeover`: upstream's programs run a node, with pods, Services and connections;
//! ours take their place while all of it goes on, and hand the node back.
//!
//! | file | what it is |
//! |---|---|
//! | [`programs`] | a node without a network, and the programs of either side |
//! | [`starts`] | the start of either on such a node, in turn: a command of its own |
//! | [`connectivity`] | `ovnkube connectivity test` on upstream's network: a command of its own |
//! | [`site`] | the cluster: pods, Services, a world |
//! | [`traffic`] | connections that last, and fresh ones, by every way |
//! | [`snapshot`] | the northbound database, the bridge and the host, to compare |

use std::{
    fmt,
    path::PathBuf,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use integration::{
    central::{self, Central},
    cluster::GatewayMode,
    command, eventually, executable, let_pass,
    peer::Moment,
};
use serde::Serialize;

pub(crate) use self::{connectivity::Connectivity, starts::Starts};
use self::{
    site::Site,
    snapshot::{Differences, Snapshot},
    traffic::{Outcome, Traffic},
};
use crate::report::{environment::Environment, progress, publish};

mod connectivity;
mod programs;
mod site;
mod snapshot;
mod starts;
mod traffic;

/// For so long nothing writes the northbound database before a node counts as settled: longer than
/// the time after which upstream's programs write all flows again.
const QUIET: Duration = Duration::from_secs(20);
/// Traffic before the old programs stop, and after the new ones have settled.
const AROUND: Duration = Duration::from_secs(5);

/// Take over a node of upstream while its connections go on, and hand it back. Exit status 1 if a
/// connection breaks, a fresh one fails, or rows of the northbound database are changed.
#[derive(Debug, Args)]
pub(crate) struct Takeover {
    /// Directory with upstream's two executables, built statically.
    #[arg(long, value_name = "DIR")]
    upstream: PathBuf,
    /// How many Services there are.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(60..10_000))]
    services: u16,
    /// The node's gateway.
    #[arg(long, value_name = "MODE", default_value_t = GatewayMode::Shared)]
    gateway_mode: GatewayMode,
}

/// `takeover.json`.
#[derive(Serialize)]
struct Report {
    environment: Environment,
    gateway_mode: String,
    services: u16,
    turns: Vec<Turn>,
}

/// A change of programs.
#[derive(Serialize)]
struct Turn {
    what: &'static str,
    /// Seconds from the stop of one program until the node was ready again.
    took: f64,
    /// Transactions of the northbound database from then on.
    transactions: u64,
    traffic: Outcome,
    /// From before the first change on.
    differences: Differences,
}

impl Takeover {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let (say, environment) = (progress(), Environment::with_server()?);
        let site = Site::start(&self.upstream, self.gateway_mode, self.services, &say)?;
        let program = executable::under_test(executable::SERVER)?;
        let ours = programs::ours(&site.cluster)?;
        let before = site.snapshot()?;
        say("the node is taken over");
        let taken = Turn::take(&site, "taken over", &before, || {
            site.upstream.stop()?;
            ours.start()
        })?;
        say("the node is handed back");
        let back = Turn::take(&site, "handed back", &before, || {
            ours.stop()?;
            let north = format!("--nb-address={}", central::NORTHBOUND);
            let said = command::output(Command::new(&program).args(["hand-back", &north]))?;
            said.lines().for_each(&say);
            site.upstream.start()
        })?;
        say("what only ours had is removed");
        let node = site.node();
        let rid = Turn::take(&site, "rid of it", &before, || {
            let program = program.as_os_str();
            let said = node.run([program, "--hand-back-node".as_ref(), node.name.as_ref()])?;
            said.lines().for_each(&say);
            Ok(())
        })?;
        let environment = environment.at_the_end()?;
        let gateway_mode = self.gateway_mode.to_string();
        let report = Report {
            environment,
            gateway_mode,
            services: self.services,
            turns: vec![taken, back, rid],
        };
        publish(&report, &report, "takeover/takeover.json")?;
        let left = report.turns.last().map_or(0, |turn| turn.differences.of_rules());
        ensure!(left == 0, "{left} lines of nftables are not as before the take-over");
        let holds = report.turns.iter().all(Turn::holds);
        Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Turn {
    fn take(
        site: &Site,
        what: &'static str,
        before: &Snapshot,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let traffic = Traffic::start(site)?;
        let_pass(AROUND);
        let written = Central::northbound_transactions()?;
        let (began, moment) = (Instant::now(), Moment::now());
        change()?;
        let took = began.elapsed().as_secs_f64();
        settle()?;
        let transactions = Central::northbound_transactions()? - written;
        let_pass(AROUND);
        let differences = before.differences(&site.snapshot()?);
        site.goes_on().with_context(|| format!("the node that was {what}"))?;
        Ok(Self { what, took, transactions, traffic: traffic.stop(moment), differences })
    }

    fn holds(&self) -> bool {
        self.traffic.holds() && self.differences.keep_the_database()
    }
}

/// Waits until nothing has written the northbound database for a while.
fn settle() -> Result<()> {
    let mut last = (Central::northbound_transactions()?, Instant::now());
    eventually("the northbound database is at rest", Duration::from_secs(180), || {
        let now = Central::northbound_transactions()?;
        if now != last.0 {
            last = (now, Instant::now());
        }
        ensure!(last.1.elapsed() >= QUIET, "it was written {:?} ago", last.1.elapsed());
        Ok(())
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { environment, gateway_mode, services, turns } = self;
        writeln!(f, "\n{environment}\n\ngateway mode {gateway_mode}, {services} Services")?;
        for Turn { what, took, transactions, traffic, differences } in turns {
            writeln!(
                f,
                "\nThe node is {what}: ready after {took:.1} s, {transactions} transactions of the northbound \
                 database\n\n{traffic}\nfrom before the take-over on:\n{differences}"
            )?;
        }
        Ok(())
    }
}
