//! `integration conformance`: runs Kubernetes' own specs of networking (test/e2e) and the suites of
//! the network-policy-api project on a whole cluster, and prints what passed.
//!
//! The suites are oracles: nothing of them is changed, no spec is tried twice. What a spec needs
//! besides the network is made here: nodes in three zones, addresses for load balancers, images
//! under the suites' names.
//!
//! | file | what it is |
//! |---|---|
//! | [`selection`] | which specs run in a lane, and why others do not; pure |
//! | [`runner`] | Kubernetes' suite as a process, and its report |
//! | [`network_policy_api`] | the other project's suites as processes, and what they print |
//! | [`internet`] | names and addresses beyond the nodes, for specs that use the Internet |
//! | [`expected`] | the list of specs that have to pass |
//! | [`verdict`] | the table, and whether the run passed; pure |

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, Result};
use clap::Args;
use integration::{Cluster, cluster::GatewayMode, connections::Server, executable};
use serde_json::json;

use rustix::net::{AddressFamily, SocketType, ipproto, socket};
use selection::{Lane, Project, Sctp, Selection};

mod expected;
mod internet;
mod network_policy_api;
mod runner;
mod selection;
mod verdict;

/// Run Kubernetes' own specs of networking and the suites of the network-policy-api project on a
/// whole cluster. Exit status 1 if one fails, or if one that is expected to pass did not run.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Conformance {
    /// Only specs whose name matches this regular expression (Go's); of Kubernetes, unless
    /// `--suite-of` names another project.
    #[arg(long, value_name = "REGEXP")]
    focus: Option<String>,
    /// Only the suite of this project.
    #[arg(long, value_enum, value_name = "PROJECT")]
    suite_of: Option<Project>,
    /// Address families of the cluster.
    #[arg(long, value_enum, default_value_t = Lane::Ipv4)]
    lane: Lane,
    /// How many nodes; they are spread over three zones.
    #[arg(long, value_name = "N", default_value_t = 3)]
    nodes: u32,
    /// How many specs run at once.
    #[arg(long, value_name = "N", default_value_t = 4)]
    procs: u32,
    /// How packets leave the nodes.
    #[arg(long, value_enum, default_value_t = GatewayMode::Shared)]
    gateway_mode: GatewayMode,
    /// Only ten specs of Kubernetes, one or two of each kind.
    #[arg(long, conflicts_with_all = ["focus", "suite_of"])]
    quick: bool,
    /// Add the specs that pass to the list of those that have to.
    #[arg(long)]
    record: bool,
}

/// Zones of the nodes. Specs about topology need at least three.
const ZONES: u32 = 3;

impl Conformance {
    /// To be called in the lab's namespaces.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let began = Instant::now();
        let say = |text: &str| {
            let _ = writeln!(std::io::stderr(), "{:6.1} s  {text}", began.elapsed().as_secs_f64());
        };
        let sctp = sctp_of_kernel();
        let selection = if self.quick {
            Selection::quick(self.lane, sctp)
        } else {
            Selection::new(self.lane, sctp, self.suite_of, self.focus.as_deref())
        };
        let expected = selection.expected(expected::read(self.lane)?);
        let kubernetes =
            selection.has(Project::Kubernetes).then(runner::Suite::find).transpose()?;
        let policies = selection
            .has(Project::NetworkPolicyApi)
            .then(network_policy_api::Suites::find)
            .transpose()?;
        let mut images = kubernetes.as_ref().map_or(Ok(Vec::new()), runner::Suite::images)?;
        let mut blueprint = Cluster::of_nodes(self.nodes)
            .families(self.lane.families())
            .dns()
            .host_ports()
            .forwarding();
        if let Some(policies) = &policies {
            images.extend(policies.images()?);
            blueprint = blueprint.definitions(policies.definitions()?);
        }
        let blueprint = blueprint.gateway(self.gateway_mode).names_outside(internet::names()?);
        let cluster = blueprint.build(&say)?;
        let _internet = prepare(&cluster, &images)?;
        say(&format!(
            "{} nodes are ready, gateway mode {}; the suite begins",
            self.nodes, self.gateway_mode
        ));
        let results = executable::target_dir()?.join("conformance").join(self.lane.to_string());
        fs::create_dir_all(&results).with_context(|| format!("create {}", results.display()))?;
        let mut specs = Vec::new();
        if let Some(suite) = kubernetes {
            specs.extend(suite.run(&cluster, &selection, self.procs, &results, &say)?);
        }
        if let Some(suites) = policies {
            specs.extend(suites.run(&cluster, &selection, &results, &say)?);
        }
        let verdict = verdict::Verdict::new(specs, &selection, &expected);
        println!("{verdict}");
        println!(
            "in all {} s; the suites' own reports and output: {}",
            began.elapsed().as_secs(),
            results.display()
        );
        if self.record {
            expected::add(self.lane, &verdict.newly_passed())?;
        }
        Ok(if verdict.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Tries to open a socket, for which the kernel loads its module, if it has one.
fn sctp_of_kernel() -> Sctp {
    match socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::SCTP)) {
        Ok(_) => Sctp::Present,
        Err(_) => Sctp::Absent,
    }
}

/// What specs ask of a cluster besides its network. What answers outside does so until the value is
/// dropped.
fn prepare(cluster: &Cluster, images: &[PathBuf]) -> Result<Server> {
    for (index, (node, worker)) in (0..).zip(cluster.nodes()) {
        let zone = format!("zone-{}", index % ZONES + 1);
        let labels =
            json!({"topology.kubernetes.io/region": "lab", "topology.kubernetes.io/zone": zone});
        cluster.api.patch(
            &format!("/api/v1/nodes/{}", node.name),
            &json!({"metadata": {"labels": labels}}),
        )?;
        images.iter().try_for_each(|image| worker.import_image(node, image))?;
    }
    cluster.assign_load_balancers()?;
    cluster.route_to_pods()?;
    internet::begin(cluster)
}

/// A file of the checkout: what people read and change.
fn checked_out(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster").join(name)
}
