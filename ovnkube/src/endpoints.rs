//! Metrics and health over TCP, for Prometheus and the kubelet. `pages` has the answers, `listener`
//! the connections, `certificate` TLS.
//!
//! | path | answer | where |
//! |---|---|---|
//! | `/metrics` | Prometheus' text format | `--metrics-bind-address` |
//! | `/metrics` | those of OVN and Open vSwitch | `--ovn-metrics-bind-address` |
//! | `/healthz` | 200 `ok`, as long as the server answers at all | `--metrics-bind-address` |
//! | `/healthz` | as kube-proxy's: 200, or 503 while the node is being removed | `--healthz-bind-address` |
//! | `/livez` | 200 `ok`, as long as the server answers at all | all |
//! | `/readyz` | 200, or 503 with what is not ready and why | all |
//!
//! No failure here affects a pod's network: an address that cannot be used is logged and tried
//! again, for as long as the server lives.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use server::conditions::Conditions;
use tokio::task::JoinSet;

use self::{
    certificate::Certificate,
    listener::Listener,
    pages::{Measurements, Pages},
};
use crate::{
    exporter::{Exported, Exporter, ExporterPlaces},
    metrics::Page,
};

mod certificate;
mod listener;
mod pages;

/// The option of [`Endpoints::metrics`].
const METRICS_OPTION: &str = "--metrics-bind-address";
/// The option of [`Endpoints::healthz`].
const HEALTHZ_OPTION: &str = "--healthz-bind-address";
/// The option of [`Endpoints::daemons`].
const DAEMONS_OPTION: &str = "--ovn-metrics-bind-address";

/// The addresses of the endpoints; the default is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// `/metrics`, `/healthz`, `/readyz`
    pub metrics: Option<SocketAddr>,
    /// `/healthz`, `/readyz`. If it is the address of `metrics`, one listener serves both.
    pub healthz: Option<SocketAddr>,
    /// `/metrics` of OVN and Open vSwitch.
    pub daemons: Option<DaemonEndpoint>,
    /// TLS of `metrics` and `daemons`; `healthz` has none.
    pub tls: Option<Tls>,
}

/// Where the metrics of OVN and Open vSwitch are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonEndpoint {
    pub address: SocketAddr,
    pub places: ExporterPlaces,
    pub exported: Exported,
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
    let Endpoints { metrics, healthz, daemons, tls } = endpoints.clone();
    let pages = |metrics: Measurements| Arc::new(Pages { conditions: conditions.clone(), metrics });
    let certificate = tls.map(|files| Arc::new(Certificate::of(files)));
    let mut listeners = JoinSet::new();
    if let Some(address) = metrics {
        let pages = pages(Measurements::OfProcess(Arc::clone(page)));
        let certificate = certificate.clone();
        listeners.spawn(Listener { option: METRICS_OPTION, address, certificate, pages }.serve());
    }
    if let Some(daemons) = daemons {
        let listener = of_daemons(DAEMONS_OPTION, daemons, certificate, conditions);
        listeners.spawn(listener.serve());
    }
    // Not for the same address: the second bind(2) would fail with EADDRINUSE.
    if let Some(address) = healthz.filter(|healthz| metrics != Some(*healthz)) {
        listeners.spawn(
            Listener {
                option: HEALTHZ_OPTION,
                address,
                certificate: None,
                pages: pages(Measurements::None),
            }
            .serve(),
        );
    }
    Serving { listeners }
}

/// Serves the metrics of the daemons alone, from now on. Returns at once and never fails; needs a
/// tokio runtime.
pub fn start_of_daemons(endpoint: DaemonEndpoint) -> Serving {
    let mut listeners = JoinSet::new();
    let conditions = Conditions::of([]);
    listeners.spawn(of_daemons(METRICS_OPTION, endpoint, None, &conditions).serve());
    Serving { listeners }
}

fn of_daemons(
    option: &'static str,
    endpoint: DaemonEndpoint,
    certificate: Option<Arc<Certificate>>,
    conditions: &Conditions,
) -> Listener {
    let DaemonEndpoint { address, places, exported } = endpoint;
    let metrics = Measurements::OfDaemons(Exporter::start(&places, exported));
    let pages = Arc::new(Pages { conditions: conditions.clone(), metrics });
    Listener { option, address, certificate, pages }
}

#[cfg(test)]
mod tests;
