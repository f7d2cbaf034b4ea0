//! The connection to the API server: its address, the trusted authorities and the credentials.
//! Knows nothing of what is requested.
//!
//! ```text
//! ApiServer ─▶ ConnectionConfig ─▶ Transport (TLS, headers) ◀─ ReloadingClient ◀─ Client ◀─ Connection
//!                  ▲ a file changed, or the API server answered 401
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `config` | address, authorities and credentials, as the files say now |
//! | `kubeconfig` | the one cluster and the one user that a kubeconfig chooses |
//! | `transport` | one transport, made from one configuration |
//! | `reloading_client` | requests over the current transport; reads the files again after a 401 |
//! | `files` | notices when a file changes |
//! | `versions` | the version of each kind that an administrator defines |
//! | `failure` | what the error of a request means |

use std::{path::PathBuf, sync::Arc, time::Duration};

use contract::definition::Definition;
use kube::Client;
use secrecy::SecretString;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use self::{reloading_client::ReloadingClient, versions::Versions};
use crate::trouble::{Kind, Trouble};

pub mod config;
mod failure;
mod files;
mod kubeconfig;
mod reloading_client;
mod transport;
mod versions;

/// The address of the API server, and the credentials to use.
#[derive(Debug, Clone)]
pub struct ApiServer {
    pub cluster: Cluster,
    /// Takes precedence over the user of a kubeconfig.
    pub credential: Option<Credential>,
}

/// The address of the API server, and how it is authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cluster {
    /// Server, authority and user, as kubectl reads them.
    Kubeconfig(PathBuf),
    /// `url`: with `http` or `https`. Without an authority, the system's authorities are trusted.
    Url { url: String, authority: Option<Authority> },
}

/// The certificate authorities that may sign the API server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// A PEM file, read again when it changes.
    File(PathBuf),
    /// The PEM itself (`external_ids:k8s-ca-certificate`).
    Pem(String),
}

/// The credentials with which this program authenticates.
#[derive(Debug, Clone)]
pub enum Credential {
    Token(SecretString),
    /// Read again when it changes and when the API server refuses the token. Whitespace around the
    /// token is ignored.
    TokenFile(PathBuf),
    /// PEM; both may be the same file. Read again when a file changes.
    Certificate {
        certificate: PathBuf,
        key: PathBuf,
    },
}

/// A connection to the API server that follows changes of its credentials. Clones share it.
#[derive(Debug, Clone)]
pub struct Connection {
    reloading: Arc<ReloadingClient>,
    client: ClientHandle,
    versions: Arc<Versions>,
    _watcher: Arc<Watcher>,
}

#[derive(Clone)]
struct ClientHandle(Client);

#[derive(Debug)]
struct Watcher(JoinHandle<()>);

impl Connection {
    /// Opens a connection. Returns at once, whether the files are there and the API server answers
    /// or not. Needs a tokio runtime.
    pub fn open(api_server: ApiServer) -> Self {
        let reloading = Arc::new(ReloadingClient::new(api_server));
        let client = ClientHandle(Client::new(reloading_client::service(&reloading), "default"));
        let watcher = Watcher(tokio::spawn(files::follow(Arc::clone(&reloading))));
        Self { reloading, client, versions: Arc::default(), _watcher: Arc::new(watcher) }
    }

    /// The same connection, but all requests go through `client`, which has a transport of its own.
    pub fn over(&self, client: Client) -> Self {
        Self { client: ClientHandle(client), ..self.clone() }
    }

    /// The client, which uses the current credentials for each request.
    pub fn client(&self) -> &Client {
        &self.client.0
    }

    /// The version in which the kind was found last, by any part of this program; the newest before
    /// that.
    pub fn version_of(&self, definition: &Definition) -> &'static str {
        self.versions.of(definition)
    }

    /// The API server has the kind in this version.
    pub(crate) fn found(&self, definition: &Definition, version: &'static str) {
        self.versions.found(definition, version);
    }

    /// Changes whenever the credentials or the authorities change. A watch that began before should
    /// then be opened again.
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.reloading.renewals()
    }

    /// The reason why a request over this connection failed.
    pub fn trouble(&self, error: &kube::Error) -> Trouble {
        failure::trouble(error, &self.reloading.origin())
    }

    /// Runs a request with a timeout.
    ///
    /// # Errors
    ///
    /// The error of the request, or that there was no answer within `patience`.
    pub async fn ask<T>(
        &self,
        patience: Duration,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Trouble> {
        match timeout(patience, request).await {
            Ok(answer) => answer.map_err(|error| self.trouble(&error)),
            Err(_) => {
                let text =
                    format!("the API server {} did not answer within {patience:?}", self.url());
                Err(Trouble::without_answer(Kind::Unavailable, text))
            }
        }
    }

    /// The URL of the API server; empty until its configuration could be read.
    pub fn url(&self) -> String {
        self.reloading.origin().url.clone()
    }

    /// Whether a kubeconfig turns off the verification of the API server's certificate.
    pub fn is_unverified(&self) -> bool {
        self.reloading.origin().is_unverified
    }

    /// Announces new credentials, for a test.
    #[cfg(test)]
    pub(crate) fn renew(&self) {
        self.reloading.announce();
    }
}

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
