//! `integration services`: Services of this network and of kube-proxy with the plugin `bridge`, each on two nodes
//! of one Kubernetes, measured in turn with the same client. While one is measured, the programs that write the
//! other's rules are paused.
//!
//! | file | what it is |
//! |---|---|
//! | [`site`] | the cluster, and on each side two nodes and a client |
//! | [`round`] | one pod, until its Service answers on the other node |
//! | [`paths`] | requests and bytes on ways of packets, to and through Services and the world |
//! | [`report`] | figures, goals, the table and `services.json` |

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use self::{report::Report, site::Site};
use crate::report::{environment::Environment, progress, publish};

mod paths;
mod report;
mod round;
mod site;

/// Measure Services against kube-proxy in nftables mode with the plugin `bridge`, in turn. Exit status 1 if the
/// Service of a pod that has become ready answers later here than there.
///
/// All figures, with their fields, go to services/services.json in cargo's target directory.
#[derive(Debug, Args)]
pub(crate) struct Services {
    /// How many pods become ready on each side.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Print the goals without failing for them.
    #[arg(long)]
    no_gates: bool,
}

impl Services {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let (say, environment) = (progress(), Environment::with_server()?);
        let site = Site::start(&say)?;
        let mut report = Report::default();
        for number in 0..self.rounds {
            // In turn, because other work of the machine should hit both.
            for side in site.sides() {
                let round = site.alone(side, || site.round(side, number))?;
                say(&format!("round {} of {}, {}: {round}", number + 1, self.rounds, side.network));
                report.rounds.of_mut(side.network).push(round);
            }
        }
        report.paths = site.paths(&say)?;
        report.environment = Some(environment.at_the_end()?);
        publish(&report, &report, "services/services.json")?;
        Ok(if report.holds() || self.no_gates { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
