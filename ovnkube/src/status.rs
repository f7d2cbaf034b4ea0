//! `ovnkube status`: whether the network works, from what the API server, OVN's databases and this
//! machine say. Nothing is written.
//!
//! ```text
//! API server ─▶ cluster ──────────────┐
//! databases ──▶ databases, chassis ───┼─▶ Report
//! this node: its server's socket,     │
//! Open vSwitch, ovn-controller ─▶ node┤
//! another node, in its pod ───────────┘
//! ```
//!
//! Each part is asked at the same time as the others, and each question has a deadline: a partner
//! that is away is one finding, and the rest is shown all the same.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use kubeapi::{ApiServer, Connection};
use ovsdb::Endpoint;
use podnet::pod_look::wire::InsideAnswer;
use tokio::time::sleep;

use crate::{
    control_plane,
    findings::{self, Finding, Format, Report, State},
    node_pods::NodeServers,
};

pub(crate) use crate::ovn_query::{PATIENCE, answer};

mod chassis;
pub(crate) mod cluster;
pub(crate) mod databases;
mod host;
pub(crate) mod node;
mod objects;
mod reach;
mod switch;

const KIND: &str = "Status";
/// The detail with the id of a chassis, of nodes and of chassis.
const CHASSIS: &str = "chassis";
/// The heading of what another node says of itself.
pub(crate) const THAT_MACHINE: &str = "the node itself";
/// The pause between two looks of `--wait`. No event tells of all that is looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// Where a part of the report comes from.
#[derive(Debug, Clone)]
pub enum Reach<T> {
    Known(T),
    /// Nothing says where it is.
    NotGiven,
    /// The options that say it cannot be used, for this reason.
    Unusable(String),
}

/// Where the command looks.
#[derive(Debug, Clone)]
pub struct StatusConfig {
    pub api_server: Reach<ApiServer>,
    /// The namespace of the control plane's Lease and pods.
    pub namespace: String,
    pub northbound: Reach<control_plane::Database>,
    pub southbound: Reach<control_plane::Database>,
    pub machine: Machine,
}

/// The places on this machine.
#[derive(Debug, Clone)]
pub struct Machine {
    pub ovsdb: Endpoint,
    pub ovs_run_dir: PathBuf,
    pub ovn_run_dir: PathBuf,
    /// The socket of the node's server.
    pub socket: PathBuf,
    /// In place of what can be asked of a machine only: what an archive has of one.
    pub recorded: Option<Arc<Recorded>>,
}

/// What was found out about a machine when an archive was made on it.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// When that was.
    pub now: Timestamp,
    /// The node, if it was one.
    pub node: Option<String>,
    pub findings: Vec<Finding>,
    /// The network namespaces of its pods, by logical port.
    pub inside: BTreeMap<String, InsideAnswer>,
}

impl StatusConfig {
    /// Only this machine: neither API server nor databases.
    pub(crate) fn here(&self) -> Self {
        let (northbound, southbound) = (Reach::NotGiven, Reach::NotGiven);
        Self { api_server: Reach::NotGiven, northbound, southbound, ..self.clone() }
    }
}

