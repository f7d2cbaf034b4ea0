//! The control plane's roles in `ovnkube`: their configuration and lifecycle. Their work is in the
//! package `controller`.
//!
//! | role | connects to | elected |
//! |---|---|---|
//! | cluster manager | API server | yes |
//! | controller | API server, northbound database; southbound database for unidling | yes, unless it is beside a node's server |
//! | both (`--init-master`) | both | yes, with the Leases of both roles |
//!
//! | module | what it does |
//! |---|---|
//! | `adoption` | takes over a database of 2018: `--adopt`, and at the start of the controller |
//! | `life` | the lifecycle in a process of its own |
//! | `beside` | the roles in one process with a node's server, which outlives them |
//! | `work` | the running roles: which parts of `controller` run, and how they are connected |
//! | `listeners` | opens the databases of this host for other machines |
//! | `readiness` | the state of each part, as readiness conditions |
//! | `remove_node` | `--remove-node`: removes one node's rows from OVN's databases |
//! | `applied_reporter` | events on objects whose owners ask when they are in force |
//! | `reports` | reports about single objects, as events on them |

use std::{collections::BTreeSet, io, path::PathBuf, time::Duration};

use controller::config::ClusterConfig;
use kube::core::Selector;
use kubeapi::ApiServer;
use ovslog::background::{self, Log, LogConfig};
use server::conditions::Part;
use tokio::runtime::{Builder, Runtime};

use crate::{
    chain,
    endpoints::Endpoints,
    process::PidfileError,
    roles::{CLUSTER, ELECTION, NORTHBOUND, ROWS, Roles},
};

mod adoption;
mod applied_reporter;
mod beside;
mod life;
mod listeners;
mod readiness;
mod remove_node;
mod reports;
mod work;

pub use adoption::{AdoptConfig, adopt};
pub(crate) use beside::EmbeddedRoles;
pub(crate) use life::work;
pub use listeners::{Listener, OvnDatabase, ServerFiles};
pub use remove_node::remove_node;
pub use work::Ended;

/// The Lease of the cluster manager. Upstream has it for its cluster manager, too, and for its
/// controller of the zone `global`. With the suffix `-ZONE` it is the Lease of the controller that
/// writes a zone's database; upstream's controllers take it for every zone but `global`.
pub(crate) const LEASE: &str = "ovn-kubernetes-master";

impl ControlPlaneConfig {
    /// The readiness conditions of these roles.
    pub(crate) fn needs(&self) -> impl Iterator<Item = Part> + use<> {
        // Only what the roles can meet: a condition that no part sets would keep `/readyz` at 503.
        let (roles, is_elected) = (self.roles, self.election.is_some());
        let of_manager = [CLUSTER].into_iter().filter(move |_| roles.has_cluster_manager());
        let of_controller =
            [CLUSTER, NORTHBOUND, ROWS].into_iter().filter(move |_| roles.has_controller());
        [ELECTION].into_iter().filter(move |_| is_elected).chain(of_manager).chain(of_controller)
    }
}

