//! Commands about nodes that are not this machine: their servers are asked in their pods, by who
//! may run commands there.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster,
    central::{NORTHBOUND, SOUTHBOUND},
};
use serde_json::Value;

use super::{
    day_two::ovnkube,
    deployment::deploy,
    rights::user,
    support::{pod, start},
};

const TRACE: [&str; 5] = ["trace", "default/near", "default/far", "--tcp", "8080"];
const DIAGNOSE: [&str; 2] = ["diagnose", "default/far"];

/// The report of a command, of the administrator or another user.
fn report(cluster: &Cluster, words: &[&str], user: Option<&Path>) -> Result<Value> {
    let mut command = ovnkube(cluster, words)?;
    command.args(["-o", "json"]);
    command.args([format!("--nb-address={NORTHBOUND}"), format!("--sb-address={SOUTHBOUND}")]);
    if let Some(user) = user {
        command.arg("--k8s-kubeconfig").arg(user);
    }
    let output = command.output()?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The finding has the state, and says this.
fn says(report: &Value, subject: &str, name: &str, state: &str, words: &str) -> Result<()> {
    let findings = report["findings"].as_array().context("findings")?;
    let found = findings.iter().find(|it| it["subject"] == subject && it["name"] == name);
    let found = found.with_context(|| format!("no {subject}, {name}: {report:#}"))?;
    let summary = found["summary"].as_str().unwrap_or_default();
    ensure!(found["state"] == state && summary.contains(words), "{found:#}");
    Ok(())
}

#[test]
fn nodes_elsewhere_are_asked_in_their_pods_by_who_may_run_commands_there() {
    Cluster::of_nodes(2).test(|cluster| {
        deploy(cluster)?;
        cluster.wait_until_ready()?;
        let [near, far] =
            [start(cluster, &pod("near", "node1"))?, start(cluster, &pod("far", "node2"))?];
        let ask = |words: &[&str]| report(cluster, words, None);

        let traced = ask(&TRACE)?;
        for node in ["node1", "node2"] {
            says(&traced, "physical path", node, "ok", "enters br-int by")?;
        }
        let status = ask(&["status", "node2"])?;
        says(&status, "the node itself", "server", "ok", "node node2")?;
        says(&status, "the node itself", "Open vSwitch", "ok", "")?;
        let diagnosed = ask(&DIAGNOSE)?;
        says(&diagnosed, "time line", "interface", "ok", "br-int")?;
        says(&diagnosed, "inside the pod", "eth0", "ok", "up")?;

        // Only the switch of the other node drops it.
        let node = &cluster.lab.nodes[1];
        node.shell(
            "port=$(ovs-vsctl --bare --columns=ofport find Interface type=geneve)
             ovs-ofctl add-flow br-int \"table=0,priority=65535,in_port=$port,actions=drop\"",
        )?;
        let traced = ask(&TRACE)?;
        says(&traced, "physical path", "node1", "ok", "")?;
        says(&traced, "physical path", "node2", "failed", "the switch drops it")?;
        let addresses = format!("{} to {}", near.address(), far.address());
        says(&traced, "verdict", &addresses, "failed", "the switch of node node2")?;

        // Who may read, and not run commands, is told so, and what to do.
        let reads = [["", "pods services nodes", "get"], ["", "nodes pods", "list"]];
        let reader = user(cluster, "reader", &reads)?;
        let traced = report(cluster, &TRACE, Some(&reader))?;
        says(&traced, "physical path", "node2", "skipped", "(403)")?;

        // A server that hangs ends the question.
        let signal = |name: &str| {
            node.shell(&format!("pkill -{name} --full '^/usr/bin/ovnkube --init-node=node2'"))
        };
        signal("STOP")?;
        let traced = ask(&TRACE)?;
        says(&traced, "physical path", "node2", "unknown", "no answer within 5 s")?;
        signal("CONT")?;
        Ok(())
    });
}
