//! One burst: pods are created at once, become ready, are deleted at once, and go.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Node,
    cluster::{
        attached::{address_of, is_ready},
        programs::AGNHOST,
    },
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    BRIDGE_PREFIX, Network, PATIENCE,
    plugin_time::{self, InPlugin, Spent},
};
use crate::bench::statistics::{percentile, sorted};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// What was measured; all times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Burst {
    pub(super) network: Network,
    pub(super) pods: usize,
    /// From the first request until the API server said so of the last pod.
    pub(super) all_ready: f64,
    /// The same of the median pod.
    pub(super) median_ready: f64,
    /// The mean of all pods: what the plugin's time is a share of.
    pub(super) mean_ready: f64,
    /// From the request to delete all until the API server said that the last was gone. Containers have a second to end.
    pub(super) all_gone: f64,
    /// As the runtime counts it: from starting the first plugin of a sandbox to the end of its last, also `loopback`.
    pub(super) add: Spent,
    pub(super) del: Spent,
    /// Median of each stage of our plugin's ADDs, in ms; nothing for others.
    pub(super) stages: BTreeMap<String, f64>,
}

impl Burst {
    /// An error if a pod has another network than `network`, or is there already.
    pub(super) fn measure(cluster: &Cluster, node: &Node, network: Network, count: usize) -> Result<Self> {
        let pods: Vec<Value> = (0..count).map(|number| pod(&format!("pod-{number}"), &node.name)).collect();
        let before = InPlugin::now(node)?;
        let logged = plugin_time::log_length(node);
        let began = Instant::now();
        let mut ready: BTreeMap<String, f64> = BTreeMap::new();
        cluster.api.create_all(PODS, &pods)?;
        let known = cluster.pods.wait("all pods are ready", PATIENCE, |known| {
            for (name, _) in known.iter().filter(|(_, pod)| is_ready(pod)) {
                ready.entry(name.clone()).or_insert_with(|| began.elapsed().as_secs_f64());
            }
            ensure!(ready.len() == count, "{} of {count} are ready", ready.len());
            Ok(known.clone())
        })?;
        let all_gone = delete_all(cluster)?;
        for (name, pod) in &known {
            let address = address_of(pod).with_context(|| format!("{name} has no address"))?;
            ensure!(
                address.starts_with(BRIDGE_PREFIX) == (network == Network::Bridge),
                "{name} has {address}, which is not of {network:?}"
            );
        }
        let InPlugin { add, del } = InPlugin::now(node)?.since(before);
        let times = sorted(ready.into_values().collect());
        Ok(Self {
            network,
            pods: count,
            all_ready: percentile(&times, 100),
            median_ready: percentile(&times, 50),
            mean_ready: times.iter().sum::<f64>() / count.max(1) as f64,
            all_gone: all_gone.as_secs_f64(),
            add,
            del,
            stages: match network {
                Network::Ours => plugin_time::stages(node, logged)?,
                Network::Bridge => BTreeMap::new(),
            },
        })
    }

    /// How much of a pod's way to ready was the plugin's ADD, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        self.add.mean() / self.mean_ready.max(f64::EPSILON)
    }
}

fn delete_all(cluster: &Cluster) -> Result<Duration> {
    let began = Instant::now();
    cluster.api.delete(PODS)?;
    cluster.pods.wait("all pods are gone", PATIENCE, |known| {
        ensure!(known.is_empty(), "{} are there", known.len());
        Ok(began.elapsed())
    })
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, pods, all_ready, all_gone, add, del, .. } = self;
        write!(f, "{pods} pods, {network:?}: ready after {all_ready:.2} s, gone after {all_gone:.2} s; a plugin's ")?;
        write!(f, "ADD {:.0} ms, DEL {:.0} ms", add.mean() * 1e3, del.mean() * 1e3)
    }
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "dnsPolicy": "Default",
            "containers": [{
                "name": "main", "image": AGNHOST, "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],
            }],
        },
    })
}
