//! The configuration of a connection: address, authorities and credentials, as the files say now.
//! Does not decide when to read.
//!
//! No error contains a byte of what was read, as that includes tokens and keys.

use std::{
    fmt::Debug,
    fs,
    hash::{BuildHasher, RandomState},
    io,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::Uri;
use kube::{Config, config::AuthInfo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use secrecy::{ExposeSecret, SecretString};

use super::{ApiServer, Authority, Cluster, Credential, kubeconfig::Kubeconfig};

/// All that a connection needs, in kube's form.
#[derive(Debug)]
pub struct ConnectionConfig {
    pub config: Config,
    pub origin: Provenance,
}

/// The origin of the configuration, for messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    /// Scheme, host and port.
    pub url: String,
    /// The authorities that may sign the API server's certificate.
    pub authority: String,
    /// The credentials in use.
    pub credential: String,
    /// The API server's certificate is not verified: any host on the path can pose as the API
    /// server.
    pub is_unverified: bool,
}

/// Why no connection can be made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectionConfigError {
    #[error("{what} {path:?}: {problem}")]
    Read { what: &'static str, path: PathBuf, problem: String },
    #[error("{what} {origin}: {problem}")]
    Content { what: &'static str, origin: String, problem: String },
    #[error("URL of the API server {0:?}: it has to be http://HOST:PORT or https://HOST:PORT")]
    Url(String),
    #[error("kubeconfig {path:?}: {problem}")]
    Kubeconfig { path: PathBuf, problem: String },
    #[error("{0} cannot be used for TLS: {1}")]
    Tls(String, String),
}

/// A source of files.
pub trait Files: Debug {
    /// The content of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// The files of this machine.
#[derive(Debug)]
pub struct OnDisk;

impl Files for OnDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }
}

/// Reads files, and remembers each one with a hash of its content.
#[derive(Debug)]
pub struct Reader<'a> {
    files: &'a dyn Files,
    seed: RandomState,
    /// Each file that was read, or that could not be, with a hash of its content or error.
    pub(super) seen: Vec<(PathBuf, u64)>,
}

impl<'a> Reader<'a> {
    /// A reader. Readers with the same seed give the same content the same hash.
    pub fn new(files: &'a dyn Files, seed: RandomState) -> Self {
        Self { files, seed, seen: Vec::new() }
    }

    pub(super) fn read(
        &mut self,
        what: &'static str,
        path: &Path,
    ) -> Result<Vec<u8>, ConnectionConfigError> {
        let content = self.files.read(path);
        let hash = self.seed.hash_one(content.as_ref().map_err(io::Error::kind));
        self.seen.push((path.to_owned(), hash));
        content.map_err(|error| {
            let later = if error.kind() == io::ErrorKind::NotFound {
                "; it is read as soon as it is there"
            } else {
                ""
            };
            ConnectionConfigError::Read {
                what,
                path: path.to_owned(),
                problem: format!("{error}{later}"),
            }
        })
    }
}

/// A PEM text, and its origin.
pub(super) struct Pem {
    pub(super) bytes: Vec<u8>,
    pub(super) origin: String,
}

impl ConnectionConfig {
    /// Reads all files that `api_server` names.
    ///
    /// # Errors
    ///
    /// A file cannot be read, its content is not of the expected form, or the URL is not `http` or
    /// `https`. TLS settings are checked later, when a transport is made.
    pub fn read(
        api_server: &ApiServer,
        reader: &mut Reader<'_>,
    ) -> Result<Self, ConnectionConfigError> {
        let ApiServer { cluster, credential } = api_server;
        let mut config = match cluster {
            Cluster::Kubeconfig(path) => {
                let kubeconfig = Kubeconfig::read(path, reader)?;
                let mut config = kubeconfig.config(reader)?;
                // With credentials from an option, the kubeconfig's user is not read: its files may
                // be missing.
                if credential.is_none() {
                    kubeconfig.present_user(&mut config, reader)?;
                }
                config
            }
            Cluster::Url { url, authority } => {
                let mut config = Self::new(url)?;
                match authority {
                    Some(Authority::File(path)) => {
                        let bytes = reader.read("certificates of authorities in", path)?;
                        config.trust(Pem { bytes, origin: path.display().to_string() })?;
                    }
                    Some(Authority::Pem(pem)) => {
                        config.trust(Pem {
                            bytes: pem.clone().into_bytes(),
                            origin: "given as PEM".to_owned(),
                        })?;
                    }
                    None => {}
                }
                config
            }
        };
        match credential {
            Some(Credential::Token(token)) => config
                .present_token(token.expose_secret(), "the token that was given".to_owned())?,
            Some(Credential::TokenFile(path)) => config.present_token_file(path, reader)?,
            Some(Credential::Certificate { certificate, key }) => {
                let what = "client certificate";
                let pem = |bytes, path: &Path| Pem { bytes, origin: path.display().to_string() };
                let chain = pem(reader.read(what, certificate)?, certificate);
                let key = if key == certificate {
                    None
                } else {
                    Some(pem(reader.read("client key", key)?, key))
                };
                config.present_certificate(chain, key)?;
            }
            None => {}
        }
        Ok(config)
    }

