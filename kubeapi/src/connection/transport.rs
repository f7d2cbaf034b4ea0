//! A transport with one configuration: connections with its TLS settings, requests with its
//! headers. It never changes; a new configuration makes a new transport.

use std::time::Duration;

use hyper::{Request, Response, body::Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::client::{Body, ConfigExt};
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxCloneSyncService};

use super::{
    config::{ConnectionConfig, ConnectionConfigError, Provenance},
    failure::innermost,
};

/// How long a TCP handshake may take. Linux repeats a SYN after 1, 3 and 7 s, so lost packets are
/// survived; a tenth of this fails after the first loss, ten times as much blocks each request for
/// minutes while the API server's host is down.
const CONNECT: Duration = Duration::from_secs(10);
/// A connection without traffic is probed after 15 s, three times, and is closed after another 15 s
/// without an answer. A watch may be silent for a minute, so only probes find a dead host or a flow
/// that a balancer has dropped. Ten times as much would be later than the watch's own limit (90 s);
/// a tenth of it would be a packet every second or two for each idle connection.
const PROBE: Duration = Duration::from_secs(15);
/// Unanswered probes after which a connection is dead: one lost packet must not end a watch, and
/// each further probe delays the end by [`PROBE`] or a part of it.
const PROBES: u32 = 3;

pub(super) struct Transport {
    transport: BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>,
    pub(super) origin: Provenance,
    /// The number of transports before this one.
    pub(super) number: u64,
}

impl Transport {
    pub(super) fn new(
        config: ConnectionConfig,
        number: u64,
    ) -> Result<Self, ConnectionConfigError> {
        let ConnectionConfig { config, origin } = config;
        // Fails if a provider is installed already; it is the same one, for this program has no
        // other.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |error: kube::Error| {
            ConnectionConfigError::Tls(
                format!("{} with {}", origin.credential, origin.authority),
                innermost(&error),
            )
        };

        let mut tcp = HttpConnector::new();
        // The connector accepts `https` URLs; TLS is a layer above it.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(PROBE));
        tcp.set_keepalive_interval(Some(PROBE / PROBES));
        tcp.set_keepalive_retries(Some(PROBES));
        // Data that is sent but not acknowledged suspends keepalive probes (tcp(7),
        // `TCP_USER_TIMEOUT`): without this limit, such a connection lives for about 15 minutes.
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

    pub(super) async fn send(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, BoxError> {
        self.transport.clone().oneshot(request).await
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("number", &self.number)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
