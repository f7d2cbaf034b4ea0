//! `ovnkube check`: whether this machine is fit for a node, before anything is installed. Nothing
//! is changed.
//!
//! Each class of checks is a file; the exit status names the first class that fails.
//!
//! | class | what is looked at |
//! |---|---|
//! | `kernel` | modules of the datapath, the tunnels and the connection tracker |
//! | `ports` | TCP 6641 and 6642, UDP 6081 |
//! | `networks` | another CNI configuration, another network's devices, kube-proxy |
//! | `releases` | releases of Open vSwitch and OVN with known faults |
//! | `nic` | the MTU below the tunnels; programs that configure the NIC |
//! | `machine` | disk, capabilities |
//! | `access` | rights at the API server |

use std::{path::Path, process::ExitCode};

use kubeapi::ApiServer;

use crate::{
    chain,
    findings::{Finding, Format, Report, State},
    status::{Machine, Reach},
};

mod access;
mod kernel;
mod machine;
mod networks;
mod nic;
mod ports;
mod releases;

/// The classes, in the order of the report, and the exit status if the first check that fails is of
/// that class.
pub const CLASSES: [(&str, u8); 8] = [
    (kernel::KERNEL, 10),
    (ports::PORTS, 11),
    (networks::OTHER_NETWORKS, 12),
    (releases::RELEASES, 13),
    (nic::MTU, 14),
    (nic::NIC, 15),
    (machine::DISK, 16),
    (machine::RIGHTS, 17),
];

/// Where the command looks.
#[derive(Debug, Clone)]
pub struct CheckConfig {
    pub api_server: Reach<ApiServer>,
    pub machine: Machine,
    /// The MTU of pods.
    pub mtu: u32,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Question {
    /// The NIC that leads to the other nodes; that of the default route if it is not given.
    pub nic: Option<String>,
    pub format: Format,
}

/// Checks, prints the report and returns the exit status of the first class that fails.
pub fn run(config: &CheckConfig, question: &Question) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ovnkube: the runtime of this program: {}", chain(&error));
            return ExitCode::FAILURE;
        }
    };
    let report = Report::new("Check", runtime.block_on(findings(config, question)));
    let status = exit_status(&report);
    match report.print(question.format) {
        ExitCode::SUCCESS => ExitCode::SUCCESS,
        _ => status.into(),
    }
}

async fn findings(config: &CheckConfig, question: &Question) -> Vec<Finding> {
    let root = Path::new("/");
    let mut findings = kernel::findings(root);
    findings.extend(ports::findings(root));
    findings.extend(networks::findings(root));
    findings.extend(releases::findings(&config.machine).await);
    findings.extend(nic::findings(question.nic.as_deref(), config.mtu).await);
    findings.extend(machine::findings(root));
    findings.extend(access::findings(&config.api_server).await);
    findings
}

/// The status of the first class that fails; that of the report if none does.
fn exit_status(report: &Report) -> u8 {
    let fails = |class: &str| {
        report
            .findings
            .iter()
            .any(|finding| finding.subject == class && finding.state == State::Failed)
    };
    let first = CLASSES.iter().find(|(class, _)| fails(class));
    first.map_or(report.exit_status(), |(_, status)| *status)
}

#[cfg(test)]
mod tests;