    /// A configuration with a URL alone: the system's authorities, no credentials.
    pub(super) fn new(url: &str) -> Result<Self, ConnectionConfigError> {
        // A name and a password in the URL are refused, and do not go to the log.
        let shown =
            url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, host)| format!("...@{host}"));
        let bad = || ConnectionConfigError::Url(shown.chars().take(256).collect());
        let uri: Uri = url.trim().parse().map_err(|_| bad())?;
        let host = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or_else(bad)?
            .to_string();
        let scheme = uri
            .scheme_str()
            .filter(|scheme| ["http", "https"].contains(scheme))
            .ok_or_else(bad)?
            .to_owned();
        let origin = Provenance {
            url: format!("{scheme}://{host}"),
            authority: "the system's certificate authorities".to_owned(),
            credential: "no credentials".to_owned(),
            is_unverified: false,
        };
        Ok(Self { config: Config::new(uri), origin })
    }

    pub(super) fn trust(&mut self, authorities: Pem) -> Result<(), ConnectionConfigError> {
        let what = "certificates of authorities in";
        self.config.root_cert = Some(
            certificates(what, &authorities)?
                .iter()
                .map(|certificate| certificate.to_vec())
                .collect(),
        );
        self.origin.authority = format!("the certificate authorities in {}", authorities.origin);
        Ok(())
    }

    pub(super) fn present_token_file(
        &mut self,
        path: &Path,
        reader: &mut Reader<'_>,
    ) -> Result<(), ConnectionConfigError> {
        let bytes = reader.read("token file", path)?;
        self.present_token(
            &String::from_utf8_lossy(&bytes),
            format!("the token in {}", path.display()),
        )
    }

    pub(super) fn present_token(
        &mut self,
        token: &str,
        origin: String,
    ) -> Result<(), ConnectionConfigError> {
        let token = token.trim();
        let bad = |problem: &str| ConnectionConfigError::Content {
            what: "credentials:",
            origin: origin.clone(),
            problem: problem.to_owned(),
        };
        if token.is_empty() {
            return Err(bad("it is empty"));
        }
        // The token becomes the value of an HTTP header.
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("it has characters that no token has"));
        }
        self.config.auth_info.token = Some(SecretString::from(token));
        self.origin.credential = origin;
        Ok(())
    }

    /// `key`: `None` if it is in the same PEM as the chain.
    pub(super) fn present_certificate(
        &mut self,
        chain: Pem,
        key: Option<Pem>,
    ) -> Result<(), ConnectionConfigError> {
        let what = "client certificate";
        certificates(what, &chain)?;
        let holder = key.as_ref().unwrap_or(&chain);
        PrivateKeyDer::from_pem_slice(&holder.bytes).map_err(|error| {
            ConnectionConfigError::Content {
                what: "client key",
                origin: holder.origin.clone(),
                problem: pem_problem("private key", &error),
            }
        })?;
        let AuthInfo { client_certificate_data, client_key_data, .. } = &mut self.config.auth_info;
        *client_certificate_data = Some(STANDARD.encode(&chain.bytes));
        // kube concatenates the two, so an empty key is right if the chain's PEM holds it.
        *client_key_data = Some(SecretString::from(
            key.map(|key| STANDARD.encode(&key.bytes)).unwrap_or_default(),
        ));
        self.origin.credential = format!("the client certificate in {}", chain.origin);
        Ok(())
    }
}

fn certificates(
    what: &'static str,
    pem: &Pem,
) -> Result<Vec<CertificateDer<'static>>, ConnectionConfigError> {
    let bad =
        |problem| ConnectionConfigError::Content { what, origin: pem.origin.clone(), problem };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.bytes).collect();
    let found = found.map_err(|error| bad(pem_problem("certificate", &error)))?;
    if found.is_empty() { Err(bad("there is no certificate in it".to_owned())) } else { Ok(found) }
}

/// The error without the text that could not be read.
fn pem_problem(wanted: &str, error: &rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::NoItemsFound => format!("there is no {wanted} in it"),
        _ => "it is not in the form of PEM".to_owned(),
    }
}
