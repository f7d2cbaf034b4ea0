//! A kubeconfig with any combination of fields, and the expected configuration.

use std::{collections::BTreeMap, path::PathBuf};

use arbitrary::{Result, Unstructured};
use base64::{Engine, engine::general_purpose::STANDARD};
use kubeapi::connection::config::ConnectionConfig;
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

use super::{AUTHORITY, SECRET, TOKEN, URL, by_kubeconfig};

/// A certificate without meaningful contents: the data between the lines is only parsed when a
/// connection is made.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIBAA==\n-----END CERTIFICATE-----\n";

/// The files next to the kubeconfig.
pub(super) fn files() -> BTreeMap<PathBuf, Vec<u8>> {
    let files = [
        (TOKEN, format!("\n{SECRET}file\n")),
        (AUTHORITY, CERTIFICATE.to_owned()),
        ("/etc/kubernetes/client.crt", CERTIFICATE.to_owned()),
        ("/etc/kubernetes/client.key", key()),
        ("/etc/kubernetes/both.pem", format!("{CERTIFICATE}{}", key())),
        ("/etc/kubernetes/bad", format!("{SECRET}\u{0}")),
    ];
    files.into_iter().map(|(path, text)| (path.into(), text.into_bytes())).collect()
}

fn key() -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(SECRET))
}

/// A field's value, and whether it is usable; `None` for an absent or empty field.
type Field = Option<(Value, bool)>;

/// An error of `draw` means that the bytes to draw from are used up.
pub(super) fn check(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(drawn) = Drawn::draw(&mut u) else { return };
    let text = drawn.text();
    let read = by_kubeconfig(text.to_string().as_bytes());
    let yaml = serde_yaml_ng::to_string(&text).expect("JSON can be written as YAML");
    let of_yaml = by_kubeconfig(yaml.as_bytes());
    assert_eq!(of_yaml.as_ref().map(super::shown), read.as_ref().map(super::shown), "{yaml}");
    match read {
        Ok(material) => drawn.check_accepted(&material),
        Err(error) => assert!(!drawn.is_good(), "{error}: {text:#}"),
    }
}

#[derive(Debug)]
struct Drawn {
    cluster: BTreeMap<&'static str, Field>,
    user: BTreeMap<&'static str, Field>,
    /// Whether the kubeconfig names its existing context, cluster and user, in this order.
    names: [bool; 3],
}

const NOTHING: Field = None;

impl Drawn {
    fn draw(u: &mut Unstructured<'_>) -> Result<Self> {
        let mut field = |fields: &[(&str, bool)]| -> Result<Field> {
            // Most fields of a real kubeconfig are absent.
            if u.ratio(1, 2)? {
                return Ok(NOTHING);
            }
            let (text, good) = u.choose(fields)?;
            Ok(Some((json!(text), *good)))
        };
        let base64 = |text: &str| STANDARD.encode(text);
        let (certificate, key, secret) =
            (base64(CERTIFICATE), base64(&key()), format!("{SECRET}inline"));
        let bad_data = base64(SECRET);
        let cluster = BTreeMap::from([
            (
                "certificate-authority",
                field(&[
                    ("ca.crt", true),
                    (AUTHORITY, true),
                    ("missing", false),
                    ("bad", false),
                    ("", true),
                ])?,
            ),
            (
                "certificate-authority-data",
                field(&[(&certificate, true), (&bad_data, false), (SECRET, false), ("", true)])?,
            ),
            ("proxy-url", field(&[("", true), ("http://proxy", false)])?),
            ("tls-server-name", field(&[("api", true), ("", true)])?),
        ]);
        let user = BTreeMap::from([
            (
                "token",
                field(&[
                    (&secret, true),
                    ("  ", false),
                    ("s3cr3tS3CR3Ts3cr3t with space", false),
                    ("", true),
                ])?,
            ),
            (
                "tokenFile",
                field(&[
                    ("token", true),
                    (TOKEN, true),
                    ("missing", false),
                    ("bad", false),
                    ("", true),
                ])?,
            ),
            ("username", field(&[("somebody", true)])?),
            ("password", field(&[(SECRET, true)])?),
            (
                "client-certificate",
                field(&[
                    ("client.crt", true),
                    ("both.pem", true),
                    ("client.key", false),
                    ("", true),
                ])?,
            ),
            (
                "client-certificate-data",
                field(&[(&certificate, true), (&bad_data, false), ("", true)])?,
            ),
            (
                "client-key",
                field(&[
                    ("client.key", true),
                    ("both.pem", true),
                    ("client.crt", false),
                    ("", true),
                ])?,
            ),
            (
                "client-key-data",
                field(&[(&key, true), (&bad_data, false), (SECRET, false), ("", true)])?,
            ),
            ("as", field(&[("another", true)])?),
            ("exec", field(&[("program", false)])?.map(|_| (json!({"command": SECRET}), false))),
        ]);
        let names = [u.ratio(15, 16)?, u.ratio(15, 16)?, u.ratio(15, 16)?];
        Ok(Self { cluster, user, names })
    }

