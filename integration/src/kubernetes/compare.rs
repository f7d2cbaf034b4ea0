//! `integration cluster --compare ROUNDS`: bursts of pods, with this network and with the reference
//! plugins `bridge` and `host-local` on the same node, in turn. Measures the time from creating
//! them until all are ready, from deleting them until all are gone, and how much of it the runtime
//! spent in the plugin.
//!
//! | file | what it is |
//! |---|---|
//! | [`burst`] | one burst of pods, measured |
//! | [`plugin_time`] | the time spent in plugins, from the runtime's metrics and our plugin's log |
//! | [`report`] | the table and `bench-cluster.json` |

use std::{fs, time::Duration};

use anyhow::Result;
use integration::{Cluster, Node, cluster::reference, eventually, executable};
use serde::Serialize;
use serde_json::json;

use self::{burst::Burst, report::Report};
use crate::report::{environment::Environment, publish};

mod burst;
mod plugin_time;
mod report;

/// How long a burst may take: enough for a hundred pods on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// CNI configuration of the plugin `bridge`. The runtime uses the first file of the directory, so
/// this one comes before ours.
const BRIDGE_CONF: &str = "/etc/cni/net.d/00-bridge.conflist";
const BRIDGE_PREFIX: &str = "10.99.";

/// The network that pods get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Network {
    Ours,
    Bridge,
}

/// Measures, prints, and writes `bench/bench-cluster.json` in cargo's target directory.
pub(crate) fn run(cluster: &Cluster, rounds: usize, sizes: &[usize]) -> Result<()> {
    let node = &cluster.lab.nodes[0];
    let environment = Environment::of_this_machine(
        executable::under_test(executable::PLUGIN)?.metadata()?.len(),
    )?;
    let mut bursts = Vec::new();
    for round in 0..rounds {
        let mut order = [Network::Ours, Network::Bridge];
        // In turn, because the second network finds a warmer machine.
        order.rotate_left(round % 2);
        for network in order {
            switch(cluster, node, network)?;
            for pods in sizes {
                let burst = Burst::measure(cluster, node, network, *pods)?;
                eprintln!("round {} of {rounds}: {burst}", round + 1);
                bursts.push(burst);
            }
        }
    }
    let report = Report::new(environment.at_the_end()?, rounds, bursts);
    publish(&report, &report, "bench/bench-cluster.json")
}

/// Makes the runtime use `network`, and waits until a pod has it: the runtime reads its directory
/// some time after the change.
fn switch(cluster: &Cluster, node: &Node, network: Network) -> Result<()> {
    match network {
        Network::Bridge => {
            let plugin = reference::bridge("cni0", "10.99.0.0/16");
            let conf = json!({"cniVersion": "1.0.0", "name": "bridge", "plugins": [plugin]});
            fs::write(node.path("/run/bridge.conflist"), conf.to_string())?;
            node.run(["mv", "/run/bridge.conflist", BRIDGE_CONF])?;
            // The control plane does nothing for these pods, and must not take processor time from
            // them.
            if cluster.master.is_running() {
                cluster.master.stop()?;
            }
        }
        Network::Ours => {
            node.run(["rm", "-f", BRIDGE_CONF])?;
            if !cluster.master.is_running() {
                cluster.master.spawn()?;
            }
        }
    }
    eventually(&format!("pods have {network:?}"), PATIENCE, || {
        Burst::measure(cluster, node, network, 1).map(drop)
    })
}
