//! What pods could leave behind on the nodes and in OVN, before and after.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::Cluster;
use crate::{Census, eventually};

/// The nodes and OVN, without pods.
#[derive(Debug)]
pub struct Leftovers {
    nodes: Vec<Census>,
    ports: String,
}

impl Cluster {
    /// What is there now.
    pub fn leftovers(&self) -> Result<Leftovers> {
        let nodes = self.lab.nodes.iter().map(|node| node.census()).collect::<Result<_>>()?;
        Ok(Leftovers { nodes, ports: self.logical_ports()? })
    }

    /// Waits until no pod is left in the namespace `default` and everything is as it was `before` the first: links, namespaces, Open vSwitch's rows, tracked
    /// connections, logical ports.
    pub fn must_leave_nothing(&self, before: &Leftovers) -> Result<()> {
        self.pods.wait("the last pod is gone", Duration::from_secs(60), |pods| {
            let left: Vec<&String> = pods.keys().filter(|key| key.starts_with("default/")).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })?;
        // A pod may be gone from the API server a moment before its last network namespace is, and Open vSwitch's own connection tracker keeps
        // a ping in mind for 60 s after its last packet. A static pod has its logical port for 120 s after its mirror is gone.
        eventually("nothing is left of the pods", Duration::from_secs(140), || {
            for (node, before) in self.lab.nodes.iter().zip(&before.nodes) {
                before.must_equal(&node.census()?).with_context(|| format!("on {}", node.name))?;
                let tracked =
                    node.run(["ovs-appctl", "dpctl/dump-conntrack"])? + &node.run(["cat", "/proc/net/nf_conntrack"]).unwrap_or_default();
                let of_pods: Vec<&str> = tracked.lines().filter(|line| line.contains("=10.244.")).collect();
                ensure!(of_pods.is_empty(), "{}: connections of pods are still tracked: {of_pods:#?}", node.name);
            }
            let ports = self.logical_ports()?;
            ensure!(ports == before.ports, "logical ports: {ports}\nbefore: {}", before.ports);
            Ok(())
        })
    }

    fn logical_ports(&self) -> Result<String> {
        let ports = self.lab.central.nbctl(["--bare", "--columns=name", "list", "Logical_Switch_Port"])?;
        let mut ports: Vec<&str> = ports.split_whitespace().collect();
        ports.sort_unstable();
        Ok(ports.join(" "))
    }
}
