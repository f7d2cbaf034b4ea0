//! A node's server: what it is told, and its life.
//!
//! | module | what it does |
//! |---|---|
//! | `life` | the order of things, from the options to the last answer |
//! | `cleanup`(mod@cleanup) | `--cleanup-node`: takes away what the server made |
//! | `object` | the node's own object in the API server: its subnets |
//! | `own_node` | whether that object is this host's |
//! | `annotations` | what the node says about itself there |
//! | `host_addresses` | the addresses at which others reach this host |
//! | `open_vswitch` | what ovn-controller needs to find in Open vSwitch's database |
//! | `management_port` | the interface over which the node and its pods reach each other |
//! | `plugin` | the plugin's way into the directory where runtimes look for it |

use std::{io, path::PathBuf, time::Duration};

use kubeapi::ApiServer;
use ovslog::background::{self, Log, LogConfig};

use crate::{
    chain,
    cni_conf::{CniConf, CniConfError},
    control_plane::ControlPlaneConfig,
    endpoints::Endpoints,
    kernel_thread,
    options::{NodeOptions, Problems},
    pods::ManifestsError,
    process::PidfileError,
    requests::AddDefaults,
    socket::SocketError,
};

mod annotations;
mod cleanup;
mod host_addresses;
mod life;
mod management_port;
mod object;
mod open_vswitch;
mod own_node;
mod plugin;

pub use cleanup::{Cleaned, CleanupError, cleanup};
pub use management_port::ManagementPort;
pub(crate) use open_vswitch::settings::of_administrator;
pub use open_vswitch::{Chassis, OpenVSwitch, SouthboundTls};
pub use plugin::{PluginError, PluginInstall};

/// Threads that read files and names of hosts.
const MOST_BLOCKING: usize = 8;
/// They stay once they are there: where no thread can be started any more, what is to be read would wait for one that never comes.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// What a node's server is told.
#[derive(Debug)]
pub struct NodeConfig {
    /// Name of the node.
    pub name: String,
    pub pods: PodsFrom,
    pub add: AddDefaults,
    pub cni_conf: CniConf,
    pub plugin: PluginInstall,
    pub socket: PathBuf,
    pub log: LogConfig,
    pub pidfile: Option<PathBuf>,
    pub open_vswitch: OpenVSwitch,
    pub management_port: ManagementPort,
    /// Whose database has the rows of this node.
    pub zone: String,
    pub endpoints: Endpoints,
    /// What is left of pods that are gone is removed after this long; none: never.
    pub stale_after: Option<Duration>,
}

/// Where pods are known from.
#[derive(Debug, Clone)]
pub enum PodsFrom {
    /// A directory of Pod manifests.
    Manifests(PathBuf),
    ApiServer(ApiServer),
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Options(#[from] Problems),
    #[error(transparent)]
    Manifests(#[from] ManifestsError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    CniConf(#[from] CniConfError),
    #[error(transparent)]
    Pidfile(#[from] PidfileError),
    #[error("which interface has the default route, for tunnels' address (--encap-ip says it, too)")]
    DefaultRoute(#[source] io::Error),
    #[error("Open vSwitch's database refused the settings for ovn-controller")]
    Settings(#[from] ovsdb::TransactError),
    #[error("netlink, for the management port and the links of pods")]
    Netlink(#[source] io::Error),
    #[error("what is measured")]
    Metrics(#[from] prometheus::Error),
    #[error("the runtime of this program")]
    Runtime(#[source] io::Error),
}

/// The next change; never, once nobody is left to make one.
async fn changed<T>(receiver: &mut tokio::sync::watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Serves until the process is told to stop. An error is in the log, and on standard error.
///
/// With `control_plane`, its roles are in the same process; whatever becomes of them, the node's server goes on.
pub fn run(options: &NodeOptions, control_plane: Option<ControlPlaneConfig>) -> Result<(), StartError> {
    let early = options.early().inspect_err(|problems| eprintln!("ovnkube: {problems}"))?;
    let log = background::start(&early.log);
    kernel_thread::handle().map_err(StartError::Runtime)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(MOST_BLOCKING)
        .thread_keep_alive(FOREVER)
        .enable_all()
        .build()
        .map_err(StartError::Runtime);
    let outcome = runtime.and_then(|runtime| runtime.block_on(life::live(options, early, control_plane, &log)));
    if let Err(error) = &outcome {
        say(error, &log);
    }
    outcome
}

/// An error that ends the process: to whoever started it, and to the log.
fn say(error: &StartError, log: &Log) {
    let text = chain(error);
    tracing::error!(error = text, "not started");
    if !log.on_stderr {
        eprintln!("ovnkube: {text}");
    }
}