    fn text(&self) -> Value {
        let object = |fields: &BTreeMap<&'static str, Field>| -> Map<String, Value> {
            fields
                .iter()
                .filter_map(|(name, field)| Some(((*name).to_owned(), field.as_ref()?.0.clone())))
                .collect()
        };
        let name = |which: usize, good: &str| {
            if self.names[which] { good.to_owned() } else { "nobody".to_owned() }
        };
        let mut cluster = object(&self.cluster);
        cluster.insert("server".to_owned(), json!(URL));
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name(0, "here"),
            "contexts": [
                {"name": "there", "context": {"cluster": "other", "user": "other"}},
                {"name": "here", "context": {"cluster": name(1, "ours"), "user": name(2, "we")}},
            ],
            "clusters": [{"name": "other", "cluster": {"server": "https://other"}}, {"name": "ours", "cluster": cluster}],
            "users": [{"name": "other", "user": {"token": "other"}}, {"name": "we", "user": object(&self.user)}],
        })
    }

    fn text_of<'a>(
        fields: &'a BTreeMap<&'static str, Field>,
        name: &str,
    ) -> Option<(&'a str, bool)> {
        let (value, good) = fields[name].as_ref()?;
        Some((value.as_str().unwrap_or("program"), *good)).filter(|(text, _)| !text.is_empty())
    }

    /// The value of a pair of fields: data inside the kubeconfig takes precedence over a file.
    fn pem<'a>(
        fields: &'a BTreeMap<&'static str, Field>,
        data: &str,
        file: &str,
    ) -> Option<(&'a str, bool)> {
        Self::text_of(fields, data).or_else(|| Self::text_of(fields, file))
    }

    fn user(&self, name: &str) -> Option<(&str, bool)> {
        Self::text_of(&self.user, name).filter(|_| self.names[2])
    }

    /// Whether all fields that take effect are usable.
    fn is_good(&self) -> bool {
        let authority =
            Self::pem(&self.cluster, "certificate-authority-data", "certificate-authority");
        let token = self.user("tokenFile").or(self.user("token"));
        let of_user = |data, file| Self::pem(&self.user, data, file).filter(|_| self.names[2]);
        let certificate = of_user("client-certificate-data", "client-certificate");
        let key = of_user("client-key-data", "client-key").unwrap_or(("", false));
        let all = [
            authority,
            Self::text_of(&self.cluster, "proxy-url"),
            token,
            self.user("exec"),
            certificate,
            certificate.and(Some(key)),
        ];
        self.names[0] && self.names[1] && all.into_iter().flatten().all(|(_, good)| good)
    }

    fn check_accepted(&self, material: &ConnectionConfig) {
        let (config, text) = (&material.config, self.text());
        assert!(self.is_good(), "it is not refused: {text:#}");
        let expected = match (self.user("tokenFile"), self.user("token")) {
            (Some(_), _) => Some(format!("{SECRET}file")),
            (None, token) => token.map(|(token, _)| token.to_owned()),
        };
        let auth = &config.auth_info;
        assert_eq!(
            auth.token.as_ref().map(|token| token.expose_secret().to_owned()),
            expected,
            "{text:#}"
        );
        let password =
            self.user("username").and(self.user("password")).filter(|_| expected.is_none());
        assert_eq!(
            auth.password.as_ref().map(|password| password.expose_secret()),
            password.map(|(password, _)| password),
            "{text:#}"
        );
        let certificate = Self::pem(&self.user, "client-certificate-data", "client-certificate")
            .filter(|_| self.names[2]);
        assert_eq!(auth.client_certificate_data.is_some(), certificate.is_some(), "{text:#}");
        assert_eq!(auth.impersonate.as_deref(), self.user("as").map(|(name, _)| name), "{text:#}");
        assert_eq!(config.cluster_url.to_string().trim_end_matches('/'), URL);
        let name = Self::text_of(&self.cluster, "tls-server-name").map(|(name, _)| name);
        assert_eq!(config.tls_server_name.as_deref(), name);
        let is_trusted =
            Self::pem(&self.cluster, "certificate-authority-data", "certificate-authority")
                .is_some();
        assert_eq!(config.root_cert.is_some(), is_trusted, "{text:#}");
    }
}
