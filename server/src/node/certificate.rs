//! The client certificate with which this node's server authenticates to the API server. It is
//! requested with a bootstrap kubeconfig, kept in a file, and renewed with itself while it is
//! valid. Knows nothing of what is requested over the connection.
//!
//! ```text
//! bootstrap kubeconfig ─▶ request ─▶ CertificateSigningRequest ─▶ approver, signer of the cluster
//!   none that is usable ┘    ▲                                        │
//!             two thirds over└── rotation ◀── store (one file) ◀──────┘
//!                                              └─▶ Connection: reads the file again when it changes
//! ```
//!
//! The connection follows the file by itself, as it does with tokens: nothing is restarted.
//!
//! | module | noun |
//! |---|---|
//! | `store` | the file with key and certificate |
//! | `request` | one request: key, CertificateSigningRequest, the answer |
//! | `rotation` | the moment of the next request |

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use contract::backoff::Backoff;
use kubeapi::{ApiServer, Connection, Credential};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use self::{
    request::{Issued, RequestError},
    store::{Current, Store, Unusable},
};
use crate::metrics::Metrics;

#[cfg(test)]
mod authority;
mod request;
mod rotation;
mod store;

/// How often the file and the clock are looked at: the file may be lost, and the clock may have
/// been set, or the machine may have slept. Ten times as long, and a server that has lost its
/// certificate is refused for minutes.
const LOOK: Duration = Duration::from_secs(60);
/// How long a request may wait for its approval, as with client-go; then another one takes its
/// place.
const PENDING: Duration = Duration::from_secs(15 * 60);
/// Pauses after a failure. A denied request would be denied again: the longest pause keeps a node
/// that is misconfigured to a request a minute, each of which stays in the API server for an hour.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How the node gets its certificate.
#[derive(Debug, Clone)]
pub struct CertificateConfig {
    /// The API server and the credential with which the first certificate is requested.
    pub bootstrap: ApiServer,
    /// Where the certificate is kept.
    pub directory: PathBuf,
    /// How long it is requested to be valid. The signer may give less.
    pub duration: Duration,
}

impl CertificateConfig {
    /// The credential that the certificate is, whether there is one yet or not.
    pub fn credential(&self) -> Credential {
        let file = store::path(&self.directory);
        Credential::Certificate { certificate: file.clone(), key: file }
    }
}

/// Which credential a request is sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requester {
    /// The certificate itself.
    Own,
    Bootstrap,
}

/// Why a certificate is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    /// Two thirds of the lifetime are over.
    Due,
    /// There is none.
    First,
    Unusable(String),
}

impl Reason {
    /// `refused`: by the API server, when a renewal was requested with it.
    fn of(current: &Result<Current, Unusable>, refused: bool) -> Self {
        match current {
            Ok(_) if refused => Self::Unusable("the API server does not accept it".to_owned()),
            Ok(_) => Self::Due,
            Err(Unusable::Absent) => Self::First,
            Err(unusable) => Self::Unusable(unusable.to_string()),
        }
    }
}

/// Keeps the certificate of `node` valid, for as long as the runtime lives. `own`: the connection
/// that uses it.
pub(super) async fn keep(
    config: CertificateConfig,
    node: String,
    own: Connection,
    metrics: Arc<Metrics>,
) {
    let store = Arc::new(Store::new(&config.directory, &node));
    let keeper = Keeper { store, config, node, own, metrics };
    keeper.run().await;
}

struct Keeper {
    config: CertificateConfig,
    node: String,
    own: Connection,
    store: Arc<Store>,
    metrics: Arc<Metrics>,
}