impl Machine {
    /// The time that leases and clocks are compared with.
    pub(crate) fn now(&self) -> Timestamp {
        self.recorded.as_ref().map_or_else(Timestamp::now, |recorded| recorded.now)
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Question {
    /// Only this node.
    pub node: Option<String>,
    /// Only this machine.
    pub here: bool,
    /// How long to wait until all is well.
    pub wait: Option<Duration>,
    pub format: Format,
}

/// Prints the status. The exit status is the report's.
pub fn run(config: &StatusConfig, question: &Question) -> ExitCode {
    findings::run(until_well(config, question), question.format)
}

/// The last report: the first one without a fault, or the one at the end of the time to wait.
async fn until_well(config: &StatusConfig, question: &Question) -> Report {
    let start = Instant::now();
    loop {
        let report = match question.here {
            true => Report::new(KIND, machine(&config.here(), None).await),
            false => report(config, question.node.as_deref()).await,
        };
        let is_well = matches!(report.state, State::Ok | State::Warning);
        let is_over = question.wait.is_none_or(|wait| start.elapsed() + PAUSE > wait);
        if is_well || is_over {
            return report;
        }
        sleep(PAUSE).await;
    }
}

async fn report(config: &StatusConfig, node: Option<&str>) -> Report {
    let (cluster, databases, machine) = tokio::join!(
        cluster::findings(config, node),
        databases::findings(&config.northbound, &config.southbound, node),
        machine(config, node),
    );
    let mut findings = cluster;
    if findings.iter().any(cluster::is_absent_node) {
        return Report::new(KIND, findings);
    }
    findings.extend(databases);
    findings.extend(of_two_clusters(&findings));
    match node.filter(|_| machine.is_empty()) {
        Some(node) => findings.extend(elsewhere(config, node).await),
        None => findings.extend(machine),
    }
    findings.extend(reach::findings(&config.machine, &findings).await);
    Report::new(KIND, findings)
}

/// This machine's part. It may be no machine of a network, and nothing else may be known of one.
async fn machine(config: &StatusConfig, node: Option<&str>) -> Vec<Finding> {
    let mut findings = node::findings(&config.machine, node).await;
    let is_known = !matches!(
        (&config.api_server, &config.northbound, &config.southbound),
        (Reach::NotGiven, Reach::NotGiven, Reach::NotGiven)
    );
    if !is_known && node.is_none() && !findings.iter().any(node::is_of_node) {
        let nothing = "no API server and no database is known here, and this machine is no node";
        findings.push(
            Finding::new(node::THIS_MACHINE, "ovnkube status", State::Unknown, nothing)
                .next("ovnkube status --k8s-kubeconfig FILE, or run it on a node"),
        );
    }
    findings
}

/// What another node says of itself, in its pod.
async fn elsewhere(config: &StatusConfig, node: &str) -> Vec<Finding> {
    let Reach::Known(api_server) = &config.api_server else { return Vec::new() };
    let api = Connection::open(api_server.clone());
    let servers = NodeServers::new(&config.machine.socket, &config.namespace, Some(api));
    match servers.found(node, &["status", "--here"]).await {
        Ok(found) => found.into_iter().map(|found| found.under(THAT_MACHINE)).collect(),
        Err(why) => {
            let why = format!("not asked: {why}");
            let finding = Finding::new(THAT_MACHINE, node::SERVER, State::Skipped, &why);
            vec![finding.next(&format!("ovnkube status on node {node}, as root"))]
        }
    }
}

/// Whether API server and databases are of different clusters: no node has a chassis that is there,
/// by its id or by its name.
fn of_two_clusters(findings: &[Finding]) -> Option<Finding> {
    let of = |subject: &str, detail: &str| -> Vec<&Finding> {
        let all = findings.iter().filter(|finding| finding.subject == subject);
        all.filter(|finding| finding.details.contains_key(detail)).collect()
    };
    // Findings about other things than a node or a chassis have no such detail.
    let (nodes, chassis) = (of(cluster::NODES, cluster::MANAGEMENT), of(CHASSIS, CHASSIS));
    let (of_node, of_chassis) = (nodes.first()?, chassis.first()?);
    let is_one = |node: &Finding, found: &Finding| {
        let id = node.details.get(CHASSIS);
        chassis::is_host(&found.name, &node.name)
            || id.is_some_and(|id| found.details.get(CHASSIS) == Some(id))
    };
    if nodes.iter().any(|node| chassis.iter().any(|found| is_one(node, found))) {
        return None;
    }
    let why = format!(
        "none of {} nodes, such as {}, has one of the {} chassis of the southbound database, such \
         as that of {}: the kubeconfig or the database is another cluster's",
        nodes.len(),
        of_node.name,
        chassis.len(),
        of_chassis.name
    );
    let finding = Finding::new(cluster::NODES, "cluster", State::Failed, &why);
    Some(finding.next("kubectl config view --minify; kubectl get nodes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_where_nothing_can_be_asked_is_not_well() {
        let nowhere = PathBuf::from("/nonexistent");
        let machine = Machine {
            ovsdb: "unix:/nonexistent/db.sock".parse().unwrap(),
            ovs_run_dir: nowhere.clone(),
            ovn_run_dir: nowhere.clone(),
            socket: nowhere.join("s"),
            recorded: None,
        };
        let config = StatusConfig {
            api_server: Reach::NotGiven,
            namespace: "ovn-kubernetes".to_owned(),
            northbound: Reach::NotGiven,
            southbound: Reach::Unusable("--sb-address is no address".to_owned()),
            machine,
        };
        let unusable = report(&config, None).await;
        assert_eq!(unusable.exit_status(), 3);
        let config = StatusConfig { southbound: Reach::NotGiven, ..config };
        let nothing = report(&config, None).await;
        assert_eq!(nothing.exit_status(), 3, "{nothing:?}");
        assert!(nothing.findings.iter().any(|finding| finding.next.is_some()), "{nothing:?}");
    }
}
