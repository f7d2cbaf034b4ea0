//! `integration services`: Services of this network and of kube-proxy with the plugin `bridge`,
//! each on two nodes of one Kubernetes, measured in turn with the same client. While one is
//! measured, the programs that write the other's rules are paused.
//!
//! | file | what it is |
//! |---|---|
//! | [`site`] | the cluster, and on each side two nodes and a client |
//! | [`round`] | one pod, until its Service answers on the other node |
//! | [`paths`] | requests and bytes on ways of packets, to and through Services and the world |
//! | [`report`] | figures, goals, the table and `services.json` |

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Args;

use self::{paths::Turns, report::Report, site::Site};
use crate::report::{environment::Environment, progress, publish};

mod paths;
mod report;
mod round;
mod site;

/// Measure Services against kube-proxy in nftables mode with the plugin `bridge`, in turn. Exit
/// status 1 if the Service of a pod that has become ready answers later here than there.
///
/// All figures, with their fields, go to services/services.json in cargo's target directory.
#[derive(Debug, Args)]
pub(crate) struct Services {
    /// How many pods become ready on each side.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// How often each way of packets is measured on each side.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    turns: u8,
    /// How long one turn's requests last, and its stream.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    turn: u16,
    /// Measure ways of packets alone, and print how this network's figures relate to the other
    /// one's. Kubernetes is no more than its API server: for a machine that is too slow for the
    /// rest, as one that is emulated.
    #[arg(long, conflicts_with = "rounds")]
    without_kubelets: bool,
    /// Have the gateway routers of this network serve node ports, by its servers' option of that
    /// name.
    #[arg(long)]
    nodeport: bool,
    /// Print the goals without failing for them.
    #[arg(long)]
    no_gates: bool,
}

impl Services {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let (say, environment) = (progress(), Environment::with_server()?);
        let mut report = Report::default();
        let mut blueprint = site::blueprint();
        if self.nodeport {
            blueprint = blueprint.server_options(&["--nodeport"]);
        }
        let site = if self.without_kubelets {
            Site::start(blueprint.without_kubelets(), &say)?
        } else {
            let site = Site::start(blueprint, &say)?;
            self.measure_rounds(&site, &mut report, &say)?;
            site
        };
        let turns = Turns { count: self.turns, time: Duration::from_secs(self.turn.into()) };
        report.paths = site.paths(turns, &say)?;
        report.environment = Some(environment.at_the_end()?);
        publish(&report, &report, "services/services.json")?;
        Ok(if report.holds() || self.no_gates { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn measure_rounds(&self, site: &Site, report: &mut Report, say: &dyn Fn(&str)) -> Result<()> {
        for number in 0..self.rounds {
            // In turn, because other work of the machine should hit both.
            for side in site.sides() {
                let round = site.alone(side, || site.round(side, number))?;
                say(&format!("round {} of {}, {}: {round}", number + 1, self.rounds, side.network));
                report.rounds.of_mut(side.network).push(round);
            }
        }
        Ok(())
    }
}
