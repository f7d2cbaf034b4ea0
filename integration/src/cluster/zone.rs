//! Control plane and server of a node that has OVN's databases for itself, as two processes: the
//! cluster manager, and the controller together with the node's server. The command lines are the
//! same for this project's programs and for upstream's, so that either can take the place of the
//! other.
//!
//! Must not know: what the programs do.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{CLUSTER_SUBNETS, Cluster, GatewayMode, control_plane, credentials::ADMIN};
use crate::{Daemon, Node, executable, mounts, world};

/// How long a start may take. Upstream's programs take some seconds, and more with many Services.
const PATIENCE: Duration = Duration::from_secs(120);

/// The two processes of a node.
#[derive(Debug)]
pub struct Zone {
    manager: Daemon,
    server: Daemon,
    log: PathBuf,
    ready: &'static str,
}

impl Zone {
    /// The programs in `directory` for a node with the cluster's gateway, not running yet. `name`
    /// is that of their logs; `ready` is a part of what the server logs once the node is ready.
    /// `options` are those of this implementation alone.
    ///
    /// # Errors
    /// If `directory` has no `ovnkube`, or the cluster no gateways.
    pub fn of(
        cluster: &Cluster,
        node: &Node,
        directory: &Path,
        name: &str,
        ready: &'static str,
        options: &[String],
    ) -> Result<Self> {
        let program = directory.join(executable::SERVER).canonicalize();
        let program = program
            .with_context(|| format!("{} of {}", executable::SERVER, directory.display()))?;
        let logs = Path::new(mounts::LOGS).join(&node.name);
        let log = logs.join(format!("{name}.log"));
        let daemon = |roles: &[&str], log: &Path, options: &[String]| {
            let roles = roles.iter().map(|role| format!("{role}={}", node.name));
            let both = [
                format!("--k8s-kubeconfig={}", cluster.credentials.kubeconfig(ADMIN).display()),
                format!("--cluster-subnets={CLUSTER_SUBNETS}"),
                format!("--k8s-service-cidrs={}", control_plane::SERVICES),
                format!("--logfile={}", log.display()),
            ];
            let daemon =
                node.new_daemon(&program, roles.chain(both).chain(options.iter().cloned()));
            daemon.set_environment(vec![("K8S_NODE".to_owned(), node.name.clone())]);
            daemon
        };
        let mode =
            cluster.gateway.and_then(GatewayMode::option).context("the cluster has no gateways")?;
        let common = [
            format!("--cnilogfile={}", logs.join("cni.log").display()),
            mode.to_owned(),
            "--gateway-interface=breth0".to_owned(),
            format!("--gateway-nexthop={}", world::ROUTER),
            "--nodeport".to_owned(),
        ];
        let options = [&common, options].concat();
        let manager = logs.join(format!("{name}-manager.log"));
        Ok(Self {
            manager: daemon(&["--init-cluster-manager"], &manager, &[]),
            server: daemon(&["--init-ovnkube-controller", "--init-node"], &log, &options),
            log,
            ready,
        })
    }

    /// Starts both, and waits until the node is ready.
    pub fn start(&self) -> Result<()> {
        let said = || fs::read_to_string(&self.log).unwrap_or_default();
        let before = said().len();
        self.manager.spawn()?;
        self.server.start_within(PATIENCE, || {
            ensure!(
                said()[before..].contains(self.ready),
                "{} does not say so",
                self.log.display()
            );
            Ok(())
        })
    }

    /// Starts both, and waits for neither.
    pub fn spawn(&self) -> Result<()> {
        self.manager.spawn()?;
        self.server.spawn()
    }

    /// Stops both.
    pub fn stop(&self) -> Result<()> {
        self.server.stop()?;
        self.manager.stop()
    }
}

/// Gives the node the sockets of OVN's databases under their usual names.
pub fn give_databases(node: &Node) -> Result<()> {
    for database in ["nb", "sb"] {
        let socket = Path::new(mounts::LAB).join("central").join(format!("{database}.sock"));
        symlink(socket, node.path(format!("/run/ovn/ovn{database}_db.sock")))?;
    }
    Ok(())
}

/// Gives the node what upstream's programs expect of an administrator where Open vSwitch has the
/// userspace datapath: the host's own stack does not answer for the NIC in the bridge; and their
/// plugin, after which each pod computes its checksums.
pub fn prepare_for_upstream(node: &Node, directory: &Path) -> Result<()> {
    let plugin = node.path(mounts::PLUGINS).join(executable::PLUGIN);
    // A link to another plugin, which is not to be written.
    fs::remove_file(&plugin).with_context(|| format!("remove {}", plugin.display()))?;
    let upstream = directory.join(executable::PLUGIN).canonicalize()?;
    let script = WITH_CHECKSUMS.replace("UPSTREAM", &upstream.to_string_lossy());
    fs::write(&plugin, script).with_context(|| format!("write {}", plugin.display()))?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755))?;
    node.run(["nft", NOT_THE_HOSTS]).map(drop)
}

/// Upstream's plugin leaves a pod's checksums to a NIC, which the userspace datapath has not.
const WITH_CHECKSUMS: &str = r#"#!/bin/sh
answer=$('UPSTREAM' "$@") || { code=$?; printf %s "$answer"; exit $code; }
[ "$CNI_COMMAND" != ADD ] || nsenter --net="$CNI_NETNS" ethtool -K "$CNI_IFNAME" tx off >/dev/null
printf %s "$answer"
"#;

/// A NIC of a userspace bridge is read by the host, too, which would answer a pod's connections
/// with RST.
const NOT_THE_HOSTS: &str = "add table netdev lab
    add chain netdev lab ingress { type filter hook ingress device eth0 priority 0; policy drop; }";
