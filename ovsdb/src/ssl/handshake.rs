//! The TLS handshake over a TCP connection, and the translation of its errors.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use time::OffsetDateTime;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, AlertDescription, CertificateError, ClientConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, ServerName, UnixTime},
        sign::{CertifiedKey, SingleCertAndKey},
    },
};

use super::{
    MissingAuthority, Ssl, bootstrap,
    certificate::shown,
    material::Material,
    verify::{Demand, Verifier},
};
use crate::{
    error::{ConnectFault, SslError, SslFile},
    tcp,
};

/// Connects, and verifies the server.
pub(crate) async fn connect(host: &str, port: u16, ssl: &Ssl) -> Result<Secured, ConnectFault> {
    let provider = Arc::new(ring::default_provider());
    let Material { identity, authorities } = read(ssl, &provider).await?;
    let authorities = match authorities {
        Some(authorities) => authorities,
        None => match ssl.missing_authority {
            MissingAuthority::Refuse => return Err(missing(ssl).into()),
            MissingAuthority::Bootstrap => {
                // On a connection of its own. The next one verifies the server with the file, as
                // all later ones.
                bootstrap(host, port, ssl, &provider, identity.clone()).await?;
                read(ssl, &provider).await?.authorities.ok_or_else(|| missing(ssl))?
            }
        },
    };
    let demand = Demand::Signed { authorities, name: ssl.common_name.clone() };
    let stream = shake_hands(host, port, ssl, configuration(demand, identity, &provider)?).await?;
    Ok(Secured { stream, ssl: ssl.clone() })
}

async fn read(ssl: &Ssl, provider: &Arc<CryptoProvider>) -> Result<Material, SslError> {
    let (ssl, provider) = (ssl.clone(), Arc::clone(provider));
    blocking(move || Material::read(&ssl, &provider)).await
}

fn missing(ssl: &Ssl) -> SslError {
    SslError::Read {
        file: SslFile::Authority,
        path: ssl.authority.clone(),
        error: io::ErrorKind::NotFound.into(),
    }
}

/// Writes the server's authority to the CA file. The connection for it is closed after the
/// handshake: nothing is sent to an unverified server.
async fn bootstrap(
    host: &str,
    port: u16,
    ssl: &Ssl,
    provider: &Arc<CryptoProvider>,
    identity: Option<Arc<CertifiedKey>>,
) -> Result<(), ConnectFault> {
    let seen = Arc::<Mutex<Vec<CertificateDer<'static>>>>::default();
    let configuration =
        configuration(Demand::Nothing { seen: Arc::clone(&seen) }, identity, provider)?;
    drop(shake_hands(host, port, ssl, configuration).await?);
    let chain = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let authority = bootstrap::authority(&chain, &provider.signature_verification_algorithms)
        .map_err(|problem| SslError::Bootstrap { authority: ssl.authority.clone(), problem })?
        .clone();
    let path = ssl.authority.clone();
    blocking(move || bootstrap::write(&path, &authority)).await?;
    tracing::warn!(
        server = format!("ssl:{host}:{port}"),
        file = %ssl.authority.display(),
        "CA file was missing: the authority of the first server that answered is trusted from now on"
    );
    Ok(())
}

fn configuration(
    demand: Demand,
    identity: Option<Arc<CertifiedKey>>,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientConfig, SslError> {
    let verifier = Verifier { demand, algorithms: provider.signature_verification_algorithms };
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| SslError::Protocol(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    Ok(match identity {
        Some(identity) => {
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
        }
        None => builder.with_no_client_auth(),
    })
}

async fn shake_hands(
    host: &str,
    port: u16,
    ssl: &Ssl,
    configuration: ClientConfig,
) -> Result<TlsStream<TcpStream>, ConnectFault> {
    // rustls needs a name for SNI; the verifier ignores it.
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| SslError::Protocol(format!("{host:?} is no name of a host")))?;
    let tcp = tcp::connect(host, port).await?;
    let shaken = TlsConnector::from(Arc::new(configuration)).connect(name, tcp).await;
    shaken.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => SslError::Ended.into(),
        _ => match fault(&error, ssl) {
            Some(fault) => ConnectFault::Ssl(fault),
            None => ConnectFault::Io(error),
        },
    })
}

/// The error of rustls behind an I/O error, translated; `None` for other I/O errors.
fn fault(error: &io::Error, ssl: &Ssl) -> Option<SslError> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        rustls::Error::InvalidCertificate(error) => certificate_fault(error, ssl),
        rustls::Error::AlertReceived(alert) => alert_fault(*alert, ssl),
        rustls::Error::InvalidMessage(_) => SslError::NoTls,
        error => SslError::Protocol(error.to_string()),
    })
}

fn certificate_fault(error: &CertificateError, ssl: &Ssl) -> SslError {
    match error {
        CertificateError::ExpiredContext { not_after, .. } => {
            SslError::ServerExpired { at: at(*not_after) }
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            SslError::ServerNotYetValid { at: at(*not_before) }
        }
        // `BadSignature`: the file has an authority of the same name with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            SslError::WrongAuthority { authority: ssl.authority.clone() }
        }
        CertificateError::Other(other) => match other.0.downcast_ref() {
            Some(SslError::WrongName { wanted, presented }) => {
                SslError::WrongName { wanted: wanted.clone(), presented: presented.clone() }
            }
            _ => SslError::ServerCertificate(other.0.to_string()),
        },
        error => SslError::ServerCertificate(error.to_string()),
    }
}

fn alert_fault(alert: AlertDescription, ssl: &Ssl) -> SslError {
    use AlertDescription as A;
    match (alert, &ssl.identity) {
        // OpenSSL sends `HandshakeFailure` for a missing certificate in TLS 1.2.
        (A::CertificateRequired | A::BadCertificate | A::HandshakeFailure, None) => {
            SslError::CertificateWanted
        }
        (
            A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::CertificateRequired
            | A::UnknownCA
            | A::AccessDenied
            | A::DecryptError,
            Some(identity),
        ) => SslError::Refused {
            certificate: identity.certificate.clone(),
            alert: format!("{alert:?}"),
        },
        (alert, _) => SslError::Alert(format!("{alert:?}")),
    }
}

fn at(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).ok();
    seconds
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .map_or_else(|| "an unknown time".to_owned(), shown)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SslError> + Send + 'static,
) -> Result<T, SslError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(SslError::Protocol(error.to_string())),
    }
}

/// A TLS stream with translated errors. The handshake cannot report all of them: in TLS 1.3 a
/// server refuses the client's certificate after the client's handshake is complete.
pub(crate) struct Secured {
    stream: TlsStream<TcpStream>,
    ssl: Ssl,
}

impl Secured {
    fn explain<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        result.map_err(|error| fault(&error, &self.ssl).map_or(error, io::Error::other))
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.explain(result)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.explain(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.explain(result)
    }

    /// Sends `close_notify` first.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.explain(result)
    }
}
