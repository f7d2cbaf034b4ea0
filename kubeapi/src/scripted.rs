//! A connection to a scripted API server, for tests.

pub(crate) use testkit::scripted_api::{Asked, ScriptedApi as Scripted};

use crate::{ApiServer, Authority, Cluster, Connection, Credential};

pub(crate) trait Connect {
    /// A connection without credentials.
    fn connection(&self) -> Connection {
        self.connection_as(None, None)
    }

    fn connection_as(
        &self,
        authority: Option<Authority>,
        credential: Option<Credential>,
    ) -> Connection;
}

impl Connect for Scripted {
    fn connection_as(
        &self,
        authority: Option<Authority>,
        credential: Option<Credential>,
    ) -> Connection {
        Connection::open(ApiServer {
            cluster: Cluster::Url { url: self.url.clone(), authority },
            credential,
        })
    }
}

/// A new scripted API server, and a connection to it.
pub(crate) async fn start() -> (Scripted, Connection) {
    let api = Scripted::start().await;
    let connection = api.connection();
    (api, connection)
}
