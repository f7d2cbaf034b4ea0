//! What is to be measured, on which pods; made by the command, read by the driver on the node.

use std::{net::IpAddr, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use integration::{Daemon, Node};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::measurements::Process;

/// How much is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    /// Pods that each contestant adds and deletes in each round.
    pub(crate) pods: usize,
    /// Rounds that count.
    pub(crate) rounds: u32,
    /// How many calls at the same time; 1 first.
    pub(crate) at_once: Vec<usize>,
}

/// Everything the driver has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) size: Size,
    pub(crate) pods: Vec<PlannedPod>,
    /// MTU of the pods.
    pub(crate) mtu: u32,
    /// Whose CPU time counts.
    pub(crate) daemons: Vec<(Process, u32)>,
}

/// A pod whose logical port, namespace and manifest exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) iface_id: String,
    pub(crate) mac: String,
    pub(crate) address: IpNet,
    pub(crate) gateway: IpAddr,
    /// As the node sees it.
    pub(crate) netns: PathBuf,
}

impl Size {
    /// The usual size, or the quick one, with what the caller wants otherwise.
    pub(crate) fn new(quick: bool, pods: Option<usize>, rounds: Option<u32>, at_once: Option<&[usize]>) -> Result<Self> {
        let (usual_pods, usual_rounds, usual_at_once) = if quick { (16, 6, &[1, 8][..]) } else { (32, 10, &[1, 8, 32][..]) };
        let mut at_once = at_once.unwrap_or(usual_at_once).to_vec();
        at_once.push(1);
        at_once.sort_unstable();
        at_once.dedup();
        ensure!(at_once.first() == Some(&1), "0 calls at once measure nothing");
        let most = at_once.last().copied().unwrap_or(1);
        let pods = pods.unwrap_or(usual_pods).max(most);
        ensure!((1..=2000).contains(&pods), "{pods} pods: the node has room for 2000");
        let rounds = rounds.unwrap_or(usual_rounds);
        ensure!(rounds > 0, "0 rounds measure nothing");
        Ok(Self { pods, rounds, at_once })
    }
}

impl Plan {
    /// The plan for `pods` on `node`.
    pub(crate) fn new(size: Size, pods: &[integration::Pod], node: &Node) -> Result<Self> {
        let Node { ovsdb_server, vswitchd, ovn_controller, server, mtu, .. } = node;
        let pid = |daemon: &Daemon| daemon.pid().with_context(|| format!("{} is not running", daemon.name()));
        let daemons = vec![
            (Process::Server, pid(server)?),
            (Process::OvsdbServer, pid(ovsdb_server)?),
            (Process::Vswitchd, pid(vswitchd)?),
            (Process::OvnController, pid(ovn_controller)?),
        ];
        Ok(Self { size, pods: pods.iter().map(PlannedPod::of).collect(), mtu: *mtu, daemons })
    }
}

impl PlannedPod {
    fn of(pod: &integration::Pod) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            iface_id: pod.port(),
            mac: pod.mac.clone(),
            address: pod.addresses[0],
            gateway: pod.gateways[0],
            netns: pod.netns.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_once_is_always_measured_and_the_pods_suffice_for_the_most() {
        let size = Size::new(false, Some(4), None, Some(&[32, 8, 8])).unwrap();
        assert_eq!((size.at_once, size.pods), (vec![1, 8, 32], 32));
    }

    #[test]
    fn a_size_that_measures_nothing_is_refused() {
        assert!(Size::new(true, None, Some(0), None).is_err());
        assert!(Size::new(true, None, None, Some(&[0])).is_err());
        assert!(Size::new(true, Some(3000), None, None).is_err());
    }
}
