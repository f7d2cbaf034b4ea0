//! The greeting of the shell: a Deployment over all nodes, each of whose pods reaches each other
//! one.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Pod,
    cluster::{attached::is_ready, programs::AGNHOST},
};
use serde_json::json;

pub(crate) const NAME: &str = "web";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// How long the pods may take to be ready, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Creates the Deployment with two pods for each node, and returns a table of the round trips
/// between them.
pub(crate) fn show(cluster: &Cluster) -> Result<String> {
    let replicas = 2 * cluster.workers.len();
    let labels = json!({"app": NAME});
    // Two pods on every node: with this skew no node gets three before another has two.
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels},
    }]);
    let container = json!({"name": NAME, "image": AGNHOST, "imagePullPolicy": "Never", "args": ["--http-port=8080", "--udp-port=8081"],
        "readinessProbe": {"httpGet": {"path": "/hostname", "port": 8080}, "periodSeconds": 1}});
    let spec = json!({"containers": [container], "topologySpreadConstraints": spread, "terminationGracePeriodSeconds": 1, "enableServiceLinks": false});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME, "namespace": "default", "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    });
    cluster.api.create(DEPLOYMENTS, &deployment)?;
    let names = cluster.pods.wait("the pods of the Deployment are ready", PATIENCE, |known| {
        let of_it = known.iter().filter(|(key, _)| key.starts_with("default/"));
        let ready: Vec<String> =
            of_it.filter(|(_, pod)| is_ready(pod)).map(|(name, _)| name.clone()).collect();
        ensure!(ready.len() == replicas, "{} of {replicas} are", ready.len());
        Ok(ready)
    })?;
    let mut pods = names.iter().map(|name| cluster.attached(name)).collect::<Result<Vec<Pod>>>()?;
    pods.sort_by(|one, other| (&one.node, one.address()).cmp(&(&other.node, other.address())));
    let mut text = format!(
        "Deployment {NAME}, {replicas} pods; round trips between them in ms (rows send):\n\n  {:<8}{:<16}",
        "", ""
    );
    for pod in &pods {
        write!(text, "{:>14}", pod.address().to_string())?;
    }
    for from in &pods {
        write!(text, "\n  {:<8}{:<16}", from.node, from.address().to_string())?;
        for to in &pods {
            let time =
                if from.uid == to.uid { "-".to_owned() } else { round_trip(cluster, from, to)? };
            write!(text, "{time:>14}")?;
        }
    }
    Ok(text)
}

fn round_trip(cluster: &Cluster, from: &Pod, to: &Pod) -> Result<String> {
    // The first packet waits until addresses are resolved, and is not the one to show.
    cluster.lab.ping(from, to.address())?;
    let answer = cluster
        .lab
        .node_of(from)
        .run_in_pod(from, ["ping", "-n", "-c", "1", "-W", "2", &to.address().to_string()])?;
    let time = answer
        .split_whitespace()
        .find_map(|word| word.strip_prefix("time="))
        .context(answer.clone())?;
    Ok(time.to_owned())
}
