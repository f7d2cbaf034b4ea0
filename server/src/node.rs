//! A node's server: its configuration, and how it starts, serves and stops. Knows nothing of the
//! process around it: neither its options nor its signals.
//!
//! | module | what it does |
//! |---|---|
//! | `life` | the order of start and stop, from Open vSwitch's database to the last answer |
//! | `cleanup` | removes what the server made, or what upstream's does not have |
//! | `object` | follows the node's own object in the API server; its subnets |
//! | `own_node` | whether that object is this host's |
//! | `certificate` | the client certificate with which the server authenticates |
//! | `annotations` | the annotations that the node writes on that object |
//! | `host_addresses` | the addresses at which other machines reach this host |
//! | `open_vswitch` | the settings in Open vSwitch's database that ovn-controller needs |
//! | `gateway` | the bridge between the physical network, the host and OVN |
//! | `management_port` | the interface over which the node and its pods reach each other |
//! | `pace` | how soon gateway and management port are compared again |
//! | `zone_move` | the node's way from one zone's databases to another's |
//! | `plugin` | installs the plugin in the directory where runtimes look for it |

use std::{io, path::PathBuf, time::Duration};

use kubeapi::ApiServer;
use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, sleep_until},
};

use crate::{
    cni_conf::{CniConf, CniConfError},
    kernel_thread,
    pods::ManifestsError,
    requests::AddDefaults,
    runtime::with_blocking_threads,
    socket::SocketError,
};

mod annotations;
mod certificate;
mod cleanup;
mod cluster_subnets;
mod gateway;
mod host_addresses;
mod life;
mod management_port;
mod object;
mod open_vswitch;
mod own_node;
mod pace;
mod plugin;
mod zone_move;

pub use certificate::CertificateConfig;
pub use cleanup::{Cleaned, CleanupConfig, Extent, cleanup, hand_back};
pub use gateway::{GatewayConfig, GatewayMode, ManagedNic};
pub use life::{Running, start};
pub(crate) use management_port::translation;
pub use management_port::{Forwarding, ManagementPort};
pub use open_vswitch::{Chassis, OpenVSwitch, SouthboundTls, settings::of_administrator};
pub use plugin::{PluginError, PluginInstall};

/// Threads for blocking work: files, and names of hosts. With a single one, a disk or name server
/// that hangs would hold up all other work.
const BLOCKING: usize = 8;

/// The configuration of a node's server.
#[derive(Debug)]
pub struct NodeConfig {
    /// Name of the node.
    pub name: String,
    pub pods: PodsFrom,
    /// The certificate with which the API server is reached, if this program keeps it.
    pub certificate: Option<CertificateConfig>,
    /// MTUs of pods whose annotation names none.
    pub add: AddDefaults,
    pub cni_conf: CniConf,
    pub plugin: PluginInstall,
    /// The socket that the plugin connects to.
    pub socket: PathBuf,
    pub open_vswitch: OpenVSwitch,
    pub management_port: ManagementPort,
    /// `None`: without a gateway.
    pub gateway: Option<GatewayConfig>,
    /// The zone whose northbound database has this node's rows.
    pub zone: String,
    /// Another one that it may move to.
    pub other_zone: Option<OtherZone>,
    /// Ports and links of pods that are gone are removed after this long. `None`: never.
    pub stale_after: Option<Duration>,
}

/// A zone that a node may move to while its server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherZone {
    pub name: String,
    /// As [`Chassis::southbound`].
    pub southbound: String,
    pub tls: Option<SouthboundTls>,
}

/// The source of pods.
#[derive(Debug, Clone)]
pub enum PodsFrom {
    /// A directory of Pod manifests.
    Manifests(PathBuf),
    ApiServer(ApiServer),
}

impl PodsFrom {
    /// The API server, if pods come from there.
    pub fn api_server(self) -> Option<ApiServer> {
        match self {
            Self::ApiServer(api_server) => Some(api_server),
            Self::Manifests(_) => None,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Manifests(#[from] ManifestsError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    CniConf(#[from] CniConfError),
    #[error("reading the default route, to choose the tunnel address (--encap-ip sets one)")]
    DefaultRoute(#[source] io::Error),
    #[error("Open vSwitch's database refused the settings for ovn-controller")]
    Settings(#[from] ovsdb::TransactError),
    #[error("a netlink socket for the management port or the links of pods")]
    Netlink(#[source] io::Error),
    #[error("the runtime of this program")]
    Runtime(#[source] io::Error),
}

/// Waits for the next change. Never returns once the sender is gone, so that a `select!` goes on
/// with its other branches instead of spinning.
async fn changed<T>(receiver: &mut tokio::sync::watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Waits until `time`; for ever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// How long [`end`] waits for a thread that is inside a system call. Most requests to the kernel
/// take less than a millisecond; one that waits for another process, minutes perhaps, must not
/// delay the end of this one.
const END: Duration = Duration::from_millis(200);

/// Ends all tasks of `runtime`, and the thread for rtnetlink requests: nothing is done or logged
/// afterwards. Not for async code.
pub fn end(runtime: Runtime) {
    runtime.shutdown_timeout(END);
    kernel_thread::end(END);
}

/// The runtime for [`start`]. Starts the thread for rtnetlink requests, too.
///
/// # Errors
///
/// A thread cannot be started, or the event loop cannot be created.
pub fn runtime() -> io::Result<Runtime> {
    // First, so that a process without a free thread ends here and not at its first netlink
    // request.
    kernel_thread::handle()?;
    // The workers only wait for I/O: whatever blocks has the kernel thread or a thread for blocking
    // work.
    with_blocking_threads(Builder::new_multi_thread().worker_threads(2), BLOCKING)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::{Arc, Barrier},
    };

    use super::*;

    /// Of this process, which runs this test alone.
    fn threads() -> usize {
        fs::read_dir("/proc/self/task").unwrap().count()
    }

    #[test]
    fn both_runtimes_have_all_their_threads_from_the_start() {
        let runtime = runtime().unwrap();
        let from_the_start = threads();
        for runtime in [runtime.handle().clone(), kernel_thread::handle().unwrap()] {
            let together = Arc::new(Barrier::new(BLOCKING));
            let jobs: Vec<_> = (0..BLOCKING)
                .map(|_| {
                    let together = Arc::clone(&together);
                    runtime.spawn_blocking(move || {
                        together.wait();
                    })
                })
                .collect();
            for job in jobs {
                runtime.block_on(job).unwrap();
            }
        }
        assert_eq!(threads(), from_the_start);
    }
}
