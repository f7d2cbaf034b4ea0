//! STATUS: whether this node can do its part of an ADD, and if not, what is missing. Asks everybody that an ADD needs on this node, at the same time.
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
    stamp::{self, FORGIVEN},
};

/// A partner that takes longer is of no use to an ADD either.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long a partner is waited for where somebody else knows better, or where it makes no difference any more.
const A_MOMENT: Duration = Duration::from_millis(100);

/// How long the server is waited for, which answers from memory: STATUS is to end within two seconds.
const SERVER_PATIENCE: Duration = Duration::from_millis(1500);

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
    /// It may be out of sight: in a container, with a run-time directory that is elsewhere.
    #[error("ovn-controller does not answer")]
    NoController(#[source] io::Error),
    #[error("ovn-controller is {0:?} to the southbound database")]
    ControllerNotConnected(String),
}

impl Missing {
    /// 51 where the pods that are already there may be affected too: without ovs-vswitchd, or its database, or the bridge.
    pub fn code(&self) -> Code {
        match self {
            Self::Server(_) | Self::SilentServer | Self::Controller(_) | Self::NoController(_) | Self::ControllerNotConnected(_) => {
                Code::NotAvailable
            }
            Self::Database(_) | Self::Bridge | Self::Vswitchd(_) => Code::NotAvailableLimited,
        }
    }

    /// Whether a partner that is there has said nothing so far: it may be busy.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::SilentServer | Self::Database(BridgeError::Slow(_)) => true,
            // A control socket whose backlog is full (connect(2), EAGAIN) is one of a daemon that has accepted nothing for a while.
            Self::Vswitchd(error) | Self::Controller(error) => {
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
            }
            Self::Server(_) | Self::Database(_) | Self::Bridge | Self::NoController(_) | Self::ControllerNotConnected(_) => false,
        }
    }

    /// Whether it is nothing of this node's. A runtime takes the node out of service for a bad answer, and one southbound database that restarts
    /// would take all nodes of a cluster out at once, although their pods reach each other as before.
    pub fn is_central(&self) -> bool {
        match self {
            Self::ControllerNotConnected(_) => true,
            Self::Server(_)
            | Self::SilentServer
            | Self::Database(_)
            | Self::Bridge
            | Self::Vswitchd(_)
            | Self::Controller(_)
            | Self::NoController(_) => false,
        }
    }

    /// Whether it is what a server looks like that is being replaced.
    fn is_a_restart(&self) -> bool {
        match self {
            Self::Server(AskError::Refused(error)) => Code::from_number(error.code) == Code::TryAgain,
            Self::Server(
                AskError::Leaving(_) | AskError::Absent { .. } | AskError::Broken(_) | AskError::Full { .. } | AskError::Silent(_),
            )
            | Self::SilentServer => true,
            Self::Server(AskError::Unexpected { .. } | AskError::Answer(_) | AskError::PrimaryNetwork)
            | Self::Database(_)
            | Self::Bridge
            | Self::Vswitchd(_)
            | Self::Controller(_)
            | Self::NoController(_)
            | Self::ControllerNotConnected(_) => false,
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

    /// What was seen of it in a moment, with what the server knows: asks once more if it has said nothing and nobody knows better.
    async fn judge(self, seen: Result<(), Missing>, server: &ServerSays, settings: &Settings) -> Result<(), Missing> {
        let pulse = server.pulse(&self.place(settings));
        match (seen, server) {
            (Err(missing), ServerSays::Missing(_)) if missing.is_silence() => {
                // The answer is bad anyhow; a moment is not enough to call somebody else missing, too.
                Ok(())
            }
            (Err(missing), _) if missing.is_silence() => match pulse {
                Pulse::Answers => Ok(()),
                Pulse::Silent => Err(missing),
                // An older server, or upstream's, or one that cannot see it.
                Pulse::Unknown => self.ask(settings, PATIENCE).await,
            },
            // What is not in sight from here may be so from where the server is, or work out of everybody's sight.
            (Err(Missing::NoController(_)), ServerSays::Forgiven) => Ok(()),
            (Err(Missing::NoController(_)), ServerSays::Answer(_)) if pulse == Pulse::Answers => Ok(()),
            (Err(Missing::NoController(_)), ServerSays::Answer(answer)) if answer.controller_elsewhere => Ok(()),
            (seen, _) => seen,
        }
    }
}

/// What is known of the server.
enum ServerSays {
    Answer(StatusAnswer),
    /// Nothing, but it could answer a moment ago.
    Forgiven,
    Missing(Missing),
}

impl ServerSays {
    fn pulse(&self, place: &str) -> Pulse {
        match self {
            Self::Answer(answer) => answer.partners.get(place).copied().unwrap_or(Pulse::Unknown),
            Self::Forgiven | Self::Missing(_) => Pulse::Unknown,
        }
    }

    fn missing(self) -> Option<Missing> {
        match self {
            Self::Answer(_) | Self::Forgiven => None,
            Self::Missing(missing) => Some(missing),
        }
    }
}

const VSWITCHD: &str = "ovs-vswitchd";
const CONTROLLER: &str = "ovn-controller";

/// Everything that is missing on this node, worst first; nothing if an ADD could succeed as far as the node is concerned.
pub async fn status(request: &Request, settings: &Settings) -> Vec<Missing> {
    let [database, vswitchd, controller] = Partner::ALL.map(|partner| partner.ask(settings, A_MOMENT));
    let (database, vswitchd, controller, server) = tokio::join!(database, vswitchd, controller, check_server(request, settings));
    let (database, vswitchd, controller) = tokio::join!(
        Partner::Database.judge(database, &server, settings),
        Partner::Vswitchd.judge(vswitchd, &server, settings),
        Partner::Controller.judge(controller, &server, settings),
    );
    let missing = [database, vswitchd, controller].into_iter().filter_map(Result::err).chain(server.missing());
    let (central, local): (Vec<_>, Vec<_>) = missing.partition(Missing::is_central);
    for missing in central {
        tracing::info!(%missing, "is nothing of this node: running pods go on, new ones wait");
    }
    local
}

async fn check_server(request: &Request, settings: &Settings) -> ServerSays {
    let server = Server::at(&settings.server_socket);
    let missing = match timeout(SERVER_PATIENCE, server.status(request)).await {
        Ok(Ok(answer)) => return ServerSays::Answer(answer),
        Ok(Err(error)) => Missing::Server(error),
        Err(_) => Missing::SilentServer,
    };
    match stamp::age(&settings.server_socket).filter(|age| *age < FORGIVEN && missing.is_a_restart()) {
        Some(age) => {
            tracing::warn!(%missing, last_s = age.as_secs(), forgiven_s = FORGIVEN.as_secs(), "the server is taken for one that restarts");
            ServerSays::Forgiven
        }
        None => ServerSays::Missing(missing),
    }
}

async fn check_bridge(settings: &Settings, patience: Duration) -> Result<(), Missing> {
    let look = async { Bridge::connect(&settings.ovsdb, patience).await?.exists().await };
    let there = timeout(patience, look).await.unwrap_or(Err(BridgeError::Slow(patience)))?;
    if there { Ok(()) } else { Err(Missing::Bridge) }
}

async fn check_controller(settings: &Settings, patience: Duration) -> Result<(), Missing> {
    let gone = |error| {
        if pid_file(&settings.ovn_run_dir, CONTROLLER).exists() { Missing::Controller(error) } else { Missing::NoController(error) }
    };
    let connection = appctl(&settings.ovn_run_dir, CONTROLLER, "connection-status", patience).await.map_err(gone)?;
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
