//! The same with `layout: zones`: each node is a zone, with databases, ovn-northd and a controller
//! of its own.

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, Node, cluster::GatewayMode, eventually};
use serde_json::{Value, json};

use super::{IMAGE, NAMESPACE, SOON, all_flows, on_fresh_nodes, said, starts_and_answers, values};
use crate::cluster::{held::Held, support::attached};

const NORTHBOUND: &str = "--db=unix:/var/run/ovn/ovnnb_db.sock";
const DATABASES: &str = "daemonset/ovn-kubernetes-zone-databases";

#[test]
fn the_chart_makes_a_zone_of_each_fresh_node_whose_databases_come_back_when_they_are_lost() {
    let blueprint = Cluster::of_nodes(3).gateway(GatewayMode::Local).without_network();
    blueprint.test(|cluster| {
        let release = on_fresh_nodes(cluster, &of_zones())?;
        for node in &cluster.lab.nodes {
            has_its_own_switch_alone(cluster, node)?;
        }
        let said_by_test = release.test().with_context(|| said(cluster))?;
        ensure!(said_by_test.contains("takes connections from a pod"), "{said_by_test}");
        all_kinds_of_flow_are_answered(cluster).with_context(|| said(cluster))?;
        pods_speak_while_databases_are_replaced(cluster).with_context(|| said(cluster))?;
        lost_databases_fill_again(cluster).with_context(|| said(cluster))
    });
}

fn of_zones() -> Value {
    let mut values = values();
    values["layout"] = json!("zones");
    values.as_object_mut().expect("values are an object").remove("databases");
    values
}

pub(super) fn nbctl(node: &Node, arguments: &[&str]) -> Result<String> {
    node.run(["ovn-nbctl", "--timeout=10", NORTHBOUND].iter().chain(arguments))
}

/// Locality: the rows of the other nodes' pods are theirs.
pub(super) fn has_its_own_switch_alone(cluster: &Cluster, node: &Node) -> Result<()> {
    let name = nbctl(node, &["get", "NB_Global", ".", "name"])?;
    ensure!(name.trim().trim_matches('"') == node.name, "{}: zone {name}", node.name);
    let switches = nbctl(node, &["--bare", "--columns=name", "list", "Logical_Switch"])?;
    for other in &cluster.lab.nodes {
        let is_there = switches.split_whitespace().any(|switch| switch == other.name);
        ensure!(is_there == (other.name == node.name), "{}: {switches}", node.name);
    }
    Ok(())
}

/// From pods and nodes to pods, Services and node ports of each of two nodes.
fn all_kinds_of_flow_are_answered(cluster: &Cluster) -> Result<()> {
    let lost = all_flows(Held::start(cluster, IMAGE)?)?;
    eprintln!("lost packets of flows between zones: {lost:?}");
    Ok(())
}

fn pods_speak_while_databases_are_replaced(cluster: &Cluster) -> Result<()> {
    let [near, far] = [attached(cluster, "near")?, attached(cluster, "far")?];
    let flow = cluster.lab.flow(&near, &far)?;
    cluster.kubectl([NAMESPACE, "rollout", "restart", DATABASES])?;
    cluster.kubectl([NAMESPACE, "rollout", "status", "--timeout=120s", DATABASES])?;
    flow.stop()?.none_is_lost(1).context("while the databases of each node were replaced")
}

/// A disk is lost, or somebody removes what he takes for rubbish.
fn lost_databases_fill_again(cluster: &Cluster) -> Result<()> {
    let node = &cluster.lab.nodes[1];
    let before = nbctl(node, &["--bare", "--columns=name", "list", "Logical_Switch_Port"])?;
    node.shell("rm -rf /var/lib/openvswitch/zone")?;
    let [of, on] = [
        "--selector=app.kubernetes.io/name=ovn-kubernetes-zone-databases",
        "--field-selector=spec.nodeName=node2",
    ];
    cluster.kubectl([NAMESPACE, "delete", "pod", of, on])?;
    eventually("the rows are there again", SOON, || {
        let now = nbctl(node, &["--bare", "--columns=name", "list", "Logical_Switch_Port"])?;
        let sorted = |text: &str| {
            let mut names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            names.sort();
            names
        };
        ensure!(sorted(&now) == sorted(&before), "{now}\nand before\n{before}");
        Ok(())
    })?;
    starts_and_answers(cluster, "later", "node2")
}
