//! Reads the key and certificate files. Does not know when to read them, and does not know servers.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use time::OffsetDateTime;
use tokio_rustls::rustls::{
    self, InconsistentKeys, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};

use super::{
    Identity, Ssl,
    certificate::{Facts, Validity, shown},
};
use crate::error::{SslError, SslFile};

/// The validated contents of the files.
pub(super) struct Material {
    pub(super) identity: Option<Arc<CertifiedKey>>,
    /// `None` if the CA file does not exist.
    pub(super) authorities: Option<Authorities>,
}

/// The trusted authorities.
#[derive(Debug)]
pub(super) struct Authorities {
    pub(super) roots: RootCertStore,
    /// The certificates of the same authorities, to compare with a server's own certificate.
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

impl Material {
    /// Reads and validates the files. Blocks.
    pub(super) fn read(ssl: &Ssl, provider: &CryptoProvider) -> Result<Self, SslError> {
        let identity =
            ssl.identity.as_ref().map(|identity| read_identity(identity, provider)).transpose()?;
        let path = &ssl.authority;
        let authorities = match read(SslFile::Authority, path) {
            Err(SslError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => None,
            pem => Some(Authorities::from_pem(&pem?, path)?),
        };
        Ok(Self { identity: identity.map(Arc::new), authorities })
    }
}

impl Authorities {
    /// The valid authorities of a file. Certificates that have expired or are not valid yet are
    /// ignored; if there is no other, the last one's error is returned.
    fn from_pem(pem: &[u8], path: &Path) -> Result<Self, SslError> {
        let file = SslFile::Authority;
        let mut authorities = Self { roots: RootCertStore::empty(), certificates: Vec::new() };
        let mut unusable = None;
        for certificate in certificates(file, path, pem)? {
            match check_validity(file, path, &certificate) {
                Ok(()) => {
                    let added = authorities.roots.add(certificate.clone());
                    added.map_err(|error| SslError::Unusable {
                        file,
                        path: path.to_owned(),
                        problem: error.to_string(),
                    })?;
                    authorities.certificates.push(certificate);
                }
                Err(error) => unusable = Some(error),
            }
        }
        match unusable {
            Some(error) if authorities.certificates.is_empty() => Err(error),
            Some(error) => {
                tracing::warn!(%error, "ignoring a CA certificate");
                Ok(authorities)
            }
            None => Ok(authorities),
        }
    }

    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone().into_owned())?;
        Ok(Self { roots, certificates: vec![certificate.clone().into_owned()] })
    }
}

fn read_identity(
    Identity { private_key, certificate }: &Identity,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, SslError> {
    let file = SslFile::Certificate;
    let chain = certificates(file, certificate, &read(file, certificate)?)?;
    for link in &chain {
        check_validity(file, certificate, link)?;
    }
    let key = read_key(private_key)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => SslError::OtherKey {
            private_key: private_key.clone(),
            certificate: certificate.clone(),
        },
        rustls::Error::InvalidCertificate(error) => {
            SslError::Unusable { file, path: certificate.clone(), problem: format!("{error:?}") }
        }
        error => SslError::Unusable {
            file: SslFile::PrivateKey,
            path: private_key.clone(),
            problem: error.to_string(),
        },
    })
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, SslError> {
    let file = SslFile::PrivateKey;
    let pem = read(file, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        let path = path.to_owned();
        // In the header of PKCS#8 (`BEGIN ENCRYPTED PRIVATE KEY`), or in the older `Proc-Type:
        // 4,ENCRYPTED`.
        if String::from_utf8_lossy(&pem).contains("ENCRYPTED") {
            return SslError::Encrypted { file, path };
        }
        match error {
            pem::Error::NoItemsFound => nothing(file, path, "private key", &pem),
            _ => SslError::NotPem { file, path },
        }
    })
}

fn certificates(
    file: SslFile,
    path: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, SslError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(nothing(file, path.to_owned(), "certificate", pem)),
        Ok(found) => Ok(found),
        Err(_) => Err(SslError::NotPem { file, path: path.to_owned() }),
    }
}

/// The error for a file without the wanted item: it has other PEM items or is empty, or it is not
/// PEM.
fn nothing(file: SslFile, path: PathBuf, wanted: &'static str, pem: &[u8]) -> SslError {
    if String::from_utf8_lossy(pem).contains("-----BEGIN ") || pem.trim_ascii().is_empty() {
        SslError::Nothing { file, path, wanted }
    } else {
        SslError::NotPem { file, path }
    }
}

fn check_validity(
    file: SslFile,
    path: &Path,
    certificate: &CertificateDer<'_>,
) -> Result<(), SslError> {
    let path = path.to_owned();
    let Some(facts) = Facts::of(certificate) else {
        return Err(SslError::Unusable {
            file,
            path,
            problem: "a certificate in it makes no sense".to_owned(),
        });
    };
    match facts.validity(OffsetDateTime::now_utc()) {
        Validity::Valid => Ok(()),
        Validity::Expired => Err(SslError::Expired { file, path, at: shown(facts.not_after) }),
        Validity::NotYet => Err(SslError::NotYetValid { file, path, at: shown(facts.not_before) }),
    }
}

fn read(file: SslFile, path: &Path) -> Result<Vec<u8>, SslError> {
    fs::read(path).map_err(|error| SslError::Read { file, path: path.to_owned(), error })
}
