//! `ovnkube connectivity test`: pods on nodes, Services and policies of its own, and tests between
//! them. It uses nothing but the API server, so that it tests any cluster's network.
//!
//! ```text
//! nodes ─▶ Site ─▶ manifests ─▶ API server ─▶ servers with addresses
//!                                               │
//!                   plan: tests of each client ◀┘
//!                     └─▶ pods with `ovnkube probe` ─▶ their logs ─▶ Report
//! ```
//!
//! All is in two namespaces with a random name, which are deleted whatever happens: also at a
//! failure, and at Ctrl-C. Policies of the whole cluster, which select this run's pods alone, have
//! the first one's name and go with it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use kubeapi::{ApiServer, Connection};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    chain,
    findings::{Finding, Format, INTERRUPTED, Report, State},
};

mod cluster;
mod disruption;
mod enforcement;
mod junit;
mod manifests;
mod offered;
mod plan;
mod results;
mod site;

use self::{cluster::Cluster, offered::ClusterPolicy, site::Site};

const KIND: &str = "ConnectivityTest";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Question {
    /// The nodes with pods; the first two that are ready if none are given.
    pub nodes: Nodes,
    pub image: String,
    /// A place outside of the cluster that takes connections.
    pub world: Option<(String, u16)>,
    /// Hold flows in place of the tests.
    pub disruption: Option<Disruption>,
    pub junit: Option<PathBuf>,
    /// Leave the namespaces, to look at what failed.
    pub leftovers: Leftovers,
    pub format: Format,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    Pair,
    All,
    Named(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftovers {
    Deleted,
    Kept,
}

/// Flows that are held while something is done to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disruption {
    /// Until Ctrl-C if it is not given.
    pub duration: Option<Duration>,
    /// Packets that each flow may lose.
    pub allowed: u64,
}

/// The names of one run.
#[derive(Debug, Clone)]
struct Names {
    namespace: String,
    /// A second namespace, for policies that select by namespace.
    other: String,
}

impl Names {
    fn random() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let suffix = (now.subsec_nanos() ^ std::process::id().rotate_left(16)) & 0xff_ffff;
        let namespace = format!("ovnkube-test-{suffix:06x}");
        Self { other: format!("{namespace}-other"), namespace }
    }

    /// An address that no machine has, of the ranges for documentation (RFC 5737, RFC 3849): its
    /// last part is this run's.
    fn outer_address(&self, is_ipv6: bool) -> IpAddr {
        let run = self
            .namespace
            .bytes()
            .fold(0_u16, |run, byte| run.wrapping_mul(31).wrapping_add(u16::from(byte)));
        match is_ipv6 {
            true => Ipv6Addr::new(0x2001, 0xdb8, 0x192, 0, 0, 0, 0, run.max(1)).into(),
            false => {
                let [_, last] = run.to_be_bytes();
                Ipv4Addr::new(192, 0, 2, last.clamp(1, 254)).into()
            }
        }
    }
}

