//! STATUS: whether an ADD could succeed now, and if not, what is missing. Asks everybody that an ADD needs, at the same time.

use std::{io, path::Path, time::Duration};

use contract::{error::Code, paths::INTEGRATION_BRIDGE, wire::Request};
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

/// A partner that takes longer is of no use to an ADD either. Not shorter: a busy ovn-controller is not a broken one, and a runtime
/// takes the whole node out of service for it.
const PATIENCE: Duration = Duration::from_secs(2);

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
}

/// Everything that is missing, worst first; nothing if an ADD could succeed.
pub async fn status(request: &Request, settings: &Settings) -> Vec<Missing> {
    let (database, vswitchd, controller, server) =
        tokio::join!(check_bridge(settings), check_vswitchd(settings), check_controller(settings), check_server(request, settings));
    [database, vswitchd, controller, server].into_iter().filter_map(Result::err).collect()
}

async fn check_server(request: &Request, settings: &Settings) -> Result<(), Missing> {
    let server = Server::at(&settings.server_socket);
    Ok(timeout(PATIENCE, server.status(request)).await.map_err(|_| Missing::SilentServer)??)
}

async fn check_bridge(settings: &Settings) -> Result<(), Missing> {
    let look = async { Bridge::connect(&settings.ovsdb, PATIENCE).await?.exists().await };
    let there = timeout(PATIENCE, look).await.unwrap_or(Err(BridgeError::Slow(PATIENCE)))?;
    if there { Ok(()) } else { Err(Missing::Bridge) }
}

async fn check_vswitchd(settings: &Settings) -> Result<(), Missing> {
    appctl(&settings.ovs_run_dir, "ovs-vswitchd", "version").await.map(drop).map_err(Missing::Vswitchd)
}

async fn check_controller(settings: &Settings) -> Result<(), Missing> {
    let connection = appctl(&settings.ovn_run_dir, "ovn-controller", "connection-status").await.map_err(Missing::Controller)?;
    if connection.trim() == "connected" { Ok(()) } else { Err(Missing::ControllerNotConnected(connection.trim().to_owned())) }
}

/// Asks a daemon what `ovs-appctl -t DAEMON COMMAND` asks: JSON-RPC on the control socket that its process id names
/// (ovs-appctl(8)).
async fn appctl(run_dir: &Path, daemon: &str, command: &str) -> io::Result<String> {
    #[derive(Deserialize)]
    struct Answer {
        result: Option<String>,
        error: Option<Value>,
    }

    let pid_file = run_dir.join(format!("{daemon}.pid"));
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
    let answered = timeout(PATIENCE, talk).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
    answered.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", socket.display())))
}
