//! Nodes with the reference network, beside those with the project's: the plugins `bridge` and
//! `host-local`, a route to the pods of each other such node, one rule that masquerades, and
//! kube-proxy in nftables mode with its defaults. The kernel forwards everything, and the node's
//! NIC is no port of a switch.
//!
//! Must not know: what is compared.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{
    Cluster, Worker,
    credentials::KUBE_PROXY,
    fresh::{configure_nic, remove_switch},
    programs,
};
use crate::{Daemon, Node, cluster::Credentials, command, fabric, world};

/// Addresses of the pods of all these nodes.
const PODS: &str = "10.98.0.0/16";
const CONFIGURATION: &str = "/etc/cni/net.d/10-bridge.conflist";

/// Debian's directory for the plugins of the CNI project (containernetworking-plugins).
pub const PLUGINS: &str = "/usr/lib/cni";

/// A plugin of the CNI project.
///
/// # Errors
/// If it is not there, with the command that installs it.
pub fn plugin(name: &str) -> Result<PathBuf> {
    let path = Path::new(PLUGINS).join(name);
    ensure!(
        path.is_file(),
        "{} is missing; install it with: integration/prerequisites.sh bench",
        path.display()
    );
    Ok(path)
}

/// The configuration of the plugin `bridge` with `host-local`: a bridge of this name, and pods in
/// this subnet.
pub fn bridge(name: &str, subnet: &str) -> Value {
    json!({
        "type": "bridge", "bridge": name, "isGateway": true, "ipMasq": false,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// kube-proxy of a node, not running yet.
pub(super) fn kube_proxy(node: &Node, credentials: &Credentials) -> Result<Daemon> {
    let arguments = [
        format!("--kubeconfig={}", credentials.kubeconfig(KUBE_PROXY).display()),
        format!("--hostname-override={}", node.name),
        format!("--cluster-cidr={PODS}"),
        "--proxy-mode=nftables".to_owned(),
        // Limits of connections belong to the machine, not to a network namespace.
        "--conntrack-max-per-core=0".to_owned(),
        "-v=2".to_owned(),
    ];
    Ok(node.new_daemon(programs::kubernetes("kube-proxy")?, arguments))
}

/// The part of [`PODS`] that a node has.
fn subnet(node: &Node) -> String {
    format!("10.98.{}.0/24", node.index)
}

impl Cluster {
    /// Makes a node of the lab one with the reference network.
    pub(super) fn start_reference_node(&self, node: &Node, worker: &Worker) -> Result<()> {
        remove_switch(node)?;
        configure_nic(node)?;
        let index = node.index;
        node.shell(&format!(
            "ethtool -K eth0 tx on
             echo 1 > /proc/sys/net/ipv4/ip_forward
             nft 'add table ip lab
                  add chain ip lab postrouting {{ type nat hook postrouting priority srcnat; }}
                  add rule ip lab postrouting ip saddr {PODS} ip daddr != {PODS} masquerade'"
        ))?;
        // Here, too, the kernel may leave checksums and segments to the NIC: no switch in userspace
        // sees them.
        command::output(Command::new("ethtool").args([
            "-K",
            &format!("fabric{index}"),
            "tx",
            "on",
        ]))?;
        if self.lab.has_world() {
            node.run(["ip", "route", "add", "default", "via", world::ROUTER])?;
        }
        let others = &self.lab.nodes[self.first_reference_node as usize - 1..];
        for other in others.iter().filter(|other| other.index != index) {
            node.run(["ip", "route", "add", &subnet(other), "via", &fabric::address(other.index)])?;
        }
        let mut plugin = bridge("cni0", &subnet(node));
        plugin["hairpinMode"] = json!(true);
        let list = json!({"cniVersion": "1.0.0", "name": "bridge", "plugins": [plugin]});
        fs::write(node.path(CONFIGURATION), list.to_string())
            .with_context(|| format!("write {CONFIGURATION} of {}", node.name))?;
        self.announce_node(node, worker)?;
        worker.kube_proxy.spawn()
    }
}
