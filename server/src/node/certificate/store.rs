//! The file with the private key and the certificate. Both are in one file, which is replaced as a
//! whole: after a power failure they belong together, the old ones or the new ones. Name and form
//! are those of upstream's certificate store, so a node that changes programs keeps its
//! certificate.

use std::{
    fs::{self, DirBuilder},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use contract::node_identity;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{Decode as _, oid::db::rfc4519::COMMON_NAME},
};

use super::{request::Issued, rotation};
use crate::atomic_file;

const FILE: &str = "ovnkube-client-current.pem";
/// Of the file: it has a private key.
const MODE: u32 = 0o600;
/// Of a directory that is made for it.
const DIRECTORY_MODE: u32 = 0o700;
/// The largest file that is read. A chain of four certificates has some 8 kB.
const LARGEST: u64 = 1 << 20;

/// The file in `directory`.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// The file of one node's certificate.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    /// The user that the certificate has to be of.
    user: String,
}

/// A certificate that can be used.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Current {
    /// From when on it was used.
    since: SystemTime,
    until: SystemTime,
    /// Of its bytes, from 0 to 1.
    draw: f64,
}

/// Why the file does not have a certificate that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    #[error("there is none")]
    Absent,
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("it is not a certificate with its private key: {0}")]
    Malformed(&'static str),
    #[error("it is of user {found:?}, and this node's server is {wanted:?}")]
    OtherUser { found: String, wanted: String },
    #[error("it has expired")]
    Expired,
}

/// Why a new certificate was not stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error("write {path:?}")]
    Write {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

impl Store {
    pub(super) fn new(directory: &Path, node: &str) -> Self {
        Self { path: path(directory), user: node_identity::user(node) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The certificate in the file.
    ///
    /// # Errors
    ///
    /// There is none, or none that can be used at the time `now`.
    pub(super) fn read(&self, now: SystemTime) -> Result<Current, Unusable> {
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Unusable::Absent,
            _ => Unusable::Unreadable(error.to_string()),
        };
        let facts = fs::metadata(&self.path).map_err(unreadable)?;
        if facts.len() > LARGEST {
            return Err(Unusable::Malformed("it is too large"));
        }
        let pem = fs::read(&self.path).map_err(unreadable)?;
        // Signers date certificates back. The file is as old as the certificate, unless it was
        // copied.
        let stored = facts.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        self.judge(&pem, stored, now)
    }

    /// Replaces the file, and returns what is in it now. A certificate that could not be used
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// It is not this node's, has expired, does not fit its key, or cannot be written.
    pub(super) fn write(&self, issued: &Issued, now: SystemTime) -> Result<Current, WriteError> {
        let pem = issued.to_pem();
        let current = self.judge(pem.as_bytes(), now, now)?;
        let failed = |error| WriteError::Write { path: self.path.clone(), error };
        if let Some(directory) = self.path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(DIRECTORY_MODE)
                .create(directory)
                .map_err(failed)?;
        }
        atomic_file::replace(&self.path, pem.as_bytes(), MODE).map_err(failed)?;
        Ok(current)
    }

    /// `stored`: when the certificate was written.
    fn judge(&self, pem: &[u8], stored: SystemTime, now: SystemTime) -> Result<Current, Unusable> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let chain = chain.map_err(|_| Unusable::Malformed("it is not in the form of PEM"))?;
        let key = PrivateKeyDer::from_pem_slice(pem)
            .map_err(|_| Unusable::Malformed("there is no private key in it"))?;
        let Some(own) = chain.first() else {
            return Err(Unusable::Malformed("there is no certificate in it"));
        };
        let draw = draw(own);
        // `Raw`: any serial number, as rustls takes them.
        let certificate = CertificateInner::<Raw>::from_der(own)
            .map_err(|_| Unusable::Malformed("the certificate is not in the form of X.509"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(|_| Unusable::Malformed("the private key does not fit the certificate"))?;
        let certificate = certificate.tbs_certificate();
        let mut names =
            certificate.subject().iter().filter(|attribute| attribute.oid == COMMON_NAME);
        let found =
            names.next().map(|name| String::from_utf8_lossy(name.value.value()).into_owned());
        let found = found.filter(|_| names.next().is_none()).unwrap_or_default();
        if found != self.user {
            return Err(Unusable::OtherUser { found, wanted: self.user.clone() });
        }
        let moment = |time: x509_cert::time::Time| {
            SystemTime::UNIX_EPOCH.checked_add(time.to_unix_duration())
        };
        let validity = certificate.validity();
        let (Some(from), Some(until)) = (moment(validity.not_before), moment(validity.not_after))
        else {
            return Err(Unusable::Malformed("its validity cannot be represented"));
        };
        if until <= now {
            return Err(Unusable::Expired);
        }
        // One that is valid from later on only is used: the clock of the API server decides.
        let since = if (from..until).contains(&stored) { stored } else { from };
        Ok(Current { since, until, draw })
    }
}

impl Current {
    /// When it has to be renewed.
    pub(super) fn due(&self) -> SystemTime {
        rotation::due(self.since, self.until, self.draw)
    }

    /// When it expires.
    pub(super) fn until(&self) -> SystemTime {
        self.until
    }

    /// How long it is still valid.
    pub(super) fn left(&self, now: SystemTime) -> Duration {
        self.until.duration_since(now).unwrap_or_default()
    }
}

/// A number from 0 to 1 that belongs to the certificate.
fn draw(certificate: &CertificateDer<'_>) -> f64 {
    let mut hasher = DefaultHasher::new();
    certificate.hash(&mut hasher);
    let part = u32::try_from(hasher.finish() % 1001).unwrap_or_default();
    f64::from(part) / 1000.0
}

#[cfg(test)]
mod tests;
