//! The daemons of this node that an ADD needs besides the server: Open vSwitch's database,
//! ovs-vswitchd, ovn-controller. Asks each whether it can serve an ADD.
//!
//! Must not know what a missing daemon means for a node, nor how often it is asked.

use std::{io, time::Duration};

use contract::paths::INTEGRATION_BRIDGE;
use tokio::time::timeout;

use crate::{
    bridge::{Bridge, BridgeError},
    control_socket::{ControlSocket, VSWITCHD, pid_file},
    settings::Settings,
};

/// How long a daemon may take. A slower one cannot serve an ADD either. Much shorter, and a daemon
/// that is busy for a second is called missing, which takes the node out of service.
pub const PATIENCE: Duration = Duration::from_secs(2);

const CONTROLLER: &str = "ovn-controller";

/// Why a daemon cannot serve an ADD.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Database(#[from] BridgeError),
    #[error("there is no bridge {INTEGRATION_BRIDGE}")]
    Bridge,
    #[error("ovs-vswitchd does not answer")]
    Vswitchd(#[source] io::Error),
    #[error("ovn-controller does not answer")]
    Controller(#[source] io::Error),
    /// There is no pid file. ovn-controller may run in a container, with a run-time directory
    /// elsewhere.
    #[error("ovn-controller does not answer")]
    NoController(#[source] io::Error),
    #[error("ovn-controller is {0:?} to the southbound database")]
    ControllerNotConnected(String),
}

impl DaemonError {
    /// Whether the daemon is there and has not answered so far: it may be busy.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Database(BridgeError::Slow(_)) => true,
            // EAGAIN from connect(2): the backlog of the control socket is full, and its daemon has
            // accepted nothing for a while.
            Self::Vswitchd(error) | Self::Controller(error) => {
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
            }
            Self::Database(_)
            | Self::Bridge
            | Self::NoController(_)
            | Self::ControllerNotConnected(_) => false,
        }
    }

    /// Whether the cause is outside of this node. A runtime takes the node out of service for a bad
    /// answer, and one southbound database that restarts would take all nodes of a cluster out at
    /// once, although their pods reach each other as before.
    pub fn is_central(&self) -> bool {
        match self {
            Self::ControllerNotConnected(_) => true,
            Self::Database(_)
            | Self::Bridge
            | Self::Vswitchd(_)
            | Self::Controller(_)
            | Self::NoController(_) => false,
        }
    }
}

/// A daemon that an ADD needs besides the server. The worst to miss comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// Open vSwitch's database, and in it the bridge.
    Database,
    Vswitchd,
    Controller,
}

impl Daemon {
    pub const ALL: [Self; 3] = [Self::Database, Self::Vswitchd, Self::Controller];

    /// The address of the daemon, by which plugin and server name it to each other: the endpoint of
    /// OVSDB, or the path of a pid file.
    pub fn place(self, settings: &Settings) -> String {
        match self {
            Self::Database => settings.ovsdb.to_string(),
            Self::Vswitchd => pid_file(&settings.ovs_run_dir, VSWITCHD).display().to_string(),
            Self::Controller => pid_file(&settings.ovn_run_dir, CONTROLLER).display().to_string(),
        }
    }

    /// Asks the daemon whether it can serve an ADD.
    ///
    /// # Errors
    /// It cannot, or does not answer within `patience`.
    pub async fn ask(self, settings: &Settings, patience: Duration) -> Result<(), DaemonError> {
        match self {
            Self::Database => check_bridge(settings, patience).await,
            Self::Vswitchd => ControlSocket::of(&settings.ovs_run_dir, VSWITCHD)
                .ask("version", &[], patience)
                .await
                .map(drop)
                .map_err(DaemonError::Vswitchd),
            Self::Controller => check_controller(settings, patience).await,
        }
    }
}

async fn check_bridge(settings: &Settings, patience: Duration) -> Result<(), DaemonError> {
    // One limit for the connection and the answer together; `connect` has one for each.
    let look = async { Bridge::connect(&settings.ovsdb, patience).await?.exists().await };
    let there = timeout(patience, look).await.unwrap_or(Err(BridgeError::Slow(patience)))?;
    if there { Ok(()) } else { Err(DaemonError::Bridge) }
}

async fn check_controller(settings: &Settings, patience: Duration) -> Result<(), DaemonError> {
    let gone = |error| {
        if pid_file(&settings.ovn_run_dir, CONTROLLER).exists() {
            DaemonError::Controller(error)
        } else {
            DaemonError::NoController(error)
        }
    };
    let controller = ControlSocket::of(&settings.ovn_run_dir, CONTROLLER);
    let connection = controller.ask("connection-status", &[], patience).await.map_err(gone)?;
    if connection.trim() == "connected" {
        Ok(())
    } else {
        Err(DaemonError::ControllerNotConnected(connection.trim().to_owned()))
    }
}
