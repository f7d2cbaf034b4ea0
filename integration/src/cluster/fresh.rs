//! Nodes as machines on which nothing of the network was ever installed: no Open vSwitch, no OVN,
//! no plugin. The address of a node is on its NIC.
//!
//! Must not know: what is installed on them.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use super::{Cluster, PATIENCE, Worker};
use crate::{Node, eventually, fabric, mounts, world};

impl Cluster {
    /// Makes all nodes fresh, and starts their kubelets. The cluster must be one
    /// [`without_network`](super::Blueprint::without_network).
    ///
    /// # Errors
    /// If Open vSwitch or OVN cannot be ended on a node.
    pub fn freshen(&self) -> Result<()> {
        self.each_node(|node, worker: &Worker| {
            remove_switch(node)?;
            configure_nic(node)?;
            if self.lab.has_world() {
                node.run(["ip", "route", "add", "default", "via", world::ROUTER])?;
            }
            node.shell("rm -rf /etc/openvswitch/* /run/openvswitch/* /run/ovn/*")?;
            let plugins = node.path(mounts::PLUGINS);
            for plugin in
                fs::read_dir(&plugins).with_context(|| format!("list {}", plugins.display()))?
            {
                fs::remove_file(plugin?.path())?;
            }
            worker.kubelet.spawn()
        })
    }
}

/// Gives the NIC of a node without a switch the node's address.
pub(super) fn configure_nic(node: &Node) -> Result<()> {
    let (index, own) = (node.index, fabric::address(node.index));
    // The address of Ethernet is that of the bridge before: no neighbour has to resolve it again.
    node.shell(&format!(
        "ip link set eth0 address 0a:00:00:01:00:{index:02x} up
         ip addr add {own}/24 dev eth0"
    ))
    .map(drop)
}

/// Ends Open vSwitch and OVN on a node.
pub(super) fn remove_switch(node: &Node) -> Result<()> {
    // Told to exit, unlike by a signal, ovn-controller removes its chassis, and with it the tunnels
    // of the others.
    node.run(["ovn-appctl", "--target=ovn-controller", "exit"])?;
    eventually("ovn-controller has ended", PATIENCE, || {
        ensure!(!node.ovn_controller.is_running(), "it is running");
        Ok(())
    })?;
    node.ovn_controller.end()?;
    // Of either datapath: with the last bridge of its type it goes, too, and lets go of the NIC.
    node.vsctl(["del-br", "breth0", "--", "del-br", "br-int"])?;
    node.vswitchd.stop()?;
    node.ovsdb_server.stop()
}
