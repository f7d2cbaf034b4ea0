//! STATUS: whether an ADD could succeed now, and if not, what is missing. Asks everybody that an ADD needs, at the same time.
//!
//! A runtime asks every few seconds and waits, so a partner that says nothing may not keep it waiting; but a busy ovn-controller is not a
//! broken one, and a runtime takes the whole node out of service for it. The plugin lives too short to tell them apart. The server does
//! not: it asks the same partners all the time ([`PATIENCE`]), and its verdict decides about one that is silent for a moment.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use contract::{
    error::Code,
    paths::INTEGRATION_BRIDGE,
    wire::{Pulse, Request, StatusAnswer},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

use crate::{
    ask::{AskError, Server},
    bridge::{Bridge, BridgeError},
    settings::Settings,
};

/// A partner that takes longer is of no use to an ADD either.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long a partner is waited for where somebody else knows better, or where it makes no difference any more.
const A_MOMENT: Duration = Duration::from_millis(100);

/// What an ADD would miss.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    #[error(transparent)]
    Server(#[from] AskError),
    #[error("the node-local server does not answer")]
    SilentServer,
    #[error(transparent)]
    Database(#[from] BridgeError),
    #[error("there is no bridge {INTEGRATION_BRIDGE}")]
    Bridge,
    #[error("ovs-vswitchd does not answer")]
    Vswitchd(#[source] io::Error),
    #[error("ovn-controller does not answer")]
    Controller(#[source] io::Error),
    #[error("ovn-controller is {0:?} to the southbound database")]
    ControllerNotConnected(String),
}

impl Missing {
    /// 51 where the pods that are already there may be affected too: without ovs-vswitchd, or its database, or the bridge.
    pub fn code(&self) -> Code {
        match self {
            Self::Server(_) | Self::SilentServer | Self::Controller(_) | Self::ControllerNotConnected(_) => Code::NotAvailable,
            Self::Database(_) | Self::Bridge | Self::Vswitchd(_) => Code::NotAvailableLimited,
        }
    }

    /// Whether a partner that is there has said nothing so far: it may be busy.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::SilentServer | Self::Database(BridgeError::Slow(_)) => true,
            Self::Vswitchd(error) | Self::Controller(error) => error.kind() == io::ErrorKind::TimedOut,
            Self::Server(_) | Self::Database(_) | Self::Bridge | Self::ControllerNotConnected(_) => false,
        }
    }
}

/// Whoever an ADD needs besides the server, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Partner {
    /// Open vSwitch's database, and in it the bridge.
    Database,
    Vswitchd,
    Controller,
}

impl Partner {
    pub const ALL: [Self; 3] = [Self::Database, Self::Vswitchd, Self::Controller];

    /// Where it is asked, as plugin and server name it to each other.
    pub fn place(self, settings: &Settings) -> String {
        match self {
            Self::Database => settings.ovsdb.to_string(),
            Self::Vswitchd => pid_file(&settings.ovs_run_dir, VSWITCHD).display().to_string(),
            Self::Controller => pid_file(&settings.ovn_run_dir, CONTROLLER).display().to_string(),
        }
    }

    /// Asks it whether it is of use to an ADD.
    pub async fn ask(self, settings: &Settings, patience: Duration) -> Result<(), Missing> {
        match self {
            Self::Database => check_bridge(settings, patience).await,
            Self::Vswitchd => appctl(&settings.ovs_run_dir, VSWITCHD, "version", patience).await.map(drop).map_err(Missing::Vswitchd),
            Self::Controller => check_controller(settings, patience).await,
        }
    }

    /// Asks once more if it has said nothing for a moment and nobody knows better.
    async fn judge(self, seen: Result<(), Missing>, server: &Result<StatusAnswer, Missing>, settings: &Settings) -> Result<(), Missing> {
        let silence = match seen {
            Err(missing) if missing.is_silence() => missing,
            other => return other,
        };
        // The answer is bad anyhow; a moment is not enough to call somebody else missing, too.
        let Ok(server) = server else { return Ok(()) };
        match server.partners.get(&self.place(settings)) {
            Some(Pulse::Answers) => Ok(()),
            Some(Pulse::Silent) => Err(silence),
            // An older server, or upstream's, or one that cannot see it.
            Some(Pulse::Unknown) | None => self.ask(settings, PATIENCE).await,
        }
    }
}

const VSWITCHD: &str = "ovs-vswitchd";
const CONTROLLER: &str = "ovn-controller";

/// Everything that is missing, worst first; nothing if an ADD could succeed.
pub async fn status(request: &Request, settings: &Settings) -> Vec<Missing> {
    let [database, vswitchd, controller] = Partner::ALL.map(|partner| partner.ask(settings, A_MOMENT));
    let (database, vswitchd, controller, server) = tokio::join!(database, vswitchd, controller, check_server(request, settings));
    let (database, vswitchd, controller) = tokio::join!(
        Partner::Database.judge(database, &server, settings),
        Partner::Vswitchd.judge(vswitchd, &server, settings),
        Partner::Controller.judge(controller, &server, settings),
    );
    [database, vswitchd, controller, server.map(drop)].into_iter().filter_map(Result::err).collect()
}

async fn check_server(request: &Request, settings: &Settings) -> Result<StatusAnswer, Missing> {
    let server = Server::at(&settings.server_socket);
    Ok(timeout(PATIENCE, server.status(request)).await.map_err(|_| Missing::SilentServer)??)
}

async fn check_bridge(settings: &Settings, patience: Duration) -> Result<(), Missing> {
    let look = async { Bridge::connect(&settings.ovsdb, patience).await?.exists().await };
    let there = timeout(patience, look).await.unwrap_or(Err(BridgeError::Slow(patience)))?;
    if there { Ok(()) } else { Err(Missing::Bridge) }
}

async fn check_controller(settings: &Settings, patience: Duration) -> Result<(), Missing> {
    let connection = appctl(&settings.ovn_run_dir, CONTROLLER, "connection-status", patience).await.map_err(Missing::Controller)?;
    if connection.trim() == "connected" { Ok(()) } else { Err(Missing::ControllerNotConnected(connection.trim().to_owned())) }
}

fn pid_file(run_dir: &Path, daemon: &str) -> PathBuf {
    run_dir.join(format!("{daemon}.pid"))
}

/// Asks a daemon what `ovs-appctl -t DAEMON COMMAND` asks: JSON-RPC on the control socket that its process id names
/// (ovs-appctl(8)).
async fn appctl(run_dir: &Path, daemon: &str, command: &str, patience: Duration) -> io::Result<String> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<String>,
        error: Option<Value>,
    }

    let pid_file = pid_file(run_dir, daemon);
    let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", pid_file.display()));
    let pid = std::fs::read_to_string(&pid_file).map_err(at)?;
    let socket = run_dir.join(format!("{daemon}.{}.ctl", pid.trim()));
    let talk = async {
        let mut stream = UnixStream::connect(&socket).await?;
        stream.write_all(format!(r#"{{"id":0,"method":"{command}","params":[]}}"#).as_bytes()).await?;
        let mut text = Vec::new();
        loop {
            if stream.read_buf(&mut text).await? == 0 || text.len() > 65536 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            if let Ok(Answer { result, error }) = serde_json::from_slice(&text) {
                return result.ok_or_else(|| io::Error::other(error.unwrap_or_default().to_string()));
            }
        }
    };
    let answered = timeout(patience, talk).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
    answered.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", socket.display())))
}
