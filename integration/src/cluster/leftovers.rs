//! What pods could leave behind on the nodes and in OVN: recorded before them, and compared after
//! them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::Cluster;
use crate::{Census, eventually};

/// State of the nodes and of OVN without pods.
#[derive(Debug)]
pub struct Leftovers {
    nodes: Vec<Census>,
    ports: String,
}

impl Cluster {
    /// Records the current state.
    pub fn leftovers(&self) -> Result<Leftovers> {
        let nodes = self.lab.nodes.iter().map(|node| node.census()).collect::<Result<_>>()?;
        Ok(Leftovers { nodes, ports: self.logical_ports()? })
    }

    /// Waits until no pod is left in the namespace `default` and everything is as it was `before`
    /// the first one: links, namespaces, rows of Open vSwitch, tracked connections, logical ports.
    pub fn must_leave_nothing(&self, before: &Leftovers) -> Result<()> {
        self.pods.wait("the last pod is gone", Duration::from_secs(60), |pods| {
            let left: Vec<&String> =
                pods.keys().filter(|key| key.starts_with("default/")).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })?;
        // A pod may be gone from the API server a moment before its last network namespace is. Open
        // vSwitch's own connection tracker keeps a ping for 60 s after its last packet. A static
        // pod keeps its logical port for 120 s after its mirror is gone; the rest of the 140 s is
        // for a busy machine.
        eventually("nothing is left of the pods", Duration::from_secs(140), || {
            for (node, before) in self.lab.nodes.iter().zip(&before.nodes) {
                before.must_equal(&node.census()?).with_context(|| format!("on {}", node.name))?;
                // Of both datapaths. Without the module nf_conntrack the kernel has no such file,
                // and tracks nothing.
                let tracked = node.run(["ovs-appctl", "dpctl/dump-conntrack"])?
                    + &node.run(["cat", "/proc/net/nf_conntrack"]).unwrap_or_default();
                let of_pods: Vec<&str> =
                    tracked.lines().filter(|line| line.contains("=10.244.")).collect();
                ensure!(
                    of_pods.is_empty(),
                    "{}: connections of pods are still tracked: {of_pods:#?}",
                    node.name
                );
            }
            let ports = self.logical_ports()?;
            ensure!(ports == before.ports, "logical ports: {ports}\nbefore: {}", before.ports);
            Ok(())
        })
    }

    fn logical_ports(&self) -> Result<String> {
        let ports =
            self.lab.central.nbctl(["--bare", "--columns=name", "list", "Logical_Switch_Port"])?;
        let mut ports: Vec<&str> = ports.split_whitespace().collect();
        ports.sort_unstable();
        Ok(ports.join(" "))
    }
}
