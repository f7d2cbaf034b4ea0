//! The reloading client: it sends requests over the current transport. It reads the configuration
//! again when a file has changed, and at once when the API server answers 401. A transport that
//! worked stays in use until there is a new one.

use std::{
    collections::BTreeSet,
    hash::RandomState,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hyper::{Request, Response, StatusCode, body::Incoming};
use kube::client::Body;
use tokio::{sync::watch, task::spawn_blocking};
use tower::{BoxError, Service, service_fn};

use super::{
    ApiServer,
    config::{ConnectionConfig, ConnectionConfigError, OnDisk, Provenance, Reader},
    failure::overloaded,
    transport::Transport,
};

pub(super) struct ReloadingClient {
    api_server: ApiServer,
    seed: RandomState,
    now: Mutex<Now>,
    /// Held while the files are read: a second caller waits and then uses the result.
    reading: tokio::sync::Mutex<()>,
    renewals: watch::Sender<u64>,
}

struct Now {
    /// The current transport, or why there has never been one.
    transport: Result<Arc<Transport>, ConnectionConfigError>,
    /// The files of the last read and the hashes of their content, whether it succeeded or not.
    seen: Vec<(PathBuf, u64)>,
    /// The last error that was logged, to log each one once.
    problem: Option<String>,
}

/// The service that kube sends its requests to.
pub(super) fn service(
    reloading: &Arc<ReloadingClient>,
) -> impl Service<Request<Body>, Response = Response<Incoming>, Error = BoxError, Future: Send + 'static>
+ Send
+ 'static {
    let reloading = Arc::clone(reloading);
    service_fn(move |request| Arc::clone(&reloading).exchange(request))
}

impl ReloadingClient {
    pub(super) fn new(api_server: ApiServer) -> Self {
        let seed = RandomState::new();
        let mut reader = Reader::new(&OnDisk, seed.clone());
        let transport = ConnectionConfig::read(&api_server, &mut reader)
            .and_then(|config| Transport::new(config, 0))
            .map(Arc::new);
        let problem = transport.as_ref().err().map(ToString::to_string);
        let now = Mutex::new(Now { transport, seen: reader.seen, problem });
        Self {
            api_server,
            seed,
            now,
            reading: tokio::sync::Mutex::default(),
            renewals: watch::Sender::new(0),
        }
    }

    pub(super) fn renewals(&self) -> watch::Receiver<u64> {
        self.renewals.subscribe()
    }

    #[cfg(test)]
    pub(super) fn announce(&self) {
        self.renewals.send_modify(|number| *number += 1);
    }

    pub(super) fn origin(&self) -> Provenance {
        self.now().transport.as_ref().map(|transport| transport.origin.clone()).unwrap_or_default()
    }

    /// The files of the last read.
    pub(super) fn files(&self) -> BTreeSet<PathBuf> {
        self.now().seen.iter().map(|(path, _)| path.clone()).collect()
    }

    async fn exchange(
        self: Arc<Self>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, BoxError> {
        let transport = match self.transport() {
            Ok(transport) => transport,
            // A file was missing or invalid; it may be right by now.
            Err(_) => {
                Arc::clone(&self).renew(None).await;
                self.transport()?
            }
        };
        // Before the request is consumed.
        let again = copy(&mut request);
        let response = transport.send(request).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return overloaded(response).await;
        }
        let Some(again) = again else { return Ok(response) };
        Arc::clone(&self).renew(Some(transport.number)).await;
        let renewed = self.transport()?;
        // The files have nothing newer, so the refusal is final.
        if renewed.number == transport.number {
            return Ok(response);
        }
        overloaded(renewed.send(again).await?).await
    }

    /// Reads all files again. Does nothing if transport `refused` has been replaced in the
    /// meantime.
    pub(super) async fn renew(self: Arc<Self>, refused: Option<u64>) {
        let _reading = self.reading.lock().await;
        if refused.is_some_and(|refused| {
            self.transport().is_ok_and(|transport| transport.number > refused)
        }) {
            return;
        }
        let reloading = Arc::clone(&self);
        // A thread of its own: the files may be on a slow file system. After a panic the old
        // transport stays.
        let _ = spawn_blocking(move || reloading.read_again()).await;
    }

    fn read_again(&self) {
        let mut reader = Reader::new(&OnDisk, self.seed.clone());
        let config = ConnectionConfig::read(&self.api_server, &mut reader);
        let number = *self.renewals.borrow() + 1;
        let mut now = self.now();
        let unchanged = now.seen == reader.seen;
        now.seen = reader.seen;
        // The same content makes the same transport: connections that are open can stay.
        if unchanged && now.transport.is_ok() {
            return;
        }
        match config.and_then(|config| Transport::new(config, number)) {
            Ok(transport) => {
                tracing::info!(
                    api_server = transport.origin.url,
                    credential = transport.origin.credential,
                    "reloaded API server credentials"
                );
                now.problem = None;
                now.transport = Ok(Arc::new(transport));
                // Unlock first: a receiver that wakes up asks for the transport at once.
                drop(now);
                self.renewals.send_replace(number);
            }
            Err(error) => {
                let problem = error.to_string();
                if now.problem.as_ref() != Some(&problem) {
                    tracing::warn!(
                        problem,
                        "new API server credentials are invalid; keeping the last valid ones, if any"
                    );
                }
                now.problem = Some(problem);
                if now.transport.is_err() {
                    now.transport = Err(error);
                }
            }
        }
    }

    fn transport(&self) -> Result<Arc<Transport>, ConnectionConfigError> {
        self.now().transport.clone()
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of the request; `None` if its body is a stream.
fn copy(request: &mut Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}

impl std::fmt::Debug for ReloadingClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReloadingClient")
            .field("transport", &self.now().transport)
            .finish_non_exhaustive()
    }
}
