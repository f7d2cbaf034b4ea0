//! A node's NIC and the bridge in front of it. `nics-to-bridge` and `bridges-to-nic`: a NIC becomes
//! the uplink of an Open vSwitch bridge, which takes over the node's addresses and routes, and
//! back. A node must not lose its network: if a step fails, all steps before it are undone.
//!
//! | module | what it knows | reads | writes |
//! |---|---|---|---|
//! | `command` | what is moved, and where the database is | – | – |
//! | `nic` | one link of the kernel: whether it can be an uplink | links, `/sys/class/net` | – |
//! | `ip_config` | addresses and routes of a link, as they are on another | addresses, routes | – |
//! | `ovs` | the bridge and its ports | Open vSwitch's database | the same |
//! | `undo_log` | the undo log: each step, and its reverse | – | links, addresses, routes, database |
//! | `to_bridge`, `to_nic` | the two directions: their steps, in order | all of these | through `undo_log` |
//! | `hints` | other programs that configure the interface | `/run` | – |
//! | [`host_port`] | the host's own end of a link of Open vSwitch | addresses | addresses, routes |
//! | `answers` | which routers answer on a link | neighbours | – |
//! | [`flows`] | of a gateway node: which packets of the bridge go where | OpenFlow | the same |
//! | `failpoint` | for tests: failures before any step | environment | – |
//!
//! No step removes what a later step needs. Addresses are added to the new link before they are
//! removed from the old one, a route exists twice before the old one is removed, and the default
//! routes go last. If the process is killed, the node keeps its network, and the next run completes
//! the move.
//!
//! It must not know of pods, of the node-local server or of Kubernetes.

mod answers;
mod command;
mod failpoint;
pub mod flows;
mod hints;
pub mod host_port;
mod ip_config;
mod kernel_port;
mod nic;
mod ovs;
mod to_bridge;
mod to_nic;
mod undo_log;

use std::{
    io::{Write, stderr, stdout},
    path::Path,
    process::ExitCode,
    time::Duration,
};

pub use answers::answering;
pub use command::Command;
use contract::error::chain;
use netlink_packet_route::AddressFamily;
pub use ovs::uplink_of;
use ovsdb::Endpoint;
use podnet::{control_socket::ControlSocket, netns::host_netlink, nftables::ingress};
use tokio::signal::unix::{SignalKind, signal};

use self::{
    ip_config::IpConfig,
    nic::{Nic, Unfit},
    ovs::Ovs,
    undo_log::StepError,
};

/// Why an interface was not moved. All steps have been undone, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
enum BridgeError {
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error(transparent)]
    Ovs(#[from] ovs::OvsError),
    #[error("there is no bridge {0:?} in Open vSwitch")]
    NoBridge(String),
    #[error(
        "bridge {bridge:?} has no uplink to give its addresses to: no external_ids:bridge-uplink, \
         and its ports are {ports:?}"
    )]
    NoUplink { bridge: String, ports: Vec<String> },
    #[error(
        "route {0} uses a nexthop object, which cannot follow to another interface; \
         replace it by a plain route first"
    )]
    NexthopObject(String),
    #[error("{}", failed(error, undo_errors))]
    Failed {
        error: Box<StepError>,
        /// The steps that could not be undone.
        undo_errors: Vec<StepError>,
    },
    #[error("read {what}")]
    Kernel {
        what: String,
        #[source]
        error: std::io::Error,
    },
}

fn failed(error: &StepError, undo_errors: &[StepError]) -> String {
    let error = chain(error);
    if undo_errors.is_empty() {
        return format!("{error}; what had been done before was undone");
    }
    let undone: Vec<String> = undo_errors.iter().map(|error| chain(error)).collect();
    format!(
        "{error}; of what had been done before, this could not be undone: {}",
        undone.join("; ")
    )
}

/// Why a NIC was not made the uplink of a bridge. All steps have been undone, unless the error says
/// otherwise.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NotMoved(BridgeError);

/// Why a NIC's addresses would not stay on a bridge: other programs that configure it, and
/// addresses that somebody has to renew. Empty if nothing speaks against a move. Needs a tokio
/// runtime.
///
/// # Errors
/// There is no such NIC, or the kernel refuses.
pub async fn claims(nic: &str) -> Result<Vec<String>, NotMoved> {
    let claims = async {
        let nic = existing(nic).await?;
        Ok(hints::claims(Path::new("/"), &nic, &IpConfig::of(&nic)?))
    };
    claims.await.map_err(NotMoved)
}

/// How long the addresses last that a DHCP client has to renew, of each family. `None` if there is
/// none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leases {
    pub v4: Option<Duration>,
    pub v6: Option<Duration>,
}

/// What a DHCP client has to renew on this link. Needs a tokio runtime.
///
/// # Errors
/// There is no such link, or the kernel refuses.
pub async fn leases(link: &str) -> Result<Leases, NotMoved> {
    let leases = async {
        let ip_config = IpConfig::of(&existing(link).await?)?;
        let lease =
            |family| ip_config.lease(family).map(|seconds| Duration::from_secs(seconds.into()));
        Ok(Leases { v4: lease(AddressFamily::Inet), v6: lease(AddressFamily::Inet6) })
    };
    leases.await.map_err(NotMoved)
}

/// The programs whose state files show that they configure this link. Needs a tokio runtime.
///
/// # Errors
/// There is no such link, or the kernel refuses.
pub async fn owners(link: &str) -> Result<Vec<&'static str>, NotMoved> {
    Ok(hints::programs(Path::new("/"), &existing(link).await.map_err(NotMoved)?))
}

