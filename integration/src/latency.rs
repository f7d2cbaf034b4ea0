//! `integration latency`: how long a change of a Service or of a policy takes until packets follow
//! it, measured by connections, on a whole Kubernetes with one node.
//!
//! The floor is measured in the same run, round by round: the same rows, written by one bare
//! transaction into the same northbound database. What lies between the two is the API server's and
//! the control plane's.
//!
//! | file | what it is |
//! |---|---|
//! | [`site`] | the cluster, its client and its two servers |
//! | [`change`] | the three changes of a Service, by the API server or by a bare transaction |
//! | [`policies`] | policies that forbid and allow, in the same two ways |
//! | [`network_policy`] | a world of its own: pods that start with policies, and kube-burner's workload |
//! | [`report`] | figures, goals, the table and `latency.json` |

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use self::{
    network_policy::World,
    report::{Measured, MeasuredPolicies, Report},
    site::Site,
};
use crate::report::{environment::Environment, progress, publish};

mod change;
mod network_policy;
mod policies;
mod report;
mod site;

/// Measure how long a change of a Service or of a policy takes until connections follow it. Exit
/// status 1 if a goal is missed.
///
/// All figures, with their fields, go to latency/latency.json in cargo's target directory.
#[derive(Debug, Args)]
pub(crate) struct Latency {
    /// How many times each change is measured.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=40))]
    rounds: u8,
    /// How many other Services there are when all is measured again.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    others: usize,
    /// How many other policies there are when policies are measured again.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    other_policies: usize,
    /// Measure another world instead: this many pods that start without policies, and twice as many
    /// with twenty, and kube-burner's workload of network policies. Figures go to
    /// latency/network-policy.json.
    #[arg(
        long,
        value_name = "PODS",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        conflicts_with_all = ["rounds", "others", "other_policies"]
    )]
    starts: Option<u16>,
    /// Print the goals without failing for them.
    #[arg(long)]
    no_gates: bool,
}

impl Latency {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let (say, environment) = (progress(), Environment::with_server()?);
        if let Some(starts) = self.starts {
            let measured = World::start(&say)?.measure(starts, &say)?;
            let report = network_policy::report::Report::new(environment.at_the_end()?, measured);
            publish(&report, &report, "latency/network-policy.json")?;
            return Ok(self.exit_code(report.holds()));
        }
        let site = Site::start(&say)?;
        let mut policies = vec![self.policies(&site, 0, &say)?];
        if self.other_policies > 0 {
            say(&format!("creating {} other policies", self.other_policies));
            site.add_other_policies(self.other_policies)?;
            policies.push(self.policies(&site, self.other_policies, &say)?);
            say("deleting them");
            site.delete_other_policies(self.other_policies)?;
        }
        let mut measured = vec![self.phase(&site, 0, &say)?];
        if self.others > 0 {
            say(&format!("creating {} other Services", self.others));
            site.add_others(self.others)?;
            measured.push(self.phase(&site, self.others, &say)?);
        }
        let report = Report::new(environment.at_the_end()?, measured, policies);
        publish(&report, &report, "latency/latency.json")?;
        Ok(self.exit_code(report.holds()))
    }

    fn exit_code(&self, all_goals_hold: bool) -> ExitCode {
        if all_goals_hold || self.no_gates { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn policies(&self, site: &Site, others: usize, say: &dyn Fn(&str)) -> Result<MeasuredPolicies> {
        let mut measured = MeasuredPolicies::with(others);
        for _ in 0..self.rounds {
            measured.floor.push(site.bare_policy_round()?);
            measured.ours.push(site.policy_round()?);
        }
        say(&measured.summary());
        Ok(measured)
    }

    fn phase(&self, site: &Site, others: usize, say: &dyn Fn(&str)) -> Result<Measured> {
        ensure!(site.services()? >= others, "the other Services are not there");
        let mut measured = Measured::with(others);
        for round in 0..self.rounds {
            // In turn, because other work of the machine should hit both.
            measured.floor.push(site.bare_round(&site.address(others > 0, round, 0))?);
            measured.ours.push(site.kubernetes_round(&site.address(others > 0, round, 1))?);
        }
        measured.rates = site.rates(&site.address(others > 0, self.rounds, 0))?;
        say(&measured.summary());
        Ok(measured)
    }
}
