//! The central programs of Kubernetes, in the lab's root: etcd, API server, controller manager,
//! scheduler.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Result, ensure};

use super::{
    api::Api,
    credentials::{CONTROLLER_MANAGER, Credentials, SCHEDULER},
    programs,
};
use crate::{Daemon, Families, fabric, mounts};

/// URL of the API server, from the lab's root and from every node.
pub const URL: &str = "https://172.30.0.1:6443";
/// Addresses of Services, in clusters with IPv4 alone.
pub(crate) const SERVICES: &str = "10.96.0.0/16";
/// The same in IPv6.
const SERVICES_V6: &str = "fd00:10:96::/112";
/// The API server's addresses as a Service.
pub(crate) const SERVICE: [&str; 2] = ["10.96.0.1", "fd00:10:96::1"];

/// Addresses of Services, in the words of every program's option.
pub fn services(families: Families) -> String {
    match families {
        Families::V4 => SERVICES.to_owned(),
        Families::V6 => SERVICES_V6.to_owned(),
        Families::Dual => format!("{SERVICES},{SERVICES_V6}"),
    }
}

/// URL of the API server of another cluster, see [`OtherApiServer`].
pub const OTHER_URL: &str = "https://172.30.0.1:7443";

const ETCD: &str = "http://127.0.0.1:2379";
/// How long certificates are valid that the cluster signs. No program of the lab has any but the
/// servers of nodes that a test has request one, which it sees renewed.
pub const SIGNED_FOR: Duration = Duration::from_secs(30);
/// How long the API server may take to be ready: an idle machine needs 3 s, an emulated processor
/// minutes.
const PATIENCE: Duration = Duration::from_secs(600);

/// The central programs. Each can be stopped and started again.
#[derive(Debug)]
pub struct ControlPlane {
    /// The database of the API server.
    pub etcd: Daemon,
    /// Started again with [`super::Cluster::start_api_server`].
    pub api_server: Daemon,
    /// Deployments, StatefulSets, garbage collection, service accounts.
    pub controller_manager: Daemon,
    /// Gives pods a node.
    pub scheduler: Daemon,
}

impl ControlPlane {
    /// Starts etcd and the API server, and waits until they are ready.
    pub(crate) fn start(credentials: &Credentials, api: &Api, families: Families) -> Result<Self> {
        Self::start_with(credentials, api, families, &[])
    }

    /// The same without service accounts, which the controller manager would create: a pod needs
    /// none.
    pub fn without_service_accounts(
        credentials: &Credentials,
        api: &Api,
        families: Families,
    ) -> Result<Self> {
        Self::start_with(
            credentials,
            api,
            families,
            &["--disable-admission-plugins=ServiceAccount"],
        )
    }

    fn start_with(
        credentials: &Credentials,
        api: &Api,
        families: Families,
        options: &[&str],
    ) -> Result<Self> {
        let control_plane = Self {
            etcd: etcd()?,
            api_server: api_server(credentials, families, options)?,
            controller_manager: controller_manager(credentials)?,
            scheduler: scheduler(credentials)?,
        };
        // Not awaited: the API server tries again until etcd answers.
        control_plane.etcd.spawn()?;
        control_plane.start_api_server(api)?;
        Ok(control_plane)
    }

    pub(crate) fn start_api_server(&self, api: &Api) -> Result<()> {
        self.api_server.start_within(PATIENCE, || {
            let answer = api.text("/readyz")?;
            ensure!(answer == "ok", "/readyz says: {answer}");
            Ok(())
        })
    }

    /// Starts the rest; does not wait for it.
    pub(crate) fn start_controllers(&self) -> Result<()> {
        self.controller_manager.spawn()?;
        self.scheduler.spawn()
    }
}

/// The API server of another cluster, without nodes and pods. The accounts of this cluster may do
/// everything there.
#[derive(Debug)]
pub struct OtherApiServer {
    pub api: Api,
    _etcd: Daemon,
    _api_server: Daemon,
}

