//! Why an `ssl:` connection failed. Names the file or the peer at fault; never contains key
//! material.

use std::{fmt, io, path::PathBuf};

/// What is wrong with a file, with the server's certificate, or with the connection.
#[derive(Debug, thiserror::Error)]
pub enum SslError {
    #[error("this program was built without connections by ssl")]
    NotBuiltIn,
    #[error("no certificates are configured for connections by ssl")]
    NotConfigured,
    #[error("{file} {path:?} cannot be read")]
    Read {
        file: SslFile,
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// The contents are not quoted: they may be a key.
    #[error("{file} {path:?} is not in the form of PEM")]
    NotPem { file: SslFile, path: PathBuf },
    #[error("{file} {path:?} holds no {wanted}")]
    Nothing { file: SslFile, path: PathBuf, wanted: &'static str },
    #[error("{file} {path:?} is encrypted with a passphrase, which is not supported")]
    Encrypted { file: SslFile, path: PathBuf },
    #[error("{file} {path:?} cannot be used: {problem}")]
    Unusable { file: SslFile, path: PathBuf, problem: String },
    #[error("private key {private_key:?} does not belong to certificate {certificate:?}")]
    OtherKey { private_key: PathBuf, certificate: PathBuf },
    #[error("{file} {path:?} expired at {at}")]
    Expired { file: SslFile, path: PathBuf, at: String },
    #[error("{file} {path:?} is not valid before {at}: is this host's clock right?")]
    NotYetValid { file: SslFile, path: PathBuf, at: String },

    #[error("the server's certificate expired at {at}")]
    ServerExpired { at: String },
    #[error("the server's certificate is not valid before {at}: is this host's clock right?")]
    ServerNotYetValid { at: String },
    #[error("the server's certificate is not signed by any authority in {authority:?}")]
    WrongAuthority { authority: PathBuf },
    #[error(
        "the server's certificate is not for the name {wanted:?}, but for {}",
        names(presented)
    )]
    WrongName { wanted: String, presented: Vec<String> },
    #[error("the server's certificate cannot be used: {0}")]
    ServerCertificate(String),

    #[error("the server asks for a certificate, and none is configured")]
    CertificateWanted,
    #[error("the server refuses certificate {certificate:?}: {alert}")]
    Refused { certificate: PathBuf, alert: String },
    #[error("the server ended the connection with the alert {0}")]
    Alert(String),
    #[error(
        "the server ended the connection before it was secured: \
         does it listen with pssl, and with a certificate?"
    )]
    Ended,
    #[error("the server does not speak TLS: does it listen with pssl?")]
    NoTls,
    #[error("TLS: {0}")]
    Protocol(String),

    #[error("CA file {authority:?} is missing, and cannot be learned from the server: {problem}")]
    Bootstrap { authority: PathBuf, problem: String },
    #[error("CA file {path:?} cannot be written")]
    Write {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

/// Which of the configured files an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslFile {
    PrivateKey,
    Certificate,
    Authority,
}

impl fmt::Display for SslFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PrivateKey => "private key",
            Self::Certificate => "certificate",
            Self::Authority => "CA file",
        })
    }
}

/// The names of a server's certificate, quoted: a server can put any characters into them.
fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        "none".to_owned()
    } else {
        presented.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    }
}