/// Runs the tests and prints the report.
pub fn run(api_server: &ApiServer, question: &Question) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ovnkube: the runtime of this program: {}", chain(&error));
            return ExitCode::FAILURE;
        }
    };
    let Some(report) = runtime.block_on(tested(api_server, question)) else {
        return INTERRUPTED.into();
    };
    if let Some(path) = &question.junit
        && let Err(error) = std::fs::write(path, junit::document(&report))
    {
        eprintln!("ovnkube: {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    report.print(question.format)
}

/// The report; `None` if a signal ended the run.
async fn tested(api_server: &ApiServer, question: &Question) -> Option<Report> {
    let cluster = Cluster::new(Connection::open(api_server.clone()));
    let names = Names::random();
    let (mut interrupt, mut terminate) =
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
            (Err(error), _) | (_, Err(error)) => {
                let finding = Finding::new("test", "signals", State::Unknown, &chain(&error));
                return Some(Report::new(KIND, vec![finding]));
            }
        };
    let tests = async {
        match question.disruption {
            // Its own Ctrl-C ends the measurement, and not the run.
            Some(disruption) => disruption::findings(&cluster, &names, question, disruption).await,
            None => findings(&cluster, &names, question).await,
        }
    };
    let ends_itself = question.disruption.is_some_and(|disruption| disruption.duration.is_none());
    let outcome = tokio::select! {
        outcome = tests => Some(outcome),
        _ = interrupt.recv(), if !ends_itself => None,
        _ = terminate.recv() => None,
    };
    let mut findings = match outcome {
        Some(Ok(findings)) => findings,
        Some(Err(why)) => {
            let next = match why.contains("Image") {
                true => "--image IMAGE, one that the nodes can pull or have",
                false => "ovnkube status",
            };
            // Where nothing could be made, nothing is known.
            let state = if cluster.has_made() { State::Failed } else { State::Unknown };
            vec![Finding::new("test", "preparation", state, &why).next(next)]
        }
        None => Vec::new(),
    };
    match question.leftovers {
        Leftovers::Kept if outcome_is_there(&findings) => {
            eprintln!(
                "ovnkube: kept: kubectl delete namespace {} {}",
                names.namespace, names.other
            );
            for kind in ClusterPolicy::ALL {
                eprintln!(
                    "ovnkube: kept, if there is one: kubectl delete --ignore-not-found {} {}",
                    kind.definition().plural,
                    names.namespace
                );
            }
        }
        _ if cluster.has_made() => findings.extend(clean(&cluster, &names).await),
        _ => {}
    }
    (!findings.is_empty()).then(|| Report::new(KIND, findings))
}

/// Without findings a signal ended the run, and nothing is kept.
fn outcome_is_there(findings: &[Finding]) -> bool {
    !findings.is_empty()
}

/// Deletes the namespaces, and the policies of the whole cluster. A finding for each that is left.
async fn clean(cluster: &Cluster, names: &Names) -> Vec<Finding> {
    progress("deleting the namespaces");
    let left =
        |why: &str, next: &str| Finding::new("test", "cleaning up", State::Failed, why).next(next);
    let mut findings = Vec::new();
    for kind in ClusterPolicy::ALL {
        let definition = kind.definition();
        if let Err(why) = cluster.delete_cluster_object(definition, &names.namespace).await {
            let next = format!("kubectl delete {} {}", definition.plural, names.namespace);
            findings.push(left(&why, &next));
        }
    }
    let namespaces = [names.namespace.as_str(), &names.other];
    if let Err(why) = cluster.delete_namespaces(&namespaces).await {
        findings.push(left(&why, &format!("kubectl delete namespace {}", namespaces.join(" "))));
    }
    findings
}

async fn findings(
    cluster: &Cluster,
    names: &Names,
    question: &Question,
) -> Result<Vec<Finding>, String> {
    let site = Site::prepare(cluster, names, question).await?;
    let clients = plan::clients(&site, question.world.as_ref());
    let count: usize = clients.iter().map(|client| client.tests.len()).sum();
    progress(&format!("{count} tests by {} pods on {} nodes", clients.len(), site.nodes.len()));
    for client in &clients {
        cluster
            .create(
                &manifests::pods_of(&client.namespace),
                &manifests::client(client, &question.image),
            )
            .await?;
    }
    let results = results::of(cluster, &clients).await;
    let mut findings = enforcement::findings(cluster, &site, results).await;
    findings.extend(site.skipped());
    findings.sort_by_key(|finding| {
        plan::SUBJECTS.iter().position(|subject| *subject == finding.subject)
    });
    Ok(findings)
}

/// A line for a person who waits.
fn progress(line: &str) {
    use std::io::IsTerminal as _;
    if std::io::stderr().is_terminal() {
        eprintln!("ovnkube: {line} …");
    }
}
