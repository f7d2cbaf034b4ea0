//! The project's own control plane as processes: `ovnkube --init-master`, with the rights that its deployment gives it and no other.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    access,
    control_plane::{self, SERVICES},
    credentials::Credentials,
};
use crate::{Daemon, central, executable, mounts};

/// What the cluster's network is like, as its administrator says it.
#[derive(Debug, Clone)]
pub struct Network {
    /// As `--cluster-subnets` has it: `10.244.0.0/16/24`.
    pub cluster_subnets: String,
    /// Further options of every instance.
    pub options: Vec<String>,
}

/// One instance of the control plane, not running yet. `name` is its identity in the lease and names its log; `port` is where it answers
/// `/readyz` and `/metrics`, on 127.0.0.1.
pub fn instance(name: &str, port: u16, credentials: &Credentials, network: &Network) -> Daemon {
    let Network { cluster_subnets, options } = network;
    let logs = Path::new(mounts::LOGS).join("kubernetes");
    let mut arguments = vec![
        format!("--init-master={name}"),
        format!("--k8s-apiserver={}", control_plane::URL),
        format!("--k8s-cacert={}", credentials.authority().display()),
        format!("--k8s-token-file={}", credentials.token(access::MASTER).display()),
        format!("--nb-address={}", central::NORTHBOUND),
        format!("--sb-address={}", central::SOUTHBOUND),
        format!("--cluster-subnets={cluster_subnets}"),
        format!("--k8s-service-cidrs={SERVICES}"),
        format!("--metrics-bind-address=127.0.0.1:{port}"),
        format!("--logfile={}", logs.join(format!("ovnkube-{name}.log")).display()),
    ];
    arguments.extend_from_slice(options);
    let log = logs.join(format!("ovnkube-{name}.out"));
    Daemon::new(
        format!("{} --init-master {name}", executable::SERVER),
        log,
        || Ok(Command::new(executable::under_test(executable::SERVER)?)),
        arguments,
    )
}

/// Whether the instance that answers on `port` says that it is ready; an error says what it lacks.
pub fn ready(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("connect to port {port}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "/readyz says: {}", answer.split("\r\n\r\n").last().unwrap_or_default());
    Ok(())
}
