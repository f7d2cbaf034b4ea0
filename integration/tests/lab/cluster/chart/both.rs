//! A cluster with databases of all gets databases on each node, and goes back, by `layout: both`
//! and `ovnkube zones migrate`, while connections are held.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, Node, cluster::GatewayMode, eventually};
use serde_json::{Value, json};

use super::{
    SOON, on_fresh_nodes, said, starts_and_answers, values, while_pods_speak,
    zones::{has_its_own_switch_alone, nbctl},
};
use crate::cluster::{day_two::ovnkube, helm::Release, support::attached};

/// The longest silence, on a machine that does much else: as for a single move.
const LONGEST: Duration = Duration::from_secs(2);
/// Of a cluster of databases, not the leader alone.
const ANY_MEMBER: &str = "--no-leader-only";

#[test]
fn the_chart_takes_a_cluster_to_databases_of_each_node_and_back_while_connections_are_held() {
    let blueprint = Cluster::of_nodes(3).gateway(GatewayMode::Local).without_network();
    blueprint.test(|cluster| {
        let release = on_fresh_nodes(cluster, &values())?;
        to_zones(&release).with_context(|| said(cluster))?;
        back(&release).with_context(|| said(cluster))
    });
}

fn to_zones(release: &Release<'_>) -> Result<()> {
    let cluster = release.cluster;
    upgraded(release, "databases on each node, too", &json!({"layout": "both"}))?;
    migrated(cluster, &["--all"])?;
    // As by --reuse-values: the values of before are the defaults.
    let none = json!({"layout": "zones", "databases": {"mode": "external", "nodes": []}});
    upgraded(release, "databases on each node alone", &none)?;
    for node in &cluster.lab.nodes {
        has_its_own_switch_alone(cluster, node)?;
    }
    starts_and_answers(cluster, "in-zones", "node2")
}

fn back(release: &Release<'_>) -> Result<()> {
    let cluster = release.cluster;
    // The databases of all know nothing of this.
    cluster.kubectl(["delete", "pod", "in-zones", "--wait"])?;
    starts_and_answers(cluster, "before-the-way-back", "node3")?;
    let databases = values()["databases"].clone();
    let both = json!({"layout": "both", "databases": databases});
    upgraded(release, "databases of all, too", &both)?;
    migrated(cluster, &["--all", "--back"])?;
    upgraded(release, "databases of all alone", &json!({"layout": "central"}))?;
    let node = &cluster.lab.nodes[0];
    eventually("the databases of all have all nodes", SOON, || {
        let switches = [ANY_MEMBER, "--bare", "--columns=name", "list", "Logical_Switch"];
        let switches = nbctl(node, &switches)?;
        let has = |name: &str| switches.split_whitespace().any(|switch| switch == name);
        ensure!(["node1", "node2", "node3"].into_iter().all(has), "{switches}");
        Ok(())
    })?;
    cluster.lab.nodes.iter().try_for_each(follows_the_databases_of_all)?;
    starts_and_answers(cluster, "at-the-end", "node2")?;
    let [near, earlier] = [attached(cluster, "near")?, attached(cluster, "before-the-way-back")?];
    eventually("a pod of before answers", SOON, || cluster.lab.ping(&near, earlier.address()))
}

fn upgraded(release: &Release<'_>, what: &str, values: &Value) -> Result<()> {
    in_time(release.cluster, what, || release.upgrade(values))
}

/// A node after the other; the command ends when all are there.
fn migrated(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    let arguments = [&["zones", "migrate"], arguments].concat();
    let what = arguments.join(" ");
    in_time(cluster, &what, || {
        // Servers say which zones they may move to when both have the same rows.
        eventually("each node may move, and does", SOON, || {
            let output = ovnkube(cluster, &arguments)?.output()?;
            let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
            ensure!(output.status.success(), "{what}: {}", text.concat());
            eprintln!("{}", text.concat());
            Ok(())
        })
    })
}

/// Two pods hear of each other again in time.
fn in_time(cluster: &Cluster, what: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let echoes = while_pods_speak(cluster, what, act)?;
    ensure!(echoes.sent > 1 && echoes.silence() <= LONGEST, "{what}: {echoes:?}");
    Ok(())
}

fn follows_the_databases_of_all(node: &Node) -> Result<()> {
    let remote = node.run(["ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:ovn-remote"])?;
    ensure!(remote.contains("tcp:172.30.0.11:6642"), "{}: {remote}", node.name);
    Ok(())
}
