//! The API server of Kubernetes: how it is reached, and with which credentials.

use std::path::PathBuf;

use secrecy::SecretString;

/// How to reach the API server.
#[derive(Debug, Clone)]
pub struct ApiServer {
    pub cluster: Cluster,
    /// Wins over what a kubeconfig says of the user.
    pub credential: Option<Credential>,
}

/// Where it is, and how it is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cluster {
    /// Server, authority and user, as kubectl reads them.
    Kubeconfig(PathBuf),
    /// `url`: with `http` or `https`. Without an authority the system's are trusted.
    Url { url: String, authority: Option<Authority> },
}

/// Who signed the API server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// A file of PEM, read again when it changes.
    File(PathBuf),
    /// The PEM itself (`external_ids:k8s-ca-certificate`).
    Pem(String),
}

/// Who this server is to the API server.
#[derive(Debug, Clone)]
pub enum Credential {
    Token(SecretString),
    /// Read again when it changes and when the API server refuses it; whitespace around the token does not count.
    TokenFile(PathBuf),
    /// PEM; both may be the same file. Read again when it changes.
    Certificate {
        certificate: PathBuf,
        key: PathBuf,
    },
}
