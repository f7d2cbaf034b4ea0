//! How the API server is reached, and with which credentials. Knows nothing of what is asked.
//!
//! ```text
//! ApiServer ─read files─▶ Material ─▶ Link (TLS, headers) ◀─ Gateway ◀─ kube::Client ◀─ Connection
//!                            ▲ files changed, or the API server says 401
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `material` | what a connection is made of, as the files say it now |
//! | `kubeconfig` | the one cluster and the one user that a kubeconfig chooses |
//! | `link` | one set of material at work |
//! | `gateway` | requests over the link of the moment; reads again when that is refused |
//! | `files` | the moment when a file changes |

use std::{path::PathBuf, sync::Arc, time::Duration};

use kube::Client;
use secrecy::SecretString;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use self::gateway::Gateway;
use crate::trouble::{self, Kind, Trouble};

mod files;
mod gateway;
mod kubeconfig;
mod link;
pub mod material;

/// How to reach the API server.
#[derive(Debug, Clone)]
pub struct ApiServer {
    pub cluster: Cluster,
    /// Wins over what a kubeconfig says of the user.
    pub credential: Option<Credential>,
}

/// Where it is, and how it is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cluster {
    /// Server, authority and user, as kubectl reads them.
    Kubeconfig(PathBuf),
    /// `url`: with `http` or `https`. Without an authority the system's are trusted.
    Url { url: String, authority: Option<Authority> },
}

/// Who signed the API server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// A file of PEM, read again when it changes.
    File(PathBuf),
    /// The PEM itself (`external_ids:k8s-ca-certificate`).
    Pem(String),
}

/// Who this server is to the API server.
#[derive(Debug, Clone)]
pub enum Credential {
    Token(SecretString),
    /// Read again when it changes and when the API server refuses it; whitespace around the token does not count.
    TokenFile(PathBuf),
    /// PEM; both may be the same file. Read again when it changes.
    Certificate {
        certificate: PathBuf,
        key: PathBuf,
    },
}

/// A way to the API server that follows its credentials. Clones are the same way.
#[derive(Debug, Clone)]
pub struct Connection {
    gateway: Arc<Gateway>,
    client: ClientHandle,
    _watcher: Arc<Watcher>,
}

#[derive(Clone)]
struct ClientHandle(Client);

#[derive(Debug)]
struct Watcher(JoinHandle<()>);

impl Connection {
    /// Returns at once, whatever state files and API server are in. Needs a tokio runtime.
    pub fn open(api_server: ApiServer) -> Self {
        let gateway = Arc::new(Gateway::new(api_server));
        let client = ClientHandle(Client::new(gateway::service(&gateway), "default"));
        let watcher = Watcher(tokio::spawn(files::follow(Arc::clone(&gateway))));
        Self { gateway, client, _watcher: Arc::new(watcher) }
    }

    /// The same, but every request goes to `client`, which knows a way of its own.
    pub fn over(&self, client: Client) -> Self {
        Self { client: ClientHandle(client), ..self.clone() }
    }

    /// Asks over the credentials of the moment.
    pub fn client(&self) -> &Client {
        &self.client.0
    }

    /// Changes whenever the credentials or the authorities do: what was begun before should move over.
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.gateway.renewals()
    }

    /// `error` of a request over this connection.
    pub fn trouble(&self, error: &kube::Error) -> Trouble {
        trouble::of(error, &self.gateway.origin())
    }

    /// A request, and how long it may take.
    ///
    /// # Errors
    ///
    /// The request's own, or that there was no answer in time.
    pub async fn ask<T>(&self, patience: Duration, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Trouble> {
        match timeout(patience, request).await {
            Ok(answer) => answer.map_err(|error| self.trouble(&error)),
            Err(_) => {
                let text = format!("the API server {} did not answer within {patience:?}", self.url());
                Err(Trouble::without_answer(Kind::Unavailable, text))
            }
        }
    }

    /// URL of the API server, as far as it is known.
    pub fn url(&self) -> String {
        self.gateway.origin().url.clone()
    }

    /// Whether a kubeconfig switches the verification of the API server off.
    pub fn is_unverified(&self) -> bool {
        self.gateway.origin().is_unverified
    }

    /// Has what was begun before move over, as other credentials do.
    #[cfg(test)]
    pub(crate) fn renew(&self) {
        self.gateway.announce();
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
