//! The certificate of an address, as its files are now.
//!
//! Every connection compares the files with those that were read last (device, inode, size, mtime).
//! A renewed certificate is used from the next connection on, whether its file was written,
//! renamed, or is behind the symbolic link that the kubelet switches when it updates a mounted
//! Secret.

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

/// PEM files, and the TLS acceptor made of them.
#[derive(Debug)]
pub(super) struct Certificate {
    files: Tls,
    read: Mutex<Option<Read>>,
}

/// The files as they were read, and the last acceptor that could be made.
struct Read {
    stamps: [Option<Stamp>; 2],
    acceptor: Option<TlsAcceptor>,
}

impl std::fmt::Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Read").field("usable", &self.acceptor.is_some()).finish_non_exhaustive()
    }
}

/// Shows without reading it that a file has changed.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds of the last modification.
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

    /// The acceptor for the certificate as it is now. If that cannot be used, the acceptor for the
    /// last usable one, if any. Blocks: it reads files.
    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        let Tls { key, certificate } = &self.files;
        // Before the files are read: if they change meanwhile, the next connection reads them
        // again.
        let stamps = [Stamp::of(key), Stamp::of(certificate)];
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = read.as_ref().filter(|read| read.stamps == stamps) {
            return read.acceptor.clone();
        }
        let before = read.take().and_then(|read| read.acceptor);
        let acceptor = match self.load() {
            Ok(config) => {
                tracing::info!(
                    certificate = %certificate.display(),
                    again = before.is_some(),
                    "read the certificate of --metrics-bind-address"
                );
                Some(TlsAcceptor::from(Arc::new(config)))
            }
            Err(error) => {
                tracing::error!(
                    error = crate::chain(&error),
                    older = before.is_some(),
                    hint = "see --node-server-privkey and --node-server-cert; \
                            the files are read again when they change",
                    "the certificate of --metrics-bind-address cannot be used"
                );
                // Two files are never replaced at once: between the two, key and certificate do not
                // match.
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
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(file_error(certificate))?;
        if chain.is_empty() {
            return Err(CertificateError::Empty(certificate.clone()));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(file_error(key))?;
        let pair = |source| CertificateError::Pair {
            key: key.clone(),
            certificate: certificate.clone(),
            source,
        };
        // rustls checks that key and certificate belong together.
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
            .map_err(pair)
    }
}

impl Stamp {
    /// `None` if there is no such file; the attempt to read it has the reason.
    fn of(file: &Path) -> Option<Self> {
        let look: io::Result<fs::Metadata> = fs::metadata(file);
        let metadata = look.ok()?;
        // Of the inode: a program that writes in place may set the modification time back.
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Some(Self { device: metadata.dev(), inode: metadata.ino(), size: metadata.size(), changed })
    }
}
