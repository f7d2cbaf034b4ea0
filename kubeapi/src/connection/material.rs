//! What a connection is made of, as the files say it now. Knows nothing of when to read.
//!
//! No error holds a byte of what was read: tokens and keys are among it.

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

/// Everything that a connection needs, in kube's form.
#[derive(Debug)]
pub struct Material {
    pub config: Config,
    pub origin: Origin,
}

/// Where material came from, for messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    pub url: String,
    /// Who is trusted to sign the API server's certificate.
    pub authority: String,
    /// Who this server says it is.
    pub credential: String,
    /// The API server's certificate is not verified: anybody between could be it.
    pub is_unverified: bool,
}

/// Why there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MaterialError {
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

/// Where files are.
pub trait Files: Debug {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// Those of this machine.
#[derive(Debug)]
pub struct OnDisk;

impl Files for OnDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }
}

/// Reads files, and remembers which and what was in them.
#[derive(Debug)]
pub struct Reader<'a> {
    files: &'a dyn Files,
    seed: RandomState,
    /// Everything that was read or tried, with a hash of its content.
    pub(super) seen: Vec<(PathBuf, u64)>,
}

impl<'a> Reader<'a> {
    /// Readers with the same seed see the same content as the same hash.
    pub fn new(files: &'a dyn Files, seed: RandomState) -> Self {
        Self { files, seed, seen: Vec::new() }
    }

    pub(super) fn read(&mut self, what: &'static str, path: &Path) -> Result<Vec<u8>, MaterialError> {
        let content = self.files.read(path);
        let hash = self.seed.hash_one(content.as_ref().map_err(io::Error::kind));
        self.seen.push((path.to_owned(), hash));
        content.map_err(|error| {
            let later = if error.kind() == io::ErrorKind::NotFound { "; it is read as soon as it is there" } else { "" };
            MaterialError::Read { what, path: path.to_owned(), problem: format!("{error}{later}") }
        })
    }
}

/// Something in PEM, and where it is from.
pub(super) struct Pem {
    pub(super) bytes: Vec<u8>,
    pub(super) origin: String,
}

impl Material {
    pub fn read(api_server: &ApiServer, reader: &mut Reader<'_>) -> Result<Self, MaterialError> {
        let ApiServer { cluster, credential } = api_server;
        let mut material = match cluster {
            Cluster::Kubeconfig(path) => Kubeconfig::read(path, reader)?.material(credential.is_none(), reader)?,
            Cluster::Url { url, authority } => {
                let mut material = Self::new(url)?;
                match authority {
                    Some(Authority::File(path)) => {
                        let bytes = reader.read("certificates of authorities in", path)?;
                        material.trust(Pem { bytes, origin: path.display().to_string() })?;
                    }
                    Some(Authority::Pem(pem)) => {
                        material.trust(Pem { bytes: pem.clone().into_bytes(), origin: "given as PEM".to_owned() })?;
                    }
                    None => {}
                }
                material
            }
        };
        match credential {
            Some(Credential::Token(token)) => material.present_token(token.expose_secret(), "the token that was given".to_owned())?,
            Some(Credential::TokenFile(path)) => material.present_token_file(path, reader)?,
            Some(Credential::Certificate { certificate, key }) => {
                let what = "client certificate";
                let pem = |bytes, path: &Path| Pem { bytes, origin: path.display().to_string() };
                let chain = pem(reader.read(what, certificate)?, certificate);
                let key = if key == certificate { None } else { Some(pem(reader.read("client key", key)?, key)) };
                material.present_certificate(chain, key)?;
            }
            None => {}
        }
        Ok(material)
    }

    /// Without authorities (the system's count then) and without credentials.
    pub(super) fn new(url: &str) -> Result<Self, MaterialError> {
        // A name and a password before the host are of no use, and not for the log.
        let shown = url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, host)| format!("...@{host}"));
        let bad = || MaterialError::Url(shown.chars().take(256).collect());
        let uri: Uri = url.trim().parse().map_err(|_| bad())?;
        let host = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad)?.to_string();
        let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme)).ok_or_else(bad)?.to_owned();
        let origin = Origin {
            url: format!("{scheme}://{host}"),
            authority: "the system's certificate authorities".to_owned(),
            credential: "no credentials".to_owned(),
            is_unverified: false,
        };
        Ok(Self { config: Config::new(uri), origin })
    }

    pub(super) fn trust(&mut self, authorities: Pem) -> Result<(), MaterialError> {
        let what = "certificates of authorities in";
        self.config.root_cert = Some(certificates(what, &authorities)?.iter().map(|certificate| certificate.to_vec()).collect());
        self.origin.authority = format!("the certificate authorities in {}", authorities.origin);
        Ok(())
    }

    pub(super) fn present_token_file(&mut self, path: &Path, reader: &mut Reader<'_>) -> Result<(), MaterialError> {
        let bytes = reader.read("token file", path)?;
        self.present_token(&String::from_utf8_lossy(&bytes), format!("the token in {}", path.display()))
    }

    pub(super) fn present_token(&mut self, token: &str, origin: String) -> Result<(), MaterialError> {
        let token = token.trim();
        let bad = |problem: &str| MaterialError::Content { what: "credentials:", origin: origin.clone(), problem: problem.to_owned() };
        if token.is_empty() {
            return Err(bad("it is empty"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("it has characters that no token has"));
        }
        self.config.auth_info.token = Some(SecretString::from(token));
        self.origin.credential = origin;
        Ok(())
    }

    /// `key`: none if it is in the same PEM as the chain.
    pub(super) fn present_certificate(&mut self, chain: Pem, key: Option<Pem>) -> Result<(), MaterialError> {
        let what = "client certificate";
        certificates(what, &chain)?;
        let keeper = key.as_ref().unwrap_or(&chain);
        PrivateKeyDer::from_pem_slice(&keeper.bytes).map_err(|error| MaterialError::Content {
            what: "client key",
            origin: keeper.origin.clone(),
            problem: pem_problem("private key", &error),
        })?;
        let AuthInfo { client_certificate_data, client_key_data, .. } = &mut self.config.auth_info;
        *client_certificate_data = Some(STANDARD.encode(&chain.bytes));
        // kube puts the two together: nothing is enough where the chain's PEM holds the key.
        *client_key_data = Some(SecretString::from(key.map(|key| STANDARD.encode(&key.bytes)).unwrap_or_default()));
        self.origin.credential = format!("the client certificate in {}", chain.origin);
        Ok(())
    }
}

fn certificates(what: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, MaterialError> {
    let bad = |problem| MaterialError::Content { what, origin: pem.origin.clone(), problem };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.bytes).collect();
    let found = found.map_err(|error| bad(pem_problem("certificate", &error)))?;
    if found.is_empty() { Err(bad("there is no certificate in it".to_owned())) } else { Ok(found) }
}

/// Without the text that could not be read.
fn pem_problem(wanted: &str, error: &rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::NoItemsFound => format!("there is no {wanted} in it"),
        _ => "it is not in the form of PEM".to_owned(),
    }
}
