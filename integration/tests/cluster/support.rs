//! Manifests of test pods, and waiting for them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Pod,
    cluster::{attached::is_ready, programs::AGNHOST},
};
use serde_json::{Value, json};

/// The collection of pods in the namespace that all tests use.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// How long pods may take to be ready, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A pod on `node` with servers for HTTP (8080) and UDP (8081).
pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec(node)})
}

/// What is in it.
pub(crate) fn spec(node: &str) -> Value {
    json!({
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "dnsPolicy": "Default",
        "containers": [{"name": "main", "image": AGNHOST, "imagePullPolicy": "Never", "args": ["--http-port=8080", "--udp-port=8081"]}],
    })
}

/// The same with nothing but a shell that waits: many of them are cheap.
pub(crate) fn small_pod(name: &str, node: &str) -> Value {
    let mut pod = pod(name, node);
    pod["spec"]["containers"][0] = json!({
        "name": "main", "image": AGNHOST, "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],
    });
    pod
}

/// Waits until the pods of these names are ready.
pub(crate) fn wait_ready(cluster: &Cluster, names: &[impl AsRef<str>]) -> Result<()> {
    wait_ready_within(cluster, names, SOON)
}

fn wait_ready_within(cluster: &Cluster, names: &[impl AsRef<str>], deadline: Duration) -> Result<()> {
    cluster.pods.wait("the pods are ready", deadline, |known| {
        let waiting: Vec<&str> =
            names.iter().map(AsRef::as_ref).filter(|name| !known.get(&format!("default/{name}")).is_some_and(is_ready)).collect();
        ensure!(waiting.is_empty(), "{} of {} are not: {waiting:?}", waiting.len(), names.len());
        Ok(())
    })
}

/// Creates one and waits until it is ready.
pub(crate) fn start(cluster: &Cluster, pod: &Value) -> Result<Pod> {
    start_within(cluster, pod, SOON)
}

/// The same for one that may take longer.
pub(crate) fn start_within(cluster: &Cluster, pod: &Value, deadline: Duration) -> Result<Pod> {
    cluster.api.create(PODS, pod)?;
    let name = pod["metadata"]["name"].as_str().context("a name")?;
    wait_ready_within(cluster, &[name], deadline)?;
    attached(cluster, name)
}

/// The running pod `name`, for packets.
pub(crate) fn attached(cluster: &Cluster, name: &str) -> Result<Pod> {
    cluster.attached(&format!("default/{name}"))
}

/// Deletes one, and does not wait.
pub(crate) fn delete(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.api.delete(&format!("{PODS}/{name}")).map(drop)
}

/// Waits until it is gone.
pub(crate) fn wait_gone(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.pods.wait(&format!("{name} is gone"), SOON, |known| {
        ensure!(!known.contains_key(&format!("default/{name}")), "it is there");
        Ok(())
    })
}