/// Why the control plane did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    #[error(transparent)]
    Pidfile(#[from] PidfileError),
    #[error("the runtime of this program")]
    Runtime(#[source] io::Error),
    #[error("register the metrics")]
    Metrics(#[from] prometheus::Error),
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// How long the end waits for a thread that looks at a file.
const END: Duration = Duration::from_millis(200);

/// Runs these roles until a signal stops the process, or it loses the leadership. An error is
/// written to the log and to standard error. `notes`: remarks on the options, for the log and
/// standard error.
///
/// # Errors
///
/// If the process could not start (pidfile, runtime, metrics), or if the roles ended by themselves
/// ([`Ended`]).
pub fn run(config: &ControlPlaneConfig, notes: &[String]) -> Result<(), ControlPlaneError> {
    let log = background::start(&config.log);
    let outcome = runtimes().map_err(ControlPlaneError::Runtime).and_then(|(main, of_roles)| {
        let outcome = main.block_on(life::live(config, notes, &log, of_roles.handle()));
        // Before the last line of the log: no task says anything after it. None of them blocks for
        // long.
        of_roles.shutdown_timeout(END);
        main.shutdown_timeout(END);
        outcome
    });
    match &outcome {
        Ok(()) => tracing::info!("stopped"),
        Err(error) => say(error, &log),
    }
    outcome
}

/// The runtime of this thread, which answers probes and signals while the roles compute, and that
/// of the roles: one thread, because an event goes through four or five tasks in turn, and with two
/// threads each of them may wake the other one (docs/decisions/the-allocator-of-ovnkube.md has the
/// figures).
fn runtimes() -> io::Result<(Runtime, Runtime)> {
    let main = Builder::new_current_thread().enable_all().build()?;
    let of_roles =
        Builder::new_multi_thread().worker_threads(1).thread_name("roles").enable_all().build()?;
    Ok((main, of_roles))
}

/// Reports an error that ends the process to the log, and to standard error unless the log is
/// there.
fn say(error: &ControlPlaneError, log: &Log) {
    let text = chain(error);
    tracing::error!(error = text, "the control plane has ended");
    if !log.on_stderr {
        eprintln!("ovnkube: {text}");
    }
}

/// The configuration of the control plane.
#[derive(Debug, Clone)]
pub struct ControlPlaneConfig {
    /// The identity of this process in the election (`holderIdentity` of the Lease): the name of
    /// its machine.
    pub identity: String,
    pub roles: Roles,
    /// `None` if this process is the only one that may act: it leads without an election.
    pub election: Option<Election>,
    pub api_server: ApiServer,
    pub cluster: ClusterConfig,
    /// Nodes that another network plugin serves: they get no subnet.
    pub foreign_nodes: Option<Selector>,
    /// The controller's database. A cluster manager connects to none.
    pub northbound: Option<Database>,
    /// The database with events of idled Services, which the chassis of deleted nodes leave; none
    /// unless it is given or these events are reported. Nothing waits for it.
    pub southbound: Option<Database>,
    /// Databases of this host that the controller has listen for others.
    pub opened: Vec<Listener>,
    /// Users that may request the first certificate of any node, besides its kubelet. `None` if
    /// this process approves no certificates.
    pub bootstrap_users: Option<BTreeSet<String>>,
    pub log: LogConfig,
    pub pidfile: Option<PathBuf>,
    pub endpoints: Endpoints,
}

/// The election of the leader among several processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Namespace of the Leases.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Name of a second Lease, if this process needs both to lead.
    pub second_lease: Option<String>,
    /// A Lease that was not renewed for this long is free.
    pub duration: Duration,
    /// A leader that could not renew its Lease for this long stops leading. Less than `duration`.
    pub renew_deadline: Duration,
    /// The wait between two tries to take or renew a Lease. Less than `renew_deadline`.
    pub retry_period: Duration,
    /// Directory of the lock that shows whether the former process of this identity has ended.
    pub lock_directory: PathBuf,
}

/// One of OVN's databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    pub endpoints: ovsdb::Endpoints,
    /// If the endpoints are `ssl:`.
    pub ssl: Option<ovsdb::Ssl>,
    /// The inactivity probe; `None` for the client's default.
    pub probe: Option<Probe>,
}

/// The inactivity probe of a database, as the options give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    Never,
    /// The client probes a connection that was silent for this long.
    After(Duration),
}

/// A node whose rows are to leave OVN's databases.
#[derive(Debug, Clone)]
pub struct RemoveNodeConfig {
    /// Name of the node.
    pub node: String,
    pub northbound: Database,
    pub southbound: Database,
    /// Limit for each database, from the connection to the last answer.
    pub patience: Duration,
    pub cluster: ClusterConfig,
    /// If one is given, it is asked whether the node still exists.
    pub api_server: Option<ApiServer>,
}
