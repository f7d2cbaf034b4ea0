//! The control plane's roles in `ovnkube`: what they are told, and their life. What they do is the package `controller`.
//!
//! | role | connects to | elected |
//! |---|---|---|
//! | cluster manager | API server | yes |
//! | controller | API server, northbound database | yes, unless it is beside a node's server |
//! | both (`--init-master`) | both | yes, with the Leases of both roles |
//!
//! | module | what it does |
//! |---|---|
//! | `life` | the order of things in a process of its own |
//! | `beside` | the roles in one process with a node's server, which outlives them |
//! | `work` | the roles at work: which parts of `controller` there are, and how they are joined |
//! | `readiness` | what each part says of itself, as conditions |
//! | `remove_node` | one node's rows leave OVN's databases, once |
//! | `reports` | what is said of single objects, as events on them |

use std::{path::PathBuf, time::Duration};

use controller::config::ClusterConfig;
use kubeapi::{ApiServer, selector::LabelSelector};
use ovslog::background::{self, Log, LogConfig};

use crate::{chain, conditions::Part, endpoints::Endpoints, process::PidfileError};

mod beside;
mod life;
mod readiness;
mod remove_node;
mod reports;
mod work;

pub(crate) use beside::Beside;
pub use remove_node::remove_node;
pub use work::Ended;

impl ControlPlaneConfig {
    /// What has to be there for it.
    pub(crate) fn needs(&self) -> impl Iterator<Item = Part> + use<> {
        let (roles, is_elected) = (self.roles, self.election.is_some());
        let of_manager = [Part::Cluster].into_iter().filter(move |_| roles.has_cluster_manager());
        let of_controller = [Part::Cluster, Part::Northbound, Part::Rows].into_iter().filter(move |_| roles.has_controller());
        [Part::Election].into_iter().filter(move |_| is_elected).chain(of_manager).chain(of_controller)
    }
}

/// Why the control plane did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    #[error(transparent)]
    Pidfile(#[from] PidfileError),
    #[error("the runtime of this program")]
    Runtime(#[source] std::io::Error),
    #[error("what is measured")]
    Metrics(#[from] prometheus::Error),
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Does the work of these roles until the process is told to stop, or another process leads. An error is in the log, and on standard
/// error. `notes`: what is to be said of the options.
pub fn run(config: &ControlPlaneConfig, notes: &[String]) -> Result<(), ControlPlaneError> {
    let log = background::start(&config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(ControlPlaneError::Runtime);
    let outcome = runtime.and_then(|runtime| runtime.block_on(life::live(config, notes, &log)));
    if let Err(error) = &outcome {
        say(error, &log);
    }
    outcome
}

/// An error that ends the process: to whoever started it, and to the log.
fn say(error: &ControlPlaneError, log: &Log) {
    let text = chain(error);
    tracing::error!(error = text, "the control plane has ended");
    if !log.on_stderr {
        eprintln!("ovnkube: {text}");
    }
}

/// What the control plane is told.
#[derive(Debug, Clone)]
pub struct ControlPlaneConfig {
    /// Who this process is to others of the same roles: the name of its machine.
    pub identity: String,
    pub roles: Roles,
    /// None: nobody else may act at the same time, so nobody is asked.
    pub election: Option<Election>,
    pub api_server: ApiServer,
    pub cluster: ClusterConfig,
    /// Nodes that another network plugin serves.
    pub foreign_nodes: Option<LabelSelector>,
    /// The controller's database. A cluster manager connects to none.
    pub northbound: Option<Database>,
    pub log: LogConfig,
    pub pidfile: Option<PathBuf>,
    pub endpoints: Endpoints,
}

/// Which parts of the control plane a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    ClusterManager,
    Controller,
    Both,
}

/// How one of several processes is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Of the Leases.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Of another one, without which this process does not lead either.
    pub second_lease: Option<String>,
    pub duration: Duration,
    /// Less than `duration`.
    pub renew_deadline: Duration,
    /// Less than `renew_deadline`.
    pub retry_period: Duration,
    /// Where the lock is that shows whether the former process of this name has ended.
    pub lock_directory: PathBuf,
}

/// One of OVN's databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    pub endpoints: ovsdb::Endpoints,
    /// Where the endpoints are `ssl:`.
    pub ssl: Option<ovsdb::Ssl>,
    /// After this long without a word the server is probed; none: what the client does by itself.
    pub probe: Option<Probe>,
}

/// How long a database may be silent, as somebody said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    Never,
    After(Duration),
}

/// A node whose rows are to leave OVN's databases.
#[derive(Debug, Clone)]
pub struct RemoveNodeConfig {
    pub node: String,
    pub northbound: Database,
    pub southbound: Database,
    /// How long each database may take for an answer.
    pub patience: Duration,
    pub cluster: ClusterConfig,
    /// Where one is given, it is asked whether the node still exists.
    pub api_server: Option<ApiServer>,
}

impl Roles {
    pub fn has_controller(self) -> bool {
        matches!(self, Self::Controller | Self::Both)
    }

    pub fn has_cluster_manager(self) -> bool {
        matches!(self, Self::ClusterManager | Self::Both)
    }
}