async fn existing(link: &str) -> Result<Nic, BridgeError> {
    let netlink = host_netlink()
        .map_err(|error| BridgeError::Kernel { what: "the kernel's links".to_owned(), error })?;
    Nic::existing(&netlink, link).await
}

/// Moves a bridge's addresses and routes back to its uplink, and removes the bridge, as
/// `bridges-to-nic` does. Returns a report, line by line. Needs a tokio runtime.
///
/// # Errors
/// There is no such bridge, or a step failed.
pub async fn bridge_to_nic(database: &Endpoint, bridge: &str) -> Result<Vec<String>, NotMoved> {
    run_one(&Command::BridgesToNic { database: database.clone(), bridges: Vec::new() }, bridge)
        .await
        .map_err(NotMoved)
}

/// The bridges that `nics-to-bridge` has made, by name: those that record the uplink after which
/// they are named. Needs a tokio runtime.
///
/// # Errors
/// Open vSwitch's database cannot be reached or refuses.
pub async fn made_bridges(database: &Endpoint) -> Result<Vec<String>, NotMoved> {
    let made = async {
        let all = Ovs::connect(database).await?.bridges().await?;
        Ok(all.into_iter().filter(ovs::Bridge::is_made_here).map(|bridge| bridge.name).collect())
    };
    made.await.map_err(NotMoved)
}

/// Makes a NIC the uplink of a bridge that takes over its addresses and routes, as `nics-to-bridge`
/// does. Returns a report, line by line. Dropped half-way, the node keeps its network, and the next
/// call completes the move. Needs a tokio runtime.
///
/// # Errors
/// The NIC is not fit, or a step failed.
pub async fn nic_to_bridge(database: &Endpoint, nic: &str) -> Result<Vec<String>, NotMoved> {
    run_one(&Command::NicsToBridge { database: database.clone(), interfaces: Vec::new() }, nic)
        .await
        .map_err(NotMoved)
}

/// Puts a bridge's uplink into the bridge once more, with all settings: under another name, or
/// because it is another device of the same name, which the userspace datapath does not notice.
/// `switch` is ovs-vswitchd's control socket. Needs a tokio runtime.
///
/// # Errors
/// Open vSwitch's database or ovs-vswitchd cannot be reached or refuses, or there is no such port.
pub async fn replace(
    database: &Endpoint,
    switch: &ControlSocket,
    bridge: &str,
    before: &str,
    now: &str,
) -> Result<(), NotMoved> {
    let replaced = async {
        let ovs = Ovs::connect(database).await?;
        let refused =
            |error| BridgeError::Kernel { what: "the ingress of the NIC".to_owned(), error };
        let row = ovs.bridges().await?.into_iter().find(|row| row.name == bridge);
        if row.is_some_and(|row| row.is_userspace()) {
            // Before the port: the host would refuse the connections of pods.
            if let Ok(name) = now.parse() {
                ingress::ignore(&name).await.map_err(refused)?;
            }
        } else if before != now {
            kernel_port::release(switch, now).await.map_err(|error| BridgeError::Kernel {
                what: format!("the ports of the kernel's datapath, for that of {now}"),
                error,
            })?;
        }
        ovs.replace_uplink(bridge, before, now).await?;
        // Under the old name, nothing would find it once the NIC leaves the bridge.
        if before != now
            && let Ok(name) = before.parse()
        {
            ingress::heed(&name).await.map_err(refused)?;
        }
        Ok(())
    };
    replaced.await.map_err(NotMoved)
}

/// Adds the NIC that the bridge names as its uplink, and lacks: [`replace`] was interrupted. Needs
/// a tokio runtime.
///
/// # Errors
/// Open vSwitch's database cannot be reached or refuses, or there is no such NIC.
pub async fn restore(database: &Endpoint, bridge: &str, nic: &str) -> Result<(), NotMoved> {
    let restored = async {
        let nic = existing(nic).await?;
        Ok(Ovs::connect(database).await?.restore_uplink(bridge, &nic).await?)
    };
    restored.await.map_err(NotMoved)
}

/// Runs a command and prints what it did. Returns the exit status: success if all interfaces are as
/// requested, else failure.
pub fn run(command: &Command) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("the runtime of this program: {error}"));
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(run_all(command))
}

/// Runs the command for each interface. A failure does not stop it: the next interface has its
/// turn.
async fn run_all(command: &Command) -> ExitCode {
    // Handle (and ignore) SIGINT, SIGTERM and SIGHUP. A move takes seconds; half of it is worse
    // than none. The terminal may hang up because its own connection runs over this NIC.
    let ignored: Vec<_> = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .into_iter()
        .filter_map(|kind| signal(kind).ok())
        .collect();
    let mut status = ExitCode::SUCCESS;
    for name in command.names() {
        match run_one(command, name).await {
            Ok(report) => report.iter().for_each(|line| say(&format!("{name}: {line}"))),
            Err(error) => {
                complain(&format!("{name}: {}", chain(&error)));
                status = ExitCode::FAILURE;
            }
        }
    }
    drop(ignored);
    status
}

async fn run_one(command: &Command, name: &str) -> Result<Vec<String>, BridgeError> {
    let netlink = host_netlink()
        .map_err(|error| BridgeError::Kernel { what: "the kernel's links".to_owned(), error })?;
    let ovs = Ovs::connect(command.database()).await?;
    match command {
        Command::NicsToBridge { .. } => to_bridge::run(&netlink, &ovs, name).await,
        Command::BridgesToNic { .. } => to_nic::run(&netlink, &ovs, name).await,
    }
}

/// Prints a line. Errors are ignored: the terminal may be gone with the network.
fn say(line: &str) {
    drop(writeln!(stdout(), "{line}"));
}

fn complain(line: &str) {
    drop(writeln!(stderr(), "{line}"));
}
