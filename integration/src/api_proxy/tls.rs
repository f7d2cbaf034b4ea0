//! Both ends of TLS: towards clients as the API server, towards the API server as a client without
//! a certificate.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use crate::cluster::Credentials;

/// The server side, with the API server's own certificate.
pub(super) fn acceptor(credentials: &Credentials) -> Result<TlsAcceptor> {
    let file = credentials.server_certificate();
    let chain = CertificateDer::pem_file_iter(&file)
        .and_then(Iterator::collect)
        .with_context(|| format!("read {}", file.display()))?;
    let file = credentials.server_key();
    let key =
        PrivateKeyDer::from_pem_file(&file).with_context(|| format!("read {}", file.display()))?;
    let config =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key)?)))
}

/// The client side, which trusts the cluster's authority.
pub(super) fn connector(credentials: &Credentials) -> Result<TlsConnector> {
    let file = credentials.authority();
    let mut roots = RootCertStore::empty();
    roots.add(
        CertificateDer::from_pem_file(&file).with_context(|| format!("read {}", file.display()))?,
    )?;
    let config =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
