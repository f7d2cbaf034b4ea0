//! Manifests of test pods, and waiting for them.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Pod,
    cluster::{
        attached::is_ready,
        manifest::{self, for_node},
    },
    eventually,
    peer::Reply,
    threads::on_threads,
    traffic::End,
};
use serde_json::{Value, json};

/// The collection of pods in the namespace that all tests use.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// Limit of the wait for pods to become ready on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Threads that look for pods, or ping, at once.
const THREADS: usize = 4;

/// A pod on `node` with servers for HTTP (port 8080) and UDP (port 8081).
pub(crate) fn pod(name: &str, node: &str) -> Value {
    for_node(manifest::pod(name, &json!({"args": ["--http-port=8080", "--udp-port=8081"]})), node)
}

/// The spec of such a pod.
pub(crate) fn spec(node: &str) -> Value {
    pod("any", node)["spec"].take()
}

/// The same pod with only a shell that waits, so that many of them are cheap.
pub(crate) fn small_pod(name: &str, node: &str) -> Value {
    for_node(manifest::idle_pod(name), node)
}

/// Waits until the pods with these names are ready.
pub(crate) fn wait_ready(cluster: &Cluster, names: &[impl AsRef<str>]) -> Result<()> {
    wait_ready_within(cluster, names, SOON)
}

fn wait_ready_within(
    cluster: &Cluster,
    names: &[impl AsRef<str>],
    deadline: Duration,
) -> Result<()> {
    cluster.pods.wait("the pods are ready", deadline, |known| {
        let waiting: Vec<&str> = names
            .iter()
            .map(AsRef::as_ref)
            .filter(|name| !known.get(&format!("default/{name}")).is_some_and(is_ready))
            .collect();
        ensure!(waiting.is_empty(), "{} of {} are not: {waiting:?}", waiting.len(), names.len());
        Ok(())
    })
}

/// Creates a pod and waits until it is ready.
pub(crate) fn start(cluster: &Cluster, pod: &Value) -> Result<Pod> {
    start_within(cluster, pod, SOON)
}

/// The same for a pod that may take longer.
pub(crate) fn start_within(cluster: &Cluster, pod: &Value, deadline: Duration) -> Result<Pod> {
    cluster.api.create(PODS, pod)?;
    let name = pod["metadata"]["name"].as_str().context("a name")?;
    wait_ready_within(cluster, &[name], deadline)?;
    attached(cluster, name)
}

/// The running pod `name`, as the lab's traffic functions need it.
pub(crate) fn attached(cluster: &Cluster, name: &str) -> Result<Pod> {
    cluster.attached(&format!("default/{name}"))
}

/// Deletes a pod without waiting.
pub(crate) fn delete(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.api.delete(&format!("{PODS}/{name}")).map(drop)
}

/// Waits until the pod is gone.
pub(crate) fn wait_gone(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.pods.wait(&format!("{name} is gone"), SOON, |known| {
        ensure!(!known.contains_key(&format!("default/{name}")), "it is there");
        Ok(())
    })
}

/// The collection of Deployments in the same namespace.
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A Deployment without replicas, on the nodes that `spec` selects.
pub(crate) fn deployment(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}},
            // `Recreate` stops all pods at once.
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    })
}

/// Sets the number of replicas of a Deployment.
pub(crate) fn scale(cluster: &Cluster, name: &str, replicas: usize) -> Result<()> {
    cluster
        .api
        .patch(&format!("{DEPLOYMENTS}/{name}/scale"), &json!({"spec": {"replicas": replicas}}))
        .map(drop)
}

/// Waits until there are exactly `count` pods and all are ready. Returns their names.
pub(crate) fn wait_for_exactly(
    cluster: &Cluster,
    count: usize,
    deadline: Duration,
) -> Result<Vec<String>> {
    cluster.pods.wait(&format!("exactly {count} pods, all ready"), deadline, |known| {
        let of_tests =
            || known.iter().filter_map(|(key, pod)| Some((key.strip_prefix("default/")?, pod)));
        let ready = of_tests().filter(|(_, pod)| is_ready(pod)).count();
        ensure!(
            of_tests().count() == count && ready == count,
            "{} are there, {ready} are ready",
            of_tests().count()
        );
        Ok(of_tests().map(|(name, _)| name.to_owned()).collect())
    })
}

/// Clients outside see the pod's node, at each address, by TCP and by UDP.
pub(crate) fn the_world_sees_the_node_of(
    cluster: &Cluster,
    pod: &Pod,
    web: &[SocketAddr],
) -> Result<()> {
    let lab = &cluster.lab;
    let node = lab.world().of_node(lab.node_of(pod));
    eventually(&format!("the world sees the node of pod {}", pod.name), SOON, || {
        let replies = lab.ask(&End::Pod(pod), web, web)?.concat();
        let seen: Vec<_> = replies.iter().map(Reply::address).collect();
        let expected: Vec<_> = node.iter().chain(&node).copied().map(Some).collect();
        ensure!(seen == expected, "{replies:?}");
        Ok(())
    })
}

/// The running pods with these names, looked up by several threads.
pub(crate) fn all_attached(cluster: &Cluster, names: &[String]) -> Result<Vec<Pod>> {
    on_threads(THREADS, names, |name| attached(cluster, name))
}

/// Every pod pings `others` of the other pods, spread over all of them.
pub(crate) fn reach_each_other(cluster: &Cluster, pods: &[Pod], others: usize) -> Result<()> {
    // Single packets may be lost to address resolution.
    let reach = "for try in 1 2 3 4 5 6 7 8 9 10; do ping -n -q -c 1 -W 1 $to >/dev/null && exit; done; echo $to";
    let count = pods.len();
    let numbered: Vec<(usize, &Pod)> = pods.iter().enumerate().collect();
    // The kernel keeps at most 1024 neighbours for all network namespaces together (gc_thresh3).
    for some in numbered.chunks((500 / others.max(1)).max(1)) {
        on_threads(THREADS, some, |(number, pod)| {
            let step = (count / (others + 1)).max(1);
            let targets = (1..count)
                .step_by(step)
                .take(others)
                .map(|offset| pods[(number + offset) % count].address().to_string());
            let pings = format!(
                "for to in {}; do ({reach}) & done; wait",
                targets.collect::<Vec<_>>().join(" ")
            );
            let silent = cluster.lab.node_of(pod).run_in_pod(pod, ["sh", "-c", &pings])?;
            ensure!(
                silent.is_empty(),
                "{} does not reach {}",
                pod.name,
                silent.split_whitespace().collect::<Vec<_>>().join(", ")
            );
            Ok(())
        })?;
        cluster.lab.nodes.iter().try_for_each(|node| {
            node.run(["ip", "-all", "netns", "exec", "ip", "neigh", "flush", "all"]).map(drop)
        })?;
    }
    Ok(())
}
