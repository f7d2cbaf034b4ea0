//! containerd 2, which calls STATUS every 5 s. After an error its kubelet takes the node out of
//! service.

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Node,
    cluster::{Containerd, attached},
};
use serde_json::{Value, json};

use crate::cluster::{deployment, support::PODS};
use crate::support::in_service::Scene;

#[test]
fn no_node_leaves_service_while_the_southbound_database_the_api_server_and_the_servers_restart_under_containerd_2()
 {
    Cluster::of_nodes(2).containerd(Containerd::Two).test(|cluster| {
        let before = cluster.leftovers()?;
        let scene = Scene::begin(cluster)?;
        scene.unnoticed("the southbound database restarts", || {
            scene.southbound_database_restarts()
        })?;
        scene.unnoticed("the API server is away", || scene.api_server_is_away())?;
        scene.unnoticed("the servers are replaced", || scene.servers_are_replaced())?;
        scene.a_missing_server_is_noticed_and_pods_go()?;
        cluster.api.delete(PODS)?;
        cluster.must_leave_nothing(&before)
    });
}

#[test]
fn no_node_leaves_service_while_the_daemon_set_is_rolled_out_under_containerd_2() {
    Cluster::of_nodes(2).containerd(Containerd::Two).test(|cluster| {
        deployment::deploy(cluster)?;
        cluster.wait_until_ready()?;
        let before = cluster.leftovers()?;
        let scene = Scene::begin(cluster)?;
        scene.unnoticed("the DaemonSet is rolled out", || deployment::roll_out(cluster))?;
        scene.unnoticed("GC is called", || {
            cluster.nodes().try_for_each(|(node, _)| gc_with_what_runs(node))
        })?;
        cluster.api.delete(PODS)?;
        cluster.must_leave_nothing(&before)
    });
}

/// A port whose DEL never came.
const LEFTOVER: &str = "leftover";

/// GC with the sandboxes that containerd has, as a runtime passes them: it removes a leftover and
/// no attachment of a pod. cnitool passes an empty list, and containerd never calls GC.
fn gc_with_what_runs(node: &Node) -> Result<()> {
    let ports = || node.vsctl(["list-ports", "br-int"]);
    let before = ports()?;
    let ids = [
        format!("external_ids:sandbox={}", "f".repeat(64)),
        format!("external_ids:iface-id=default_{LEFTOVER}"),
        "external_ids:pod-if-name=eth0".to_owned(),
    ];
    let words = ["--no-wait", "add-port", "br-int", LEFTOVER, "--", "set", "Interface", LEFTOVER]
        .map(str::to_owned);
    node.vsctl(words.into_iter().chain(ids))?;
    let sandboxes = attached::sandboxes(node)?;
    let valid: Vec<Value> =
        sandboxes.iter().map(|sandbox| json!({"containerID": sandbox, "ifname": "eth0"})).collect();
    let gc = node
        .runtime()
        .with("cniVersion", json!("1.1.0"))
        .with("cni.dev/valid-attachments", json!(valid))
        .call("GC", None);
    gc.run()?.success().with_context(|| format!("GC on {}", node.name))?;
    let after = ports()?;
    ensure!(before == after, "{}, {sandboxes:?}: ports before\n{before}after\n{after}", node.name);
    ensure!(!valid.is_empty(), "containerd has no sandbox on {}", node.name);
    Ok(())
}
