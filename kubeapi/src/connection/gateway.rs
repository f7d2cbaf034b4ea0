//! Requests over the link of the moment. Reads the material again when somebody says that it changed, and at once when the API server
//! does not accept it; a link that worked stays until there is another.

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
    link::Link,
    material::{Material, MaterialError, OnDisk, Origin, Reader},
};
use crate::trouble::overloaded;

pub(super) struct Gateway {
    api_server: ApiServer,
    seed: RandomState,
    now: Mutex<Now>,
    /// Held while files are read: who comes meanwhile takes what comes of it.
    reading: tokio::sync::Mutex<()>,
    renewals: watch::Sender<u64>,
}

struct Now {
    /// The link, or why there never was one.
    link: Result<Arc<Link>, MaterialError>,
    /// What was read the last time, whatever came of it.
    seen: Vec<(PathBuf, u64)>,
    /// What was wrong the last time.
    problem: Option<String>,
}

/// What kube sends its requests to.
pub(super) fn service(
    gateway: &Arc<Gateway>,
) -> impl Service<Request<Body>, Response = Response<Incoming>, Error = BoxError, Future: Send + 'static> + Send + 'static {
    let gateway = Arc::clone(gateway);
    service_fn(move |request| Arc::clone(&gateway).exchange(request))
}

impl Gateway {
    pub(super) fn new(api_server: ApiServer) -> Self {
        let seed = RandomState::new();
        let mut reader = Reader::new(&OnDisk, seed.clone());
        let link = Material::read(&api_server, &mut reader).and_then(|material| Link::new(material, 0)).map(Arc::new);
        let problem = link.as_ref().err().map(ToString::to_string);
        let now = Mutex::new(Now { link, seen: reader.seen, problem });
        Self { api_server, seed, now, reading: tokio::sync::Mutex::default(), renewals: watch::Sender::new(0) }
    }

    pub(super) fn renewals(&self) -> watch::Receiver<u64> {
        self.renewals.subscribe()
    }

    #[cfg(test)]
    pub(super) fn announce(&self) {
        self.renewals.send_modify(|number| *number += 1);
    }

    pub(super) fn origin(&self) -> Origin {
        self.now().link.as_ref().map(|link| link.origin.clone()).unwrap_or_default()
    }

    /// The files that everything was read from.
    pub(super) fn files(&self) -> BTreeSet<PathBuf> {
        self.now().seen.iter().map(|(path, _)| path.clone()).collect()
    }

    async fn exchange(self: Arc<Self>, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let link = match self.link() {
            Ok(link) => link,
            // Something was missing: it may be there now.
            Err(_) => {
                Arc::clone(&self).renew(None).await;
                self.link()?
            }
        };
        let again = copy(&mut request);
        let response = link.send(request).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return overloaded(response).await;
        }
        let Some(again) = again else { return Ok(response) };
        Arc::clone(&self).renew(Some(link.number)).await;
        let renewed = self.link()?;
        if renewed.number == link.number {
            return Ok(response);
        }
        overloaded(renewed.send(again).await?).await
    }

    /// Reads everything again, unless somebody has done that since link `refused` was made.
    pub(super) async fn renew(self: Arc<Self>, refused: Option<u64>) {
        let _reading = self.reading.lock().await;
        if refused.is_some_and(|refused| self.link().is_ok_and(|link| link.number > refused)) {
            return;
        }
        let gateway = Arc::clone(&self);
        // A panic while reading changes nothing.
        let _ = spawn_blocking(move || gateway.read_again()).await;
    }

    fn read_again(&self) {
        let mut reader = Reader::new(&OnDisk, self.seed.clone());
        let material = Material::read(&self.api_server, &mut reader);
        let number = *self.renewals.borrow() + 1;
        let mut now = self.now();
        let unchanged = now.seen == reader.seen;
        now.seen = reader.seen;
        if unchanged && now.link.is_ok() {
            return;
        }
        match material.and_then(|material| Link::new(material, number)) {
            Ok(link) => {
                tracing::info!(
                    api_server = link.origin.url,
                    credential = link.origin.credential,
                    "the way to the API server was read again"
                );
                now.problem = None;
                now.link = Ok(Arc::new(link));
                drop(now);
                self.renewals.send_replace(number);
            }
            Err(error) => {
                let problem = error.to_string();
                if now.problem.as_ref() != Some(&problem) {
                    tracing::warn!(problem, "what leads to the API server cannot be used as it is now");
                }
                now.problem = Some(problem);
                if now.link.is_err() {
                    now.link = Err(error);
                }
            }
        }
    }

    fn link(&self) -> Result<Arc<Link>, MaterialError> {
        self.now().link.clone()
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same request once more, unless its body is a stream.
fn copy(request: &mut Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("link", &self.now().link).finish_non_exhaustive()
    }
}
