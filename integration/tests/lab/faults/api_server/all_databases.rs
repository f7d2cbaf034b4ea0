//! The files of both OVN databases are deleted under a whole cluster. The control plane writes the
//! rows again from the API server's objects.
//!
//! Two nodes are real, with kubelets and pods that exchange packets. The others are objects without
//! a kubelet, which the control plane, ovn-northd and both ovn-controllers have to process all the
//! same.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Pod,
    cluster::{
        attached::is_ready,
        manifest::{idle_pod, on_node},
    },
    eventually,
    faults::long_forms,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// How long real pods may take to be ready, on a busy machine.
const SOON: Duration = Duration::from_secs(90);

/// Nodes and pods that are only objects.
struct Size {
    nodes: usize,
    pods: usize,
    /// The limit of each wait.
    patience: Duration,
}

impl Size {
    fn wanted() -> Self {
        if long_forms() {
            Self { nodes: 498, pods: 9_994, patience: Duration::from_secs(900) }
        } else {
            Self { nodes: 8, pods: 160, patience: Duration::from_secs(60) }
        }
    }
}

/// A node with the annotations that a node's server writes.
fn node(number: usize) -> Value {
    let (name, address) =
        (format!("paper-{number:04}"), format!("198.18.{}.{}", number / 250, 2 + number % 250));
    let annotations = json!({
        "k8s.ovn.org/node-chassis-id": format!("6bf64a4a-7be4-4a4c-b6a5-{number:012}"),
        "k8s.ovn.org/zone-name": "global",
        "k8s.ovn.org/node-primary-ifaddr": json!({"ipv4": format!("{address}/15")}).to_string(),
    });
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

/// A pod of a real node with a shell that waits, or of a node without a kubelet, where it never
/// starts.
fn pod(name: &str, node: &str) -> Value {
    let mut pod = on_node(idle_pod(name), node);
    // Nodes without a kubelet are not ready, and would lose their pods.
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    pod
}

/// UID, address and restarts of each pod.
fn lives(cluster: &Cluster) -> BTreeMap<String, (String, String, i32)> {
    let life = |pod: &k8s_openapi::api::core::v1::Pod| {
        let status = pod.status.clone().unwrap_or_default();
        let restarts = status
            .container_statuses
            .unwrap_or_default()
            .iter()
            .map(|container| container.restart_count)
            .sum();
        (
            pod.uid().unwrap_or_default(),
            pod.annotations().get("k8s.ovn.org/pod-networks").cloned().unwrap_or_default(),
            restarts,
        )
    };
    cluster.pods.now().iter().map(|(key, pod)| (key.clone(), life(pod))).collect()
}

fn bindings(cluster: &Cluster) -> Result<usize> {
    Ok(cluster
        .lab
        .central
        .sbctl(["--bare", "--columns=_uuid", "list", "Port_Binding"])?
        .split_whitespace()
        .count())
}

/// How long each step took, from the moment when the database servers run again.
struct Took {
    northbound: Duration,
    southbound: Duration,
    chassis: Duration,
    reached: Duration,
    /// Lost datagrams; one is sent every 5 ms in both directions.
    lost: u64,
    sent: u64,
}

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { northbound, southbound, chassis, reached, lost, sent } = self;
        write!(
            f,
            "northbound rows after {northbound:.2?}, southbound ones {southbound:.2?}, every chassis \
             {chassis:.2?}, pods reach each other {reached:.2?}; {lost} of {sent} packets lost"
        )
    }
}

/// Deletes databases, and waits until all is as before.
fn survives(
    cluster: &Cluster,
    real: &[Pod],
    patience: Duration,
    take_away: impl FnOnce() -> Result<()>,
) -> Result<Took> {
    let (before, rows) = (lives(cluster), bindings(cluster)?);
    let flow = cluster.lab.flow(&real[0], &real[real.len() - 1])?;
    take_away()?;
    let began = Instant::now();
    cluster.northbound_must_match_within(patience)?;
    let northbound = began.elapsed();
    eventually("every port is bound in the southbound database again", patience, || {
        let found = bindings(cluster)?;
        ensure!(found == rows, "{found} of {rows}");
        Ok(())
    })?;
    let southbound = began.elapsed();
    eventually("every chassis has caught up", patience, || {
        cluster.lab.central.nbctl(["--timeout=5", "--wait=hv", "sync"]).map(drop)
    })?;
    let chassis = began.elapsed();
    real.iter()
        .zip(real.iter().cycle().skip(1))
        .try_for_each(|(from, to)| cluster.lab.ping(from, to.address()))?;
    let reached = began.elapsed();
    let echoes = flow.stop()?;
    ensure!(
        lives(cluster) == before,
        "pods were created anew, started again, or have other addresses"
    );
    let lost = echoes.sent - echoes.received.min(echoes.sent);
    Ok(Took { northbound, southbound, chassis, reached, lost, sent: echoes.sent })
}

#[test]
fn row_77_all_files_of_ovns_databases_deleted_are_filled_again_and_no_pod_is_created_anew() {
    Cluster::of_nodes(2).cluster_subnets("10.128.0.0/9/24").test(|cluster| {
        let Size { nodes, pods, patience } = Size::wanted();
        let names: Vec<String> = (0..6).map(|number| format!("real-{number}")).collect();
        let real: Vec<Value> = names
            .iter()
            .enumerate()
            .map(|(number, name)| pod(name, &format!("node{}", 1 + number % 2)))
            .collect();
        cluster.api.create_all(PODS, &real)?;
        cluster.pods.wait("the real pods are ready", SOON, |known| {
            let ready = names
                .iter()
                .filter(|name| known.get(&format!("default/{name}")).is_some_and(is_ready))
                .count();
            ensure!(ready == names.len(), "{ready} of {} are", names.len());
            Ok(())
        })?;
        cluster.api.create_all(NODES, &(0..nodes).map(node).collect::<Vec<_>>())?;
        let paper =
            |number: usize| pod(&format!("paper-{number:05}"), &format!("paper-{:04}", number % nodes));
        cluster.api.create_all(PODS, &(0..pods).map(paper).collect::<Vec<_>>())?;
        cluster.northbound_must_match_within(patience)?;
        let all = pods + names.len();
        eventually("every port is in the southbound database", patience, || {
            let found = bindings(cluster)?;
            ensure!(found >= all, "{found} of more than {all}");
            Ok(())
        })?;
        eventually("every chassis has caught up", patience, || {
            cluster.lab.central.nbctl(["--timeout=5", "--wait=hv", "sync"]).map(drop)
        })?;
        let real: Vec<Pod> =
            names.iter().map(|name| cluster.attached(&format!("default/{name}"))).collect::<Result<_>>()?;

        // The baseline: OVN refills an empty southbound database by itself, without this project.
        let central = &cluster.lab.central;
        let alone = survives(cluster, &real, patience, || central.replace_southbound())
            .context("the southbound database alone")?;
        let both = survives(cluster, &real, patience, || central.replace_all()).context("both databases")?;
        println!("{} nodes, {all} pods; the southbound database alone: {alone}", nodes + 2);
        println!("both: {both}");
        // An ovn-controller without southbound rows forwards nothing: the lost packets must fit
        // into the time without rows.
        let least = Duration::from_millis(5) * u32::try_from(both.lost)?;
        ensure!(
            least <= both.reached,
            "the packets that were lost took {least:?} at least: longer than there were no rows; {both}"
        );
        Ok(())
    });
}
