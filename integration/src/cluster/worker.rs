//! Makes a node of Kubernetes of a lab's node: containerd, kubelet and the project's server, in the
//! node's namespaces.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    access,
    containerd::{self, Containerd},
    control_plane,
    credentials::{Credentials, kubelet},
    dns,
    master::Network,
    programs, reference,
};
use crate::{Daemon, Families, Node, central, cgroups, fabric, inside, mounts};

/// Socket of containerd, on the node.
pub const CONTAINERD: &str = "/run/containerd/containerd.sock";
/// Manifests in this directory of the node are static pods.
pub const STATIC_PODS: &str = "/etc/kubernetes/manifests";

/// How long containerd may take to listen, while all nodes of a cluster start at once on a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The Kubernetes daemons of a node.
#[derive(Debug)]
pub struct Worker {
    /// The container runtime.
    pub containerd: Daemon,
    /// Started again with `start`, like any daemon.
    pub kubelet: Daemon,
    /// Runs on nodes with the reference network alone.
    pub kube_proxy: Daemon,
}

impl Worker {
    /// Configures both; starts nothing.
    pub(crate) fn prepare(
        node: &Node,
        containerd: Containerd,
        families: Families,
        credentials: &Credentials,
    ) -> Result<Self> {
        let group = format!("{}/{}", inside::cgroup()?, node.name);
        // Before the kubelet, which does not start without its `cgroupRoot`.
        cgroups::create(&group)?;
        let configure = |path: &str, text: &str| {
            fs::write(node.path(path), text)
                .with_context(|| format!("write {path} of {}", node.name))
        };
        fs::create_dir_all(node.path(STATIC_PODS))?;
        configure(containerd::CONFIGURATION, containerd.configuration())?;
        configure(
            "/run/kubelet.yaml",
            &include_str!("kubelet.yaml")
                .replace("CGROUP", &group)
                .replace("CLUSTER_DNS", dns::address(families)),
        )?;
        for plugin in ["loopback", "bridge", "host-local"] {
            symlink(reference::plugin(plugin)?, node.path(mounts::PLUGINS).join(plugin))?;
        }
        let kubelet_arguments = [
            "--config=/run/kubelet.yaml".to_owned(),
            format!("--kubeconfig={}", credentials.kubeconfig(&kubelet(&node.name)).display()),
            format!("--hostname-override={}", node.name),
            format!("--node-ip={}", addresses(node, families)),
            "--root-dir=/var/lib/kubelet".to_owned(),
            "-v=2".to_owned(),
        ];
        Ok(Self {
            containerd: containerd.daemon(node)?,
            kubelet: node.new_daemon(programs::kubernetes("kubelet")?, kubelet_arguments),
            kube_proxy: reference::kube_proxy(node, credentials)?,
        })
    }

    /// Starts containerd (again) and waits until it listens.
    pub fn start_containerd(&self, node: &Node) -> Result<()> {
        let socket = node.path(CONTAINERD);
        self.containerd.start_within(PATIENCE, || central::accepts(&socket))
    }

    /// Imports the image in an archive, as `docker save` writes it, into containerd.
    pub fn import_image(&self, node: &Node, archive: &Path) -> Result<()> {
        // Absolute, because ctr runs in the mount namespace of the node.
        let archive =
            archive.canonicalize().with_context(|| format!("find {}", archive.display()))?;
        node.run([
            "ctr",
            "--address",
            CONTAINERD,
            "--namespace",
            "k8s.io",
            "images",
            "import",
            &archive.to_string_lossy(),
        ])
        .map(drop)
    }
}

/// Installs the reference plugin `portmap` on a node. Returns the option with which the server
/// chains it.
pub(crate) fn chain_portmap(node: &Node) -> Result<String> {
    let file = "/etc/openvswitch/cni-chain.json";
    fs::write(node.path(file), r#"[{"type":"portmap","capabilities":{"portMappings":true}}]"#)
        .with_context(|| format!("write {file} of {}", node.name))?;
    symlink(reference::plugin("portmap")?, node.path(mounts::PLUGINS).join("portmap"))
        .context("install portmap")?;
    Ok(format!("--cni-chain={file}"))
}

/// The node's own addresses, as `--node-ip` wants them.
pub(super) fn addresses(node: &Node, families: Families) -> String {
    let (v4, v6) = (fabric::address(node.index), fabric::address_v6(node.index));
    match families {
        Families::V4 => v4,
        Families::V6 => v6,
        Families::Dual => format!("{v4},{v6}"),
    }
}

/// Directory of the certificate of a node's server, on the node.
pub const CERTIFICATES: &str = "/run/ovnkube-certificates";

/// How a node's server authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// By a token of the account that all nodes share.
    Token,
    /// By a certificate of its own, which it requests with its kubelet's kubeconfig.
    Certificate,
}

/// Options of the project's server: it learns its node and pods from the API server.
pub(crate) fn server_arguments(
    node: &str,
    identity: Identity,
    credentials: &Credentials,
    network: &Network,
) -> Vec<String> {
    let mut arguments = vec![
        format!("--init-node={node}"),
        format!("--k8s-apiserver={}", control_plane::URL),
        format!("--k8s-cacert={}", credentials.authority().display()),
        format!("--cluster-subnets={}", network.cluster_subnets),
        format!("--k8s-service-cidrs={}", network.service_cidrs),
    ];
    match identity {
        Identity::Token => {
            arguments
                .push(format!("--k8s-token-file={}", credentials.token(access::NODE).display()));
        }
        Identity::Certificate => {
            let bootstrap = credentials.kubeconfig(&kubelet(node));
            arguments.push(format!("--bootstrap-kubeconfig={}", bootstrap.display()));
            arguments.push(format!("--cert-dir={CERTIFICATES}"));
        }
    }
    arguments
}
