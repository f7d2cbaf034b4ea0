//! The project's own control plane as processes: `ovnkube --init-master`, or one of its roles
//! alone, with exactly the rights that its deployment grants.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{access, control_plane, credentials::Credentials};
use crate::{Daemon, central, executable, mounts};

/// The cluster's network, as its administrator configures it.
#[derive(Debug, Clone)]
pub struct Network {
    /// Value of `--cluster-subnets`: `10.244.0.0/16/24`.
    pub cluster_subnets: String,
    /// Value of `--k8s-service-cidrs`: `10.96.0.0/16`.
    pub service_cidrs: String,
    /// Further options of every instance.
    pub options: Vec<String>,
}

/// Option for cluster manager and controller in one process.
pub const BOTH: &str = "--init-master";
/// Option for the controller alone.
pub const CONTROLLER: &str = "--init-ovnkube-controller";

/// One instance of the control plane, not running yet. `roles` is the option that selects its
/// roles. `name` is its identity in the Lease and names its log. It serves `/readyz` and `/metrics`
/// on `port` of 127.0.0.1.
pub fn instance(
    roles: &str,
    name: &str,
    port: u16,
    credentials: &Credentials,
    network: &Network,
) -> Daemon {
    let Network { cluster_subnets, service_cidrs, options } = network;
    let logs = Path::new(mounts::LOGS).join("kubernetes");
    let mut arguments = vec![
        format!("{roles}={name}"),
        format!("--k8s-apiserver={}", control_plane::URL),
        format!("--k8s-cacert={}", credentials.authority().display()),
        format!("--k8s-token-file={}", credentials.token(access::MASTER).display()),
        format!("--nb-address={}", central::NORTHBOUND),
        format!("--sb-address={}", central::SOUTHBOUND),
        format!("--cluster-subnets={cluster_subnets}"),
        format!("--k8s-service-cidrs={service_cidrs}"),
        format!("--metrics-bind-address=127.0.0.1:{port}"),
        format!("--logfile={}", logs.join(format!("ovnkube-{name}.log")).display()),
    ];
    arguments.extend_from_slice(options);
    let log = logs.join(format!("ovnkube-{name}.out"));
    Daemon::new(
        format!("{} {roles} {name}", executable::SERVER),
        log,
        || Ok(Command::new(executable::under_test(executable::SERVER)?)),
        arguments,
    )
}

/// Succeeds if the instance on `port` is ready; the error says what it lacks.
pub fn ready(port: u16) -> Result<()> {
    let answer = get(port, "/readyz")?;
    ensure!(
        answer.starts_with("HTTP/1.1 200"),
        "/readyz says: {}",
        answer.split("\r\n\r\n").last().unwrap_or_default()
    );
    Ok(())
}

/// Whether the instance on `port` is the leader, by its own metric.
pub fn leads(port: u16) -> Result<bool> {
    let answer = get(port, "/metrics")?;
    let leads = answer.lines().find_map(|line| line.strip_prefix("ovnkube_controller_leader "));
    Ok(leads.with_context(|| format!("/metrics says: {answer}"))? == "1")
}

fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("connect to port {port}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes(),
    )?;
    // The answer ends with the connection.
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