impl OtherApiServer {
    /// Starts it, and waits until it has the namespace by which clusters are told apart.
    pub fn start(credentials: &Credentials) -> Result<Self> {
        const ETCD: &str = "http://127.0.0.1:2479";
        let tokens = credentials.tokens_elsewhere()?;
        let etcd = etcd_at("other-etcd", ETCD, "http://127.0.0.1:2480")?;
        let api_server = daemon(
            programs::kubernetes("kube-apiserver")?,
            [
                format!("--etcd-servers={ETCD}"),
                "--secure-port=7443".to_owned(),
                format!("--advertise-address={}", fabric::LAB_ADDRESS),
                format!("--service-cluster-ip-range={SERVICES}"),
                format!("--tls-cert-file={}", credentials.server_certificate().display()),
                format!("--tls-private-key-file={}", credentials.server_key().display()),
                format!("--token-auth-file={}", tokens.display()),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!(
                    "--service-account-key-file={}",
                    credentials.service_account_key().display()
                ),
                format!(
                    "--service-account-signing-key-file={}",
                    credentials.service_account_key().display()
                ),
                "--authorization-mode=AlwaysAllow".to_owned(),
            ],
        );
        etcd.spawn()?;
        let api = Api::at(credentials, OTHER_URL)?;
        api_server
            .start_within(PATIENCE, || api.read("/api/v1/namespaces/kube-system").map(drop))?;
        Ok(Self { api, _etcd: etcd, _api_server: api_server })
    }
}

fn etcd() -> Result<Daemon> {
    etcd_at("etcd", ETCD, "http://127.0.0.1:2380")
}

fn etcd_at(directory: &str, clients: &str, peers: &str) -> Result<Daemon> {
    let data = Path::new(mounts::LAB).join(directory);
    fs::create_dir_all(&data)?;
    let arguments = [
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        // The data ends with the lab anyway, so it need not reach the disk.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    Ok(daemon(PathBuf::from("etcd"), arguments))
}

fn api_server(credentials: &Credentials, families: Families, options: &[&str]) -> Result<Daemon> {
    let option = |name: &str, file: PathBuf| format!("--{name}={}", file.display());
    // Endpoint of the Service `kubernetes`: of the first family.
    let advertised = match families {
        Families::V4 | Families::Dual => fabric::LAB_ADDRESS,
        Families::V6 => fabric::LAB_ADDRESS_V6,
    };
    let mut arguments = vec![
        format!("--etcd-servers={ETCD}"),
        "--secure-port=6443".to_owned(),
        format!("--advertise-address={advertised}"),
        format!("--service-cluster-ip-range={}", services(families)),
        option("tls-cert-file", credentials.server_certificate()),
        option("tls-private-key-file", credentials.server_key()),
        option("token-auth-file", credentials.token_table()),
        option("client-ca-file", credentials.authority()),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        option("service-account-key-file", credentials.service_account_key()),
        option("service-account-signing-key-file", credentials.service_account_key()),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        // By default the API server looks up the name of the node for logs and exec.
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
    ];
    if families != Families::V4 {
        arguments.push("--bind-address=::".to_owned());
    }
    arguments.extend(options.iter().map(|option| (*option).to_owned()));
    Ok(daemon(programs::kubernetes("kube-apiserver")?, arguments))
}

fn controller_manager(credentials: &Credentials) -> Result<Daemon> {
    let arguments = [
        format!("--kubeconfig={}", credentials.kubeconfig(CONTROLLER_MANAGER).display()),
        format!(
            "--service-account-private-key-file={}",
            credentials.service_account_key().display()
        ),
        format!("--root-ca-file={}", credentials.authority().display()),
        format!("--cluster-signing-cert-file={}", credentials.authority().display()),
        format!("--cluster-signing-key-file={}", credentials.authority_key().display()),
        format!("--cluster-signing-duration={}s", SIGNED_FOR.as_secs()),
        // Each controller has the rights of its own account.
        "--use-service-account-credentials=true".to_owned(),
        "--leader-elect=false".to_owned(),
        // With the default limits, a burst of pods would measure the rate limiter of the client.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ];
    Ok(daemon(programs::kubernetes("kube-controller-manager")?, arguments))
}

fn scheduler(credentials: &Credentials) -> Result<Daemon> {
    let arguments = [
        format!("--kubeconfig={}", credentials.kubeconfig(SCHEDULER).display()),
        "--leader-elect=false".to_owned(),
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ];
    Ok(daemon(programs::kubernetes("kube-scheduler")?, arguments))
}

fn daemon(program: PathBuf, arguments: impl IntoIterator<Item = String>) -> Daemon {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let log = Path::new(mounts::LOGS).join("kubernetes").join(format!("{name}.out"));
    Daemon::new(name, log, move || Ok(Command::new(&program)), arguments)
}
