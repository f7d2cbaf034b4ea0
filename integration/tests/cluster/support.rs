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

/// The collection of Deployments in the same namespace.
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A Deployment without replicas, for the nodes that `spec` names.
pub(crate) fn deployment(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}},
            // All at once, and none that is there already is replaced.
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    })
}

/// Says how many replicas a Deployment should have.
pub(crate) fn scale(cluster: &Cluster, name: &str, replicas: usize) -> Result<()> {
    cluster.api.patch(&format!("{DEPLOYMENTS}/{name}/scale"), &json!({"spec": {"replicas": replicas}})).map(drop)
}

/// Waits until exactly `count` pods are there and each is ready; their names.
pub(crate) fn wait_for_exactly(cluster: &Cluster, count: usize, deadline: Duration) -> Result<Vec<String>> {
    cluster.pods.wait(&format!("exactly {count} pods, all ready"), deadline, |known| {
        let of_tests = || known.iter().filter_map(|(key, pod)| Some((key.strip_prefix("default/")?, pod)));
        let ready = of_tests().filter(|(_, pod)| is_ready(pod)).count();
        ensure!(of_tests().count() == count && ready == count, "{} are there, {ready} are ready", of_tests().count());
        Ok(of_tests().map(|(name, _)| name.to_owned()).collect())
    })
}

/// The running pods of these names, for packets; looked up by several threads.
pub(crate) fn all_attached(cluster: &Cluster, names: &[String]) -> Result<Vec<Pod>> {
    in_parallel(names, |name| attached(cluster, name))
}

/// Every pod sends to `others` of the others by ping, spread over all of them, and fetches a page from one if they have servers.
pub(crate) fn reach_each_other(cluster: &Cluster, pods: &[Pod], others: usize) -> Result<()> {
    // Single packets may be lost to address resolution.
    let reach = "for try in 1 2 3 4 5 6 7 8 9 10; do ping -n -q -c 1 -W 1 $to >/dev/null && exit; done; echo $to";
    let count = pods.len();
    let numbered: Vec<(usize, &Pod)> = pods.iter().enumerate().collect();
    // The kernel keeps 1024 neighbours for all network namespaces together (gc_thresh3).
    for some in numbered.chunks((500 / others.max(1)).max(1)) {
        in_parallel(some, |(number, pod)| {
            let step = (count / (others + 1)).max(1);
            let targets = (1..count).step_by(step).take(others).map(|offset| pods[(number + offset) % count].address().to_string());
            let pings = format!("for to in {}; do ({reach}) & done; wait", targets.collect::<Vec<_>>().join(" "));
            let silent = cluster.lab.node_of(pod).run_in_pod(pod, ["sh", "-c", &pings])?;
            ensure!(silent.is_empty(), "{} does not reach {}", pod.name, silent.split_whitespace().collect::<Vec<_>>().join(", "));
            Ok(())
        })?;
        cluster.lab.nodes.iter().try_for_each(|node| node.run(["ip", "-all", "netns", "exec", "ip", "neigh", "flush", "all"]).map(drop))?;
    }
    Ok(())
}

/// Four at a time.
fn in_parallel<T: Sync, R: Send>(items: &[T], act: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = items
            .chunks(items.len().div_ceil(4).max(1))
            .map(|items| scope.spawn(move || items.iter().map(act).collect::<Result<Vec<R>>>()))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))));
        Ok(joined.collect::<Result<Vec<Vec<R>>>>()?.into_iter().flatten().collect())
    })
}
