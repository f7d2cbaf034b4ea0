//! STATUS: whether this node can do its part of an ADD, and if not, what is missing. Asks everybody that an ADD needs on this node, at the same time.
//!
//! A runtime asks every few seconds and waits, so a partner that says nothing may not keep it waiting; but a busy ovn-controller is not a
//! broken one, and a runtime takes the whole node out of service for it. The plugin lives too short to tell them apart. The server does
//! not: it asks the same partners all the time ([`PATIENCE`]), and its verdict decides about one that is silent for a moment.

use std::time::Duration;

use contract::{
    error::Code,
    wire::{Pulse, Request, StatusAnswer},
};
use podnet::{
    partner::{PATIENCE, Partner, PartnerError},
    settings::Settings,
    stamp::{self, FORGIVEN},
};
use tokio::time::timeout;

use crate::ask::{AskError, Server};

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
    Partner(#[from] PartnerError),
}

impl Missing {
    /// 51 where the pods that are already there may be affected too: without ovs-vswitchd, or its database, or the bridge.
    pub fn code(&self) -> Code {
        match self {
            Self::Server(_)
            | Self::SilentServer
            | Self::Partner(PartnerError::Controller(_) | PartnerError::NoController(_) | PartnerError::ControllerNotConnected(_)) => {
                Code::NotAvailable
            }
            Self::Partner(PartnerError::Database(_) | PartnerError::Bridge | PartnerError::Vswitchd(_)) => Code::NotAvailableLimited,
        }
    }

    /// Whether it is nothing of this node's ([`PartnerError::is_central`]).
    fn is_central(&self) -> bool {
        match self {
            Self::Partner(error) => error.is_central(),
            Self::Server(_) | Self::SilentServer => false,
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
            Self::Server(AskError::Unexpected { .. } | AskError::Answer(_) | AskError::PrimaryNetwork) | Self::Partner(_) => false,
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

/// What was seen of a partner in a moment, with what the server knows: asks once more if it has said nothing and nobody knows better.
async fn judge(partner: Partner, seen: Result<(), PartnerError>, server: &ServerSays, settings: &Settings) -> Result<(), PartnerError> {
    let pulse = server.pulse(&partner.place(settings));
    match (seen, server) {
        (Err(missing), ServerSays::Missing(_)) if missing.is_silence() => {
            // The answer is bad anyhow; a moment is not enough to call somebody else missing, too.
            Ok(())
        }
        (Err(missing), _) if missing.is_silence() => match pulse {
            Pulse::Answers => Ok(()),
            Pulse::Silent => Err(missing),
            // An older server, or upstream's, or one that cannot see it.
            Pulse::Unknown => partner.ask(settings, PATIENCE).await,
        },
        // What is not in sight from here may be so from where the server is, or work out of everybody's sight.
        (Err(PartnerError::NoController(_)), ServerSays::Forgiven) => Ok(()),
        (Err(PartnerError::NoController(_)), ServerSays::Answer(_)) if pulse == Pulse::Answers => Ok(()),
        (Err(PartnerError::NoController(_)), ServerSays::Answer(answer)) if answer.controller_elsewhere => Ok(()),
        (seen, _) => seen,
    }
}

/// Everything that is missing on this node, worst first; nothing if an ADD could succeed as far as the node is concerned.
pub async fn status(request: &Request, settings: &Settings) -> Vec<Missing> {
    let [database, vswitchd, controller] = Partner::ALL.map(|partner| partner.ask(settings, A_MOMENT));
    let (database, vswitchd, controller, server) = tokio::join!(database, vswitchd, controller, check_server(request, settings));
    let (database, vswitchd, controller) = tokio::join!(
        judge(Partner::Database, database, &server, settings),
        judge(Partner::Vswitchd, vswitchd, &server, settings),
        judge(Partner::Controller, controller, &server, settings),
    );
    let missing = [database, vswitchd, controller].into_iter().filter_map(Result::err).map(Missing::from).chain(server.missing());
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
