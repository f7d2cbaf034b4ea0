//! The certificate of an address, as its files are now.
//!
//! Every connection looks whether the files are others than those that were read (device, inode, size, time of change), so that a
//! renewed certificate is used from the next connection on, however it was put there: written, renamed, or by the link that Kubernetes
//! turns when it updates a mounted Secret.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

use super::Tls;

/// Files of PEM, and what was made of them.
#[derive(Debug)]
pub(super) struct Certificate {
    files: Tls,
    read: Mutex<Option<Read>>,
}

/// What the files were, and the last thing that could be made of them.
struct Read {
    stamps: [Option<Stamp>; 2],
    acceptor: Option<TlsAcceptor>,
}

impl std::fmt::Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Read").field("usable", &self.acceptor.is_some()).finish_non_exhaustive()
    }
}

/// What tells one content of a file from another without reading it.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("{file:?}")]
    File { file: PathBuf, source: pem::Error },
    #[error("{0:?} holds no certificate")]
    Empty(PathBuf),
    #[error("key {key:?} with certificate {certificate:?}")]
    Pair { key: PathBuf, certificate: PathBuf, source: rustls::Error },
}

impl Certificate {
    pub(super) fn of(files: Tls) -> Self {
        Self { files, read: Mutex::new(None) }
    }

    /// What accepts connections with the certificate as it is now; if it cannot be used, with the one before, if there was one.
    /// Reads files, so it blocks.
    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        let Tls { key, certificate } = &self.files;
        let stamps = [Stamp::of(key), Stamp::of(certificate)];
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = read.as_ref().filter(|read| read.stamps == stamps) {
            return read.acceptor.clone();
        }
        let before = read.take().and_then(|read| read.acceptor);
        let acceptor = match self.load() {
            Ok(config) => {
                tracing::info!(certificate = %certificate.display(), again = before.is_some(), "read the certificate of --metrics-bind-address");
                Some(TlsAcceptor::from(Arc::new(config)))
            }
            Err(error) => {
                tracing::error!(
                    error = crate::chain(&error),
                    older = before.is_some(),
                    hint = "see --node-server-privkey and --node-server-cert; the files are read again when they change",
                    "the certificate of --metrics-bind-address cannot be used"
                );
                before
            }
        };
        *read = Some(Read { stamps, acceptor: acceptor.clone() });
        acceptor
    }

    fn load(&self) -> Result<ServerConfig, CertificateError> {
        let Tls { key, certificate } = &self.files;
        let file_error = |file: &Path| {
            let file = file.to_owned();
            move |source| CertificateError::File { file, source }
        };
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect).map_err(file_error(certificate))?;
        if chain.is_empty() {
            return Err(CertificateError::Empty(certificate.clone()));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(file_error(key))?;
        let pair = |source| CertificateError::Pair { key: key.clone(), certificate: certificate.clone(), source };
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(pair)
    }
}

impl Stamp {
    /// None if the file cannot be looked at: reading it will say why.
    fn of(file: &Path) -> Option<Self> {
        let look: io::Result<fs::Metadata> = fs::metadata(file);
        let metadata = look.ok()?;
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Some(Self { device: metadata.dev(), inode: metadata.ino(), size: metadata.size(), changed })
    }
}
