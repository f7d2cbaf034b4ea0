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
        manifest::{idle_pod, on_node},
    },
};
use serde::Serialize;
use serde_json::Value;

use super::{
    BRIDGE_PREFIX, Network, PATIENCE,
    plugin_time::{self, InPlugin, Spent},
};
use crate::report::percentiles::Percentiles;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// The measurements of one burst; times are in seconds unless a field says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Burst {
    pub(super) network: Network,
    pub(super) pods: usize,
    /// From the first request until the API server reported the last pod as ready.
    pub(super) all_ready: f64,
    /// The same for the median pod.
    pub(super) median_ready: f64,
    /// The mean of all pods; the share of the plugin is a part of it.
    pub(super) mean_ready: f64,
    /// From the request to delete all until the API server reported the last as gone. Containers
    /// have a second to end.
    pub(super) all_gone: f64,
    /// Time in plugins as the runtime counts it: from the start of the first plugin of a sandbox to
    /// the end of its last, `loopback` included.
    pub(super) add: Spent,
    pub(super) del: Spent,
    /// Median of each stage of our plugin's ADDs, in ms; empty for other plugins.
    pub(super) stages: BTreeMap<String, f64>,
}

impl Burst {
    /// Runs and measures one burst of `count` pods.
    ///
    /// # Errors
    /// If a pod has another network than `network`, or exists already.
    pub(super) fn measure(
        cluster: &Cluster,
        node: &Node,
        network: Network,
        count: usize,
    ) -> Result<Self> {
        let pods: Vec<Value> = (0..count)
            .map(|number| on_node(idle_pod(&format!("pod-{number}")), &node.name))
            .collect();
        // Counters and log go on from earlier bursts: only the difference counts.
        let before = InPlugin::now(node)?;
        let logged = plugin_time::log_length(node);
        let began = Instant::now();
        let mut ready: BTreeMap<String, f64> = BTreeMap::new();
        cluster.api.create_all(PODS, &pods)?;
        let known = cluster.pods.wait("all pods are ready", PATIENCE, |known| {
            // The first event that shows a pod as ready counts, and no later one.
            for (name, _) in known.iter().filter(|(_, pod)| is_ready(pod)) {
                ready.entry(name.clone()).or_insert_with(|| began.elapsed().as_secs_f64());
            }
            ensure!(ready.len() == count, "{} of {count} are ready", ready.len());
            Ok(known.clone())
        })?;
        let all_gone = delete_all(cluster)?;
        // After the measurement, which this would disturb.
        for (name, pod) in &known {
            let address = address_of(pod).with_context(|| format!("{name} has no address"))?;
            ensure!(
                address.starts_with(BRIDGE_PREFIX) == (network == Network::Bridge),
                "{name} has {address}, which is not of {network:?}"
            );
        }
        let InPlugin { add, del } = InPlugin::now(node)?.since(before);
        let times = Percentiles::of(ready.values().copied());
        Ok(Self {
            network,
            pods: count,
            all_ready: times.max,
            median_ready: times.p50,
            mean_ready: ready.values().sum::<f64>() / count.max(1) as f64,
            all_gone: all_gone.as_secs_f64(),
            add,
            del,
            stages: match network {
                Network::Ours => plugin_time::stages(node, logged)?,
                Network::Bridge => BTreeMap::new(),
            },
        })
    }

    /// The part of the time until a pod is ready that is the plugin's ADD, from 0 to 1.
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
        write!(
            f,
            "{pods} pods, {network:?}: ready after {all_ready:.2} s, gone after {all_gone:.2} s; a plugin's "
        )?;
        write!(f, "ADD {:.0} ms, DEL {:.0} ms", add.mean() * 1e3, del.mean() * 1e3)
    }
}
