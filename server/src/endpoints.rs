//! What is served over TCP for those who watch the server: measurements and health. What is said there, `pages` knows; how it
//! is served, `listener`; under which certificate, `certificate`.
//!
//! | path | answer | where |
//! |---|---|---|
//! | `/metrics` | Prometheus' text format | `--metrics-bind-address` |
//! | `/healthz` | 200 `ok`, as long as the server answers at all | both |
//! | `/readyz` | 200, or 503 with what is not ready and why | both |
//!
//! None of it may cost a pod its network: an address that cannot be used is logged and tried again, for as long as the server lives.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::task::JoinSet;

use self::{certificate::Certificate, listener::Listener, pages::Pages};
use crate::{conditions::Conditions, metrics::Measurements};

mod certificate;
mod listener;
mod pages;

/// The option of [`Endpoints::metrics`].
const METRICS_OPTION: &str = "--metrics-bind-address";
/// The option of [`Endpoints::healthz`].
const HEALTHZ_OPTION: &str = "--healthz-bind-address";

/// Where, if anywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// `/metrics`, `/healthz`, `/readyz`
    pub metrics: Option<SocketAddr>,
    /// `/healthz`, `/readyz`; where it is the address of `metrics`, that one serves both.
    pub healthz: Option<SocketAddr>,
    /// For `metrics`: TLS.
    pub tls: Option<Tls>,
}

/// PEM files, read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    pub key: PathBuf,
    pub certificate: PathBuf,
}

/// The endpoints that are served; they end when this is dropped.
#[derive(Debug)]
pub struct Serving {
    #[expect(dead_code, reason = "ends its tasks when it is dropped")]
    listeners: JoinSet<()>,
}

/// Serves `endpoints` from now on. Returns at once and never fails; needs a tokio runtime.
pub fn start(endpoints: &Endpoints, conditions: &Conditions, metrics: &Arc<impl Measurements + 'static>) -> Serving {
    let Endpoints { metrics: metrics_address, healthz, tls } = endpoints.clone();
    let metrics = Arc::clone(metrics);
    let measurements: Arc<dyn Measurements> = metrics;
    let pages = |with_metrics: bool| Pages { conditions: conditions.clone(), metrics: with_metrics.then(|| Arc::clone(&measurements)) };
    let mut listeners = JoinSet::new();
    if let Some(address) = metrics_address {
        let certificate = tls.map(|files| Arc::new(Certificate::of(files)));
        listeners.spawn(Listener { option: METRICS_OPTION, address, certificate, pages: Arc::new(pages(true)) }.serve());
    }
    if let Some(address) = healthz.filter(|healthz| metrics_address != Some(*healthz)) {
        listeners.spawn(Listener { option: HEALTHZ_OPTION, address, certificate: None, pages: Arc::new(pages(false)) }.serve());
    }
    Serving { listeners }
}

#[cfg(test)]
mod tests;
