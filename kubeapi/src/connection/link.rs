//! One set of material at work: connections with its TLS settings, requests with its headers. It never changes; another one replaces it.

use std::time::Duration;

use hyper::{Request, Response, body::Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::client::{Body, ConfigExt};
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

use super::material::{Material, MaterialError, Origin};
use crate::trouble::innermost;

/// How long a TCP connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// A connection without traffic is probed after this long, and given up after as long again without an answer.
const PROBE: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;

pub(super) struct Link {
    transport: BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>,
    pub(super) origin: Origin,
    /// How many were there before.
    pub(super) number: u64,
}

impl Link {
    pub(super) fn new(material: Material, number: u64) -> Result<Self, MaterialError> {
        let Material { config, origin } = material;
        // Whoever was first has installed the same one: there is no other in this program.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |error: kube::Error| MaterialError::Tls(format!("{} with {}", origin.credential, origin.authority), innermost(&error));

        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(PROBE));
        tcp.set_keepalive_interval(Some(PROBE / PROBES));
        tcp.set_keepalive_retries(Some(PROBES));
        tcp.set_tcp_user_timeout(Some(2 * PROBE));
        let connector = config.rustls_https_connector_with_connector(tcp).map_err(failed)?;
        let transport = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().map_err(failed)?)
            .layer(config.extra_headers_layer().map_err(failed)?)
            .map_err(BoxError::from)
            .service(Client::builder(TokioExecutor::new()).build(connector));
        Ok(Self { transport: BoxCloneSyncService::new(transport), origin, number })
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        self.transport.clone().oneshot(request).await
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("number", &self.number).field("origin", &self.origin).finish_non_exhaustive()
    }
}
