//! Metrics and health over TCP, for Prometheus and the kubelet. `pages` has the answers, `listener` the
//! connections, `certificate` TLS.
//!
//! | path | answer | where |
//! |---|---|---|
//! | `/metrics` | Prometheus' text format | `--metrics-bind-address` |
//! | `/healthz` | 200 `ok`, as long as the server answers at all | `--metrics-bind-address` |
//! | `/healthz` | as kube-proxy's: 200, or 503 while the node is being removed | `--healthz-bind-address` |
//! | `/livez` | 200 `ok`, as long as the server answers at all | both |
//! | `/readyz` | 200, or 503 with what is not ready and why | both |
//!
//! No failure here affects a pod's network: an address that cannot be used is logged and tried again, for as
//! long as the server lives.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use server::conditions::Conditions;
use tokio::task::JoinSet;

use self::{certificate::Certificate, listener::Listener, pages::Pages};
use crate::metrics::Page;

mod certificate;
mod listener;
mod pages;

/// The option of [`Endpoints::metrics`].
const METRICS_OPTION: &str = "--metrics-bind-address";
/// The option of [`Endpoints::healthz`].
const HEALTHZ_OPTION: &str = "--healthz-bind-address";

/// The addresses of the endpoints; the default is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// `/metrics`, `/healthz`, `/readyz`
    pub metrics: Option<SocketAddr>,
    /// `/healthz`, `/readyz`. If it is the address of `metrics`, one listener serves both.
    pub healthz: Option<SocketAddr>,
    /// TLS of `metrics`; `healthz` has none.
    pub tls: Option<Tls>,
}

/// PEM files, read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    pub key: PathBuf,
    pub certificate: PathBuf,
}

/// The running endpoints; they end when this is dropped.
#[derive(Debug)]
pub struct Serving {
    #[expect(dead_code, reason = "ends its tasks when it is dropped")]
    listeners: JoinSet<()>,
}

/// Serves `endpoints` from now on. Returns at once and never fails; needs a tokio runtime.
pub fn start(endpoints: &Endpoints, conditions: &Conditions, page: &Arc<Page>) -> Serving {
    let Endpoints { metrics, healthz, tls } = endpoints.clone();
    let pages = |with_metrics: bool| Pages {
        conditions: conditions.clone(),
        metrics: with_metrics.then(|| Arc::clone(page)),
    };
    let mut listeners = JoinSet::new();
    if let Some(address) = metrics {
        let certificate = tls.map(|files| Arc::new(Certificate::of(files)));
        listeners.spawn(
            Listener { option: METRICS_OPTION, address, certificate, pages: Arc::new(pages(true)) }.serve(),
        );
    }
    // Not for the same address: the second bind(2) would fail with EADDRINUSE.
    if let Some(address) = healthz.filter(|healthz| metrics != Some(*healthz)) {
        listeners.spawn(
            Listener { option: HEALTHZ_OPTION, address, certificate: None, pages: Arc::new(pages(false)) }
                .serve(),
        );
    }
    Serving { listeners }
}

#[cfg(test)]
mod tests;
