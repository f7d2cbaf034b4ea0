//! `nics-to-bridge` and `bridges-to-nic`: a NIC becomes the uplink of an Open vSwitch bridge that carries the node's addresses and routes,
//! and back. A node must not lose its network over it: whatever fails, what was done is undone.
//!
//! | module | what it knows | reads | writes |
//! |---|---|---|---|
//! | `arguments` | the command line, under this program's name and the old ones | arguments | – |
//! | `nic` | one link of the kernel: whether it can be an uplink | links, `/sys/class/net` | – |
//! | `belongings` | a link's addresses and routes, and how they read on another link | addresses, routes | – |
//! | `ovs` | the bridge and its ports | Open vSwitch's database | the same |
//! | `journal` | each step that is taken, and how to take it back | – | links, addresses, routes, the database |
//! | `to_bridge`, `to_nic` | the two directions: which steps, in which order | all of these | through `journal` |
//! | `hints` | which other programs look after the interface | `/run` | – |
//! | `failpoint` | for tests: failures before any step | environment | – |
//!
//! A step is never followed by one that needs what it removed: addresses appear on the new link before they leave the old one, a route
//! is there twice before it is there once, and the default routes go last. So a process that is killed leaves a node that works, and
//! the next run finds what is left to do.
//!
//! Must not know of pods, of the node-local server and of Kubernetes.

mod arguments;
mod belongings;
mod failpoint;
mod hints;
mod journal;
mod nic;
mod ovs;
mod to_bridge;
mod to_nic;

use std::{
    io::{Write, stderr, stdout},
    process::ExitCode,
};

pub use arguments::{Arguments, Command};
use contract::error::chain;
use podnet::netns::host_netlink;
use tokio::signal::unix::{SignalKind, signal};

use self::{journal::StepError, nic::Unfit, ovs::Ovs};

/// Why an interface was not moved. What was done has been undone, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
enum BridgeError {
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error(transparent)]
    Ovs(#[from] ovs::OvsError),
    #[error("there is no bridge {0:?} in Open vSwitch")]
    NoBridge(String),
    #[error("bridge {bridge:?} has no uplink to give its addresses to: no external_ids:bridge-uplink, and its ports are {ports:?}")]
    NoUplink { bridge: String, ports: Vec<String> },
    #[error("route {0} uses a nexthop object, which cannot follow to another interface; replace it by a plain route first")]
    NexthopObject(String),
    #[error("{}", failed(error, undo_errors))]
    Failed {
        error: Box<StepError>,
        /// What could not be undone.
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
    format!("{error}; of what had been done before, this could not be undone: {}", undone.join("; "))
}

/// Carries a command out, prints what it did, and returns the status to end with: 0 if all interfaces are as they should be, else 1.
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

/// A failure does not keep the next interface from its turn.
async fn run_all(command: &Command) -> ExitCode {
    // Half of a move is worse than all or nothing of it, and takes seconds at most: a terminal that goes away must not end it.
    let ignored: Vec<_> =
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].into_iter().filter_map(|kind| signal(kind).ok()).collect();
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
    let netlink = host_netlink().map_err(|error| BridgeError::Kernel { what: "the kernel's links".to_owned(), error })?;
    let ovs = Ovs::connect(command.database()).await?;
    match command {
        Command::NicsToBridge { .. } => to_bridge::run(&netlink, &ovs, name).await,
        Command::BridgesToNic { .. } => to_nic::run(&netlink, &ovs, name).await,
    }
}

/// The terminal may have gone with the network.
fn say(line: &str) {
    drop(writeln!(stdout(), "{line}"));
}

fn complain(line: &str) {
    drop(writeln!(stderr(), "{line}"));
}
