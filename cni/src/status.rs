//! STATUS: whether this node can do its part of an ADD, and if not, what is missing. Asks
//! everything that an ADD needs on this node, at the same time.
//!
//! A runtime calls STATUS every few seconds and waits, so a daemon that does not answer must not
//! delay the plugin. But a busy ovn-controller is not a broken one, and a runtime takes the whole
//! node out of service for it. The plugin lives too short to tell them apart. The server asks the
//! same daemons all the time ([`PATIENCE`]), and its verdict decides about a daemon that is silent
//! for a moment.

use std::time::Duration;

use contract::{
    error::Code,
    wire::{Health, Request, StatusAnswer},
};
use podnet::{
    daemon::{Daemon, DaemonError, PATIENCE},
    settings::Settings,
    stamp::{self, FORGIVEN},
};
use tokio::time::timeout;

use crate::ask::{AskError, Server};

/// How long a daemon may take if the server's verdict decides about it, or if the answer is bad
/// already. STATUS answers within 200 ms because of it; a daemon that answers later is silent and
/// not missing.
const A_MOMENT: Duration = Duration::from_millis(100);

/// How long the server may take, which answers from memory: STATUS has to end within two seconds.
const SERVER_PATIENCE: Duration = Duration::from_millis(1500);

/// Something that an ADD needs and that is missing.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    #[error(transparent)]
    Server(#[from] AskError),
    #[error("the node-local server does not answer")]
    SilentServer,
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

impl Missing {
    /// 51 if running pods may be affected, too: without ovs-vswitchd, its database or the bridge.
    /// 50 otherwise.
    pub fn code(&self) -> Code {
        match self {
            Self::Server(_)
            | Self::SilentServer
            | Self::Daemon(
                DaemonError::Controller(_)
                | DaemonError::NoController(_)
                | DaemonError::ControllerNotConnected(_),
            ) => Code::NotAvailable,
            Self::Daemon(
                DaemonError::Database(_) | DaemonError::Bridge | DaemonError::Vswitchd(_),
            ) => Code::NotAvailableLimited,
        }
    }

    /// Whether the cause is outside of this node ([`DaemonError::is_central`]).
    fn is_central(&self) -> bool {
        match self {
            Self::Daemon(error) => error.is_central(),
            Self::Server(_) | Self::SilentServer => false,
        }
    }

    /// Whether a server that is being replaced looks like this.
    fn is_a_restart(&self) -> bool {
        match self {
            Self::Server(AskError::Refused(error)) => {
                Code::from_number(error.code) == Code::TryAgain
            }
            Self::Server(
                AskError::Leaving(_)
                | AskError::Absent { .. }
                | AskError::Broken(_)
                | AskError::Full { .. }
                | AskError::Silent(_),
            )
            | Self::SilentServer => true,
            Self::Server(
                AskError::Unexpected { .. } | AskError::Answer(_) | AskError::PrimaryNetwork,
            )
            | Self::Daemon(_) => false,
        }
    }
}

/// The outcome of asking the server.
enum ServerSays {
    Answer(StatusAnswer),
    /// No answer, but the server could answer ADDs a moment ago.
    Forgiven,
    Missing(Missing),
}

impl ServerSays {
    fn health(&self, place: &str) -> Health {
        match self {
            Self::Answer(answer) => answer.daemons.get(place).copied().unwrap_or(Health::Unknown),
            Self::Forgiven | Self::Missing(_) => Health::Unknown,
        }
    }

    fn missing(self) -> Option<Missing> {
        match self {
            Self::Answer(_) | Self::Forgiven => None,
            Self::Missing(missing) => Some(missing),
        }
    }
}

/// The verdict on a daemon, from a short look of the plugin's own and the server's view. Asks
/// again, with more time, if the daemon was silent and the server does not know it.
async fn judge(
    daemon: Daemon,
    seen: Result<(), DaemonError>,
    server: &ServerSays,
    settings: &Settings,
) -> Result<(), DaemonError> {
    let health = server.health(&daemon.place(settings));
    match (seen, server) {
        (Err(missing), ServerSays::Missing(_)) if missing.is_silence() => {
            // The answer is bad already, because of the server. A moment of silence is not enough
            // to name a busy daemon beside it.
            Ok(())
        }
        (Err(missing), _) if missing.is_silence() => match health {
            Health::Answers => Ok(()),
            Health::Silent => Err(missing),
            // An older server, upstream's, or one that does not see the daemon.
            Health::Unknown => daemon.ask(settings, PATIENCE).await,
        },
        // The plugin finds no pid file of ovn-controller. The server may find one; or installed
        // ports show that ovn-controller runs where neither looks; or a server that restarts cannot
        // tell.
        (Err(DaemonError::NoController(_)), ServerSays::Forgiven) => Ok(()),
        (Err(DaemonError::NoController(_)), ServerSays::Answer(_)) if health == Health::Answers => {
            Ok(())
        }
        (Err(DaemonError::NoController(_)), ServerSays::Answer(answer))
            if answer.controller_elsewhere =>
        {
            Ok(())
        }
        (seen, _) => seen,
    }
}

/// Everything that is missing on this node, worst first. Empty if an ADD could succeed as far as
/// the node is concerned.
pub async fn status(request: &Request, settings: &Settings) -> Vec<Missing> {
    let [database, vswitchd, controller] = Daemon::ALL.map(|daemon| daemon.ask(settings, A_MOMENT));
    let (database, vswitchd, controller, server) =
        tokio::join!(database, vswitchd, controller, check_server(request, settings));
    let (database, vswitchd, controller) = tokio::join!(
        judge(Daemon::Database, database, &server, settings),
        judge(Daemon::Vswitchd, vswitchd, &server, settings),
        judge(Daemon::Controller, controller, &server, settings),
    );
    let missing = [database, vswitchd, controller]
        .into_iter()
        .filter_map(Result::err)
        .map(Missing::from)
        .chain(server.missing());
    // One southbound database that restarts would otherwise take every node of the cluster out of
    // service.
    let (central, local): (Vec<_>, Vec<_>) = missing.partition(Missing::is_central);
    for missing in central {
        tracing::info!(%missing, "missing outside of this node: running pods go on, new ones wait");
    }
    local
}

/// Asks the server. A server that is being replaced is forgiven while its stamp is young.
async fn check_server(request: &Request, settings: &Settings) -> ServerSays {
    let server = Server::at(&settings.server_socket);
    let missing = match timeout(SERVER_PATIENCE, server.status(request)).await {
        Ok(Ok(answer)) => return ServerSays::Answer(answer),
        Ok(Err(error)) => Missing::Server(error),
        Err(_) => Missing::SilentServer,
    };
    match stamp::age(&settings.server_socket)
        .filter(|age| *age < FORGIVEN && missing.is_a_restart())
    {
        Some(age) => {
            tracing::warn!(
                %missing,
                last_s = age.as_secs(),
                forgiven_s = FORGIVEN.as_secs(),
                "no answer from the server, which may be restarting"
            );
            ServerSays::Forgiven
        }
        None => ServerSays::Missing(missing),
    }
}
