//! What is served over TCP for those who watch the server: measurements and health.

use std::{net::SocketAddr, path::PathBuf};

/// Where, if anywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// `/metrics`, `/healthz`, `/readyz`
    pub metrics: Option<SocketAddr>,
    /// `/healthz`, `/readyz`
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
