//! The identities in the cluster: a certificate authority, the API server's certificate, and a
//! token for each client.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{access, control_plane};
use crate::{command, fabric, mounts};

/// User name of the administrator, whose requests are all allowed.
pub const ADMIN: &str = "admin";
pub(crate) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
pub(crate) const SCHEDULER: &str = "system:kube-scheduler";
/// The API server binds its rights to this name by itself.
pub(crate) const KUBE_PROXY: &str = "system:kube-proxy";

/// Files with credentials. Nodes see them under the same paths.
#[derive(Debug)]
pub struct Credentials {
    directory: PathBuf,
}

impl Credentials {
    /// Creates the credentials of the cluster's own programs and of the kubelets of `nodes`.
    pub fn create(nodes: &[String]) -> Result<Self> {
        let credentials = Self::of_the_lab();
        fs::create_dir_all(&credentials.directory)?;
        credentials.certificates()?;
        let mut table = String::new();
        let users = [ADMIN, CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY].map(str::to_owned);
        for user in users.into_iter().chain(nodes.iter().map(|node| kubelet(node))) {
            let groups = match user.as_str() {
                ADMIN => "system:masters",
                // The node authorizer and NodeRestriction recognise a kubelet by this group and its
                // user name.
                node if node.starts_with("system:node:") => "system:nodes",
                _ => "",
            };
            let token = random()?;
            // Token, user name, user id, groups: a line of `--token-auth-file`.
            table += &format!("{token},{user},{user},\"{groups}\"\n");
            fs::write(
                credentials.kubeconfig(&user),
                credentials.kubeconfig_text(&user, &token, control_plane::URL),
            )?;
        }
        fs::write(credentials.token_table(), table).context("write the table of tokens")?;
        Ok(credentials)
    }

    /// Those that were created in this lab.
    pub fn of_the_lab() -> Self {
        Self { directory: Path::new(mounts::LAB).join("kubernetes") }
    }

    /// Certificate of the authority that signed the API server's.
    pub fn authority(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// Private key of that authority, which signs the certificates of clients.
    pub(crate) fn authority_key(&self) -> PathBuf {
        self.directory.join("ca.key")
    }

    /// Configuration file (kubeconfig) of `user`.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.directory.join(format!("{}.kubeconfig", user.replace(':', "-")))
    }

    /// File with the token of a deployment's account, for the program under test.
    pub fn token(&self, account: &str) -> PathBuf {
        self.directory.join(format!("{account}.token"))
    }

    /// Writes the token of `account` with a newline at its end, as editors and `echo` do.
    pub(crate) fn write_token(&self, account: &str, token: &str) -> Result<()> {
        fs::write(self.token(account), format!("{token}\n"))
            .with_context(|| format!("write the token of {account}"))
    }

    /// A table of tokens for another cluster's API server: the administrator's, and those of the
    /// deployments' accounts, which their own API server has signed.
    pub(crate) fn tokens_elsewhere(&self) -> Result<PathBuf> {
        let mut table = fs::read_to_string(self.token_table())?;
        // The rights are those of the administrator's group.
        for account in [access::NODE, access::MASTER] {
            let token = fs::read_to_string(self.token(account))?;
            table += &format!("{},{account},{account},\"system:masters\"\n", token.trim());
        }
        let file = self.directory.join("tokens-elsewhere.csv");
        fs::write(&file, table)?;
        Ok(file)
    }

    /// Writes a configuration file (kubeconfig) with which `account` reaches the API server at
    /// `url`.
    pub fn write_kubeconfig(&self, account: &str, url: &str) -> Result<PathBuf> {
        let token = fs::read_to_string(self.token(account))?;
        let file = self.kubeconfig(account);
        fs::write(&file, self.kubeconfig_text(account, token.trim(), url))?;
        Ok(file)
    }

    /// Writes a configuration file (kubeconfig) with the certificate and the key in `pem`, both in
    /// one file, as servers of nodes keep them.
    pub fn write_certificate_kubeconfig(&self, name: &str, pem: &str) -> Result<PathBuf> {
        let certificate = self.directory.join(format!("{name}.pem"));
        fs::write(&certificate, pem)?;
        let file = self.kubeconfig(name);
        let mut config: Value =
            serde_json::from_str(&self.kubeconfig_text(name, "", control_plane::URL))?;
        config["users"][0]["user"] =
            json!({"client-certificate": certificate, "client-key": certificate});
        fs::write(&file, config.to_string())?;
        Ok(file)
    }

    /// The same with a token.
    pub fn write_token_kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        let file = self.kubeconfig(name);
        fs::write(&file, self.kubeconfig_text(name, token, control_plane::URL))?;
        Ok(file)
    }

    pub(crate) fn token_table(&self) -> PathBuf {
        self.directory.join("tokens.csv")
    }

    /// The API server's certificate.
    pub fn server_certificate(&self) -> PathBuf {
        self.directory.join("apiserver.crt")
    }

    /// The private key of that certificate.
    pub fn server_key(&self) -> PathBuf {
        self.directory.join("apiserver.key")
    }

    /// The key that signs the tokens of service accounts.
    pub(crate) fn service_account_key(&self) -> PathBuf {
        self.directory.join("service-account.key")
    }

    fn certificates(&self) -> Result<()> {
        let openssl = |arguments: &str| {
            let words = arguments.split_whitespace();
            command::output(Command::new("openssl").args(words).current_dir(&self.directory))
                .map(drop)
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30";
        openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=lab-authority"))?;
        let names = format!(
            "IP:{},IP:{},IP:127.0.0.1,IP:{},DNS:localhost,DNS:kubernetes.default.svc,DNS:kubernetes.default",
            fabric::LAB_ADDRESS,
            fabric::LAB_ADDRESS_V6,
            control_plane::SERVICE.join(",IP:")
        );
        openssl(&format!(
            "req -x509 {key} -keyout apiserver.key -out apiserver.crt -subj /CN=kube-apiserver \
             -CA ca.crt -CAkey ca.key -addext subjectAltName={names} -addext basicConstraints=critical,CA:FALSE"
        ))?;
        // From this form alone the API server derives the public key.
        openssl("ecparam -genkey -noout -name prime256v1 -out service-account.key")
    }

    fn kubeconfig_text(&self, user: &str, token: &str, url: &str) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": url, "certificate-authority": self.authority()}}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "current-context": "lab",
        })
        .to_string()
    }
}

/// User name of the kubelet on a node.
pub fn kubelet(node: &str) -> String {
    format!("system:node:{node}")
}

fn random() -> Result<String> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").context("read random bytes")?;
    Ok(uuid.trim().to_owned())
}
