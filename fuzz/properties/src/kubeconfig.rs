//! The files that configure the API server's client: a kubeconfig has exactly the effect of its
//! fields, and no error in it, in a token or in certificates shows a byte of a secret.

mod drawn;
mod open_fields;

use std::{
    collections::BTreeMap,
    hash::RandomState,
    io,
    path::{Path, PathBuf},
};

use kube::config::AuthInfo;
use kubeapi::{
    ApiServer, Authority, Cluster, Credential,
    connection::config::{ConnectionConfig, Files, Reader},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use secrecy::ExposeSecret;

use crate::LONGEST_ERROR;

const CONFIG: &str = "/etc/kubernetes/kubelet.conf";
const TOKEN: &str = "/etc/kubernetes/token";
const AUTHORITY: &str = "/etc/kubernetes/ca.crt";
const URL: &str = "https://10.0.0.1:6443";

/// A secret that must not appear in any message, unless the kubeconfig also has it in a field that
/// is public.
const SECRET: &str = "s3cr3tS3CR3Ts3cr3t";

/// `data` is a kubeconfig; after `T` a token file, after `P` certificates, after `D` the source of
/// a drawn kubeconfig.
pub fn check(data: &[u8]) {
    match data.split_first() {
        Some((b'T', token)) => check_token(token),
        Some((b'P', pem)) => check_authorities(pem),
        Some((b'D', rest)) => drawn::check(rest),
        _ => drop(by_kubeconfig(data)),
    }
}

/// A machine with a few files.
#[derive(Debug)]
struct Machine(BTreeMap<PathBuf, Vec<u8>>);

impl Machine {
    fn with(path: &str, content: &[u8]) -> Self {
        let mut files = drawn::files();
        files.insert(path.into(), content.to_vec());
        Self(files)
    }

    /// The client configuration for the API server, or the error.
    fn material(&self, api_server: &ApiServer) -> Result<ConnectionConfig, String> {
        let read =
            || ConnectionConfig::read(api_server, &mut Reader::new(self, RandomState::new()));
        let (first, second) = (read(), read());
        assert_eq!(
            first.as_ref().map(shown).map_err(ToString::to_string),
            second.as_ref().map(shown).map_err(ToString::to_string)
        );
        let material = first.map_err(|error| error.to_string());
        let said = material.as_ref().map_or_else(Clone::clone, shown);
        let is_secret = !self
            .0
            .get(Path::new(CONFIG))
            .is_some_and(|config| open_fields::mention(config, SECRET));
        assert!(!is_secret || !said.contains(SECRET), "{said}");
        match &material {
            Ok(material) => check_material(material),
            Err(error) => {
                assert!(error.len() <= LONGEST_ERROR, "an error of {} bytes", error.len());
                assert!(!error.contains(char::is_control), "{error:?}");
            }
        }
        material
    }
}

impl Files for Machine {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The text that a log or a panic would show.
fn shown(material: &ConnectionConfig) -> String {
    format!("{material:?}")
}

fn by_kubeconfig(data: &[u8]) -> Result<ConnectionConfig, String> {
    Machine::with(CONFIG, data)
        .material(&ApiServer { cluster: Cluster::Kubeconfig(CONFIG.into()), credential: None })
}

fn check_material(material: &ConnectionConfig) {
    let ConnectionConfig { config, origin } = material;
    let scheme = config.cluster_url.scheme_str().unwrap_or_default();
    assert!(
        ["http", "https"].contains(&scheme) && config.cluster_url.host().is_some(),
        "{}",
        config.cluster_url
    );
    assert!(
        !config.cluster_url.authority().is_some_and(|authority| authority.as_str().contains('@')),
        "{}",
        config.cluster_url
    );
    assert_eq!(origin.url.split_once("://").map(|(scheme, _)| scheme), Some(scheme));
    assert_eq!(
        config.root_cert.is_some(),
        origin.authority.contains(" in "),
        "{}",
        origin.authority
    );
    let AuthInfo { token, password, exec, auth_provider, token_file, .. } = &config.auth_info;
    assert!(
        exec.is_none() && auth_provider.is_none() && token_file.is_none(),
        "something that is not followed"
    );
    let secrets = [token, password].into_iter().flatten().map(ExposeSecret::expose_secret);
    for secret in
        secrets.filter(|secret| secret.len() > 16 && !origin_texts(material).contains(*secret))
    {
        assert!(!shown(material).contains(secret), "a secret is shown");
    }
    if let Some(token) = token.as_ref().map(ExposeSecret::expose_secret) {
        assert!(
            !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()),
            "{token:?}"
        );
        http::HeaderValue::from_str(&format!("Bearer {token}"))
            .expect("a token is sent as a header");
    }
}

/// Everything that messages may show of a configuration: its names, which may equal its secrets by
/// chance.
fn origin_texts(material: &ConnectionConfig) -> String {
    format!("{:?}", material.origin)
}

fn check_token(file: &[u8]) {
    let way = ApiServer {
        cluster: Cluster::Url { url: URL.to_owned(), authority: None },
        credential: Some(Credential::TokenFile(TOKEN.into())),
    };
    let text = String::from_utf8_lossy(file);
    let is_good =
        !text.trim().is_empty() && text.trim().bytes().all(|byte| byte.is_ascii_graphic());
    match Machine::with(TOKEN, file).material(&way) {
        Ok(material) => {
            let token = material.config.auth_info.token.expect("it was accepted");
            assert!(is_good && token.expose_secret() == text.trim());
            assert_eq!(material.origin.credential, format!("the token in {TOKEN}"));
        }
        Err(error) => assert!(!is_good && error.contains(TOKEN), "{error}"),
    }
}

fn check_authorities(pem: &[u8]) {
    let way = ApiServer {
        cluster: Cluster::Url {
            url: URL.to_owned(),
            authority: Some(Authority::File(AUTHORITY.into())),
        },
        credential: None,
    };
    match Machine::with(AUTHORITY, pem).material(&way) {
        Ok(material) => {
            let found = material.config.root_cert.expect("they were accepted");
            assert!(!found.is_empty());
            let written: String = found.iter().map(|der| certificate(der)).collect();
            let again: Vec<_> = CertificateDer::pem_slice_iter(written.as_bytes())
                .map(|der| der.expect("it was just written"))
                .collect();
            assert_eq!(again.iter().map(|der| der.to_vec()).collect::<Vec<_>>(), found);
        }
        Err(error) => assert!(error.contains(AUTHORITY), "{error}"),
    }
}

fn certificate(der: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}
