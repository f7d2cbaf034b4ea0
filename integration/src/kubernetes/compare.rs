//! `integration cluster --compare ROUNDS`: from creating pods to all of them ready, with this network and with the reference plugins
//! `bridge` and `host-local` on the same node, in turn.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Node,
    cluster::{
        attached::{address_of, is_ready},
        programs::AGNHOST,
    },
    eventually,
};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const PATIENCE: Duration = Duration::from_secs(180);
/// The runtime uses the first configuration of the directory.
const BRIDGE_CONF: &str = "/etc/cni/net.d/00-bridge.conflist";
const BRIDGE_PREFIX: &str = "10.99.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Ours,
    Bridge,
}

/// Measures and prints.
pub(crate) fn run(cluster: &Cluster, rounds: usize) -> Result<()> {
    let node = &cluster.lab.nodes[0];
    for count in [1, 50] {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for (network, times) in [Network::Ours, Network::Bridge].into_iter().zip(&mut times) {
                switch(cluster, node, network)?;
                let took = once(cluster, node, network, count)?;
                eprintln!("round {round}, {count} pods, {network:?}: {:.3} s", took.as_secs_f64());
                times.push(took);
            }
        }
        let [ours, bridge] = times.map(median);
        println!(
            "{count} pods ready: {:.3} s, bridge and host-local {:.3} s: {:+.3} s, {:+.1} % (medians of {rounds})",
            ours,
            bridge,
            ours - bridge,
            (ours / bridge - 1.0) * 100.0
        );
    }
    Ok(())
}

/// Makes the runtime use `network`, and waits until a pod has it: the runtime reads its directory some time after it changes.
fn switch(cluster: &Cluster, node: &Node, network: Network) -> Result<()> {
    match network {
        Network::Bridge => {
            let plugin = json!({
                "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/16"}]]},
            });
            let conf = json!({"cniVersion": "1.0.0", "name": "bridge", "plugins": [plugin]});
            fs::write(node.path("/run/bridge.conflist"), conf.to_string())?;
            node.run(["mv", "/run/bridge.conflist", BRIDGE_CONF])?;
            // It has nothing to do with these pods, and takes no processor time from them.
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
    eventually(&format!("pods have {network:?}"), PATIENCE, || once(cluster, node, network, 1).map(drop))
}

/// One measurement; an error if a pod had another network.
fn once(cluster: &Cluster, node: &Node, network: Network, count: usize) -> Result<Duration> {
    let pods: Vec<Value> = (0..count).map(|number| pod(&format!("pod-{number}"), &node.name)).collect();
    let began = Instant::now();
    cluster.api.create_all(PODS, &pods)?;
    let (took, known) = cluster.pods.wait("all pods are ready", PATIENCE, |known| {
        let ready = known.values().filter(|pod| is_ready(pod)).count();
        ensure!(ready == count, "{ready} of {count} are ready");
        Ok((began.elapsed(), known.clone()))
    })?;
    cluster.api.delete(PODS)?;
    cluster.pods.wait("all pods are gone", PATIENCE, |known| {
        ensure!(known.is_empty(), "{} are there", known.len());
        Ok(())
    })?;
    for (name, pod) in &known {
        let address = address_of(pod).with_context(|| format!("{name} has no address"))?;
        ensure!(address.starts_with(BRIDGE_PREFIX) == (network == Network::Bridge), "{name} has {address}, which is not of {network:?}");
    }
    Ok(took)
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

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, Duration::as_secs_f64)
}
