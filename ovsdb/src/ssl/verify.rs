//! Verifies a server's certificate: its signature and, if configured, its name.

use std::sync::{Arc, Mutex, PoisonError};

use time::OffsetDateTime;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::{
    certificate::{Facts, Validity},
    material::Authorities,
};
use crate::error::SslError;

/// rustls's verifier of server certificates.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) demand: Demand,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
pub(super) enum Demand {
    /// The certificate has to be signed by one of these authorities and have this name, if there is
    /// one.
    Signed { authorities: Authorities, name: Option<String> },
    /// Every certificate is accepted. The chain is recorded, the server's own certificate first.
    Nothing { seen: Arc<Mutex<Vec<CertificateDer<'static>>>> },
}

impl ServerCertVerifier for Verifier {
    /// Ignores the host name: certificates of ovs-pki(8) do not have it.
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.demand {
            Demand::Signed { authorities, name } => {
                verify_chain(authorities, &self.algorithms, own, between, now)?;
                if let Some(name) = name {
                    verify_name(name, own)?;
                }
            }
            Demand::Nothing { seen } => {
                let chain = std::iter::once(own)
                    .chain(between)
                    .map(|certificate| certificate.clone().into_owned());
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = chain.collect();
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Verifies that an authority signed the chain. A certificate that is itself in the CA file needs
/// no signature: a self-signed server certificate is an end entity and an authority at once, which
/// the usual rules for chains reject.
pub(super) fn verify_chain(
    authorities: &Authorities,
    algorithms: &WebPkiSupportedAlgorithms,
    own: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(own)?;
    if authorities.certificates.iter().any(|certificate| certificate == own) {
        return verify_validity(own, now);
    }
    verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &authorities.roots,
        between,
        now,
        algorithms.all,
    )
}

fn verify_validity(own: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    match Facts::of(own).map(|facts| facts.validity(at)) {
        Some(Validity::Valid) => Ok(()),
        Some(Validity::Expired) => Err(CertificateError::Expired.into()),
        Some(Validity::NotYet) => Err(CertificateError::NotValidYet.into()),
        None => Err(CertificateError::BadEncoding.into()),
    }
}

fn verify_name(wanted: &str, own: &CertificateDer<'_>) -> Result<(), Error> {
    // A wanted name that is neither a DNS name nor an address can only be the common name.
    let mut presented = Vec::new();
    if let Ok(name) = ServerName::try_from(wanted) {
        match verify_server_name(&ParsedCertificate::try_from(own)?, &name) {
            Ok(()) => return Ok(()),
            Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented: names,
                ..
            })) => presented = names,
            Err(_) => {}
        }
    }
    let common_name = Facts::of(own).and_then(|facts| facts.common_name());
    if common_name.as_deref() == Some(wanted) {
        return Ok(());
    }
    presented.extend(common_name);
    let error = SslError::WrongName { wanted: wanted.to_owned(), presented };
    Err(CertificateError::Other(OtherError(Arc::new(error))).into())
}