impl Keeper {
    async fn run(self) {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let mut refused = false;
        let mut told = None;
        loop {
            let current = self.current().await;
            let now = SystemTime::now();
            if let Ok(current) = &current {
                self.metrics.certificate_valid(current.until(), current.due());
                let wait = current.due().duration_since(now).unwrap_or_default();
                if !wait.is_zero() && !refused {
                    told = None;
                    sleep(wait.min(LOOK)).await;
                    continue;
                }
            }
            let requester =
                if current.is_ok() && !refused { Requester::Own } else { Requester::Bootstrap };
            let why = Reason::of(&current, refused);
            // Once for each reason: attempts repeat while the API server is away.
            if told.as_ref() != Some(&why) {
                self.announce(&why);
                told = Some(why);
            }
            match self.renew(requester, current.as_ref().ok(), now).await {
                Ok(()) => {
                    (refused, told) = (false, None);
                    backoff.reset();
                }
                Err(failure) => {
                    // A certificate that the API server does not accept any more cannot ask for
                    // another one.
                    refused = failure.is_unauthorized() && requester == Requester::Own;
                    let pause =
                        if refused { PAUSES.0 } else { backoff.next(failure.retry_after()) };
                    let again_in = format!("{:.0?}", pause);
                    tracing::warn!(node = self.node, problem = %failure, again_in, "no new client certificate yet");
                    sleep(pause).await;
                }
            }
        }
    }

    async fn current(&self) -> Result<Current, Unusable> {
        let store = Arc::clone(&self.store);
        match spawn_blocking(move || store.read(SystemTime::now())).await {
            Ok(current) => current,
            Err(_) => Err(Unusable::Malformed("reading it has failed")),
        }
    }

    fn announce(&self, why: &Reason) {
        let (node, file) = (&self.node, self.store.path().display());
        match why {
            Reason::Due => tracing::info!(node, %file, "renewing the client certificate"),
            Reason::First => {
                tracing::info!(node, %file, "requesting a client certificate with the bootstrap kubeconfig");
            }
            Reason::Unusable(problem) => tracing::warn!(
                node,
                %file,
                problem,
                "the client certificate cannot be used; requesting one with the bootstrap kubeconfig"
            ),
        }
    }

    async fn renew(
        &self,
        requester: Requester,
        current: Option<&Current>,
        now: SystemTime,
    ) -> Result<(), RequestError> {
        let connection = match requester {
            Requester::Own => self.own.clone(),
            Requester::Bootstrap => Connection::open(self.config.bootstrap.clone()),
        };
        // Longer than its own certificate lasts, a renewal would wait for answers that it is
        // refused.
        let left = match (requester, current) {
            (Requester::Own, Some(current)) => current.left(now).max(PAUSES.1),
            _ => PENDING,
        };
        let patience = left.min(PENDING);
        let asking = request::issue(&connection, &self.node, self.config.duration);
        let issued =
            timeout(patience, asking).await.unwrap_or(Err(RequestError::Pending(patience)))?;
        self.save(issued).await
    }

    /// Writes the file until that succeeds: the certificate has been given, and would have to be
    /// requested once more.
    async fn save(&self, issued: Issued) -> Result<(), RequestError> {
        let issued = Arc::new(issued);
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            let (store, issued) = (Arc::clone(&self.store), Arc::clone(&issued));
            let written = spawn_blocking(move || store.write(&issued, SystemTime::now())).await;
            match written {
                Ok(Ok(current)) => {
                    let valid_for = current.left(SystemTime::now());
                    tracing::info!(
                        node = self.node,
                        file = %self.store.path().display(),
                        ?valid_for,
                        "stored a new client certificate"
                    );
                    return Ok(());
                }
                Ok(Err(store::WriteError::Unusable(unusable))) => {
                    return Err(RequestError::Unusable(unusable.to_string()));
                }
                Ok(Err(error)) => {
                    tracing::error!(
                        file = %self.store.path().display(),
                        problem = crate::chain(&error),
                        "the new client certificate cannot be stored; trying again"
                    );
                }
                Err(_) => return Err(RequestError::Unusable("storing it has failed".to_owned())),
            }
            sleep(backoff.next(None)).await;
        }
    }
}

#[cfg(test)]
mod tests;
