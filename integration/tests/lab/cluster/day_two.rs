//! `ovnkube status` and `ovnkube connectivity test` on a whole cluster, as an administrator runs
//! them.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, cluster::ovnkube::IMAGE, command, eventually, mounts};
use serde_json::Value;

const NAMESPACES: &str = "/api/v1/namespaces";
/// The namespaces of a run end within this.
const ENDED: Duration = Duration::from_secs(120);

pub(crate) fn ovnkube(cluster: &Cluster, arguments: &[&str]) -> Result<Command> {
    cluster.ovnkube(arguments)
}

fn test(cluster: &Cluster, more: &[&str]) -> Result<(Value, Output)> {
    let arguments = ["connectivity", "test", "-o", "json", "--image", IMAGE];
    let output = ovnkube(cluster, &[&arguments, more].concat())?.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text)
        .with_context(|| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((report, output))
}

pub(crate) fn of_state<'a>(report: &'a Value, state: &str) -> Vec<&'a Value> {
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    findings.iter().filter(|finding| finding["state"] == state).collect()
}

/// No namespace of a run is left.
pub(crate) fn must_leave_nothing(cluster: &Cluster) -> Result<()> {
    eventually("the namespaces are gone", ENDED, || {
        let namespaces = cluster.api.read(NAMESPACES)?.to_string();
        ensure!(!namespaces.contains("ovnkube-test-"), "{namespaces}");
        Ok(())
    })
}

#[test]
fn the_connectivity_test_passes_on_a_good_network_names_a_blocked_tunnel_and_leaves_nothing() {
    Cluster::of_nodes(2).test(|cluster| {
        cluster.import_ovnkube()?;
        let junit = Path::new(mounts::LAB).join("result.xml");
        let (report, output) = test(cluster, &["--junit", &junit.to_string_lossy()])?;
        let failed = of_state(&report, "failed");
        ensure!(
            failed.is_empty() && output.status.code() == Some(0),
            "{}: {failed:#?}",
            output.status
        );
        ensure!(of_state(&report, "ok").len() >= 40, "{report:#}");
        ensure!(fs::read_to_string(&junit)?.contains("failures=\"0\""));
        must_leave_nothing(cluster)?;

        let status = ovnkube(cluster, &["status", "-o", "json"])?.output()?;
        let text = String::from_utf8_lossy(&status.stdout);
        let status: Value = serde_json::from_str(&text).with_context(|| text.into_owned())?;
        let leader = status["findings"]
            .as_array()
            .and_then(|all| all.iter().find(|finding| finding["name"] == "leader"));
        ensure!(leader.is_some_and(|leader| leader["state"] == "ok"), "{status:#}");
        let nodes = of_state(&status, "ok")
            .into_iter()
            .filter(|finding| finding["subject"] == "nodes")
            .count();
        ensure!(nodes == 2, "{status:#}");

        // Only what goes through the tunnel is lost, and it is named.
        let node = &cluster.lab.nodes[0];
        node.shell(
            "for port in $(ovs-vsctl --bare --columns=ofport find Interface type=geneve); do \
             ovs-ofctl add-flow br-int \"table=0,priority=65535,in_port=$port,actions=drop\"; done",
        )?;
        let (report, output) = test(cluster, &[])?;
        ensure!(output.status.code() == Some(1), "{}: {report:#}", output.status);
        let failed = of_state(&report, "failed");
        ensure!(
            failed.iter().any(|finding| finding["subject"] == "pods on two nodes"),
            "{failed:#?}"
        );
        ensure!(
            failed.iter().all(|finding| finding["subject"] != "pods on one node"),
            "{failed:#?}"
        );
        ensure!(failed.iter().all(|finding| finding["next"].is_string()), "{failed:#?}");
        must_leave_nothing(cluster)
    });
}

#[test]
fn held_flows_lose_nothing_while_nothing_is_done_and_a_run_that_is_interrupted_leaves_nothing() {
    Cluster::of_nodes(2).test(|cluster| {
        cluster.import_ovnkube()?;
        let (report, output) =
            test(cluster, &["--disruption", "--duration", "10s", "--allowed-loss", "1"])?;
        ensure!(output.status.code() == Some(0), "{}: {report:#}", output.status);
        let flows = of_state(&report, "ok")
            .into_iter()
            .filter(|finding| finding["subject"] == "flows")
            .count();
        // 22 kinds on each of two nodes.
        ensure!(flows == 44, "{report:#}");
        must_leave_nothing(cluster)?;

        let mut command = ovnkube(cluster, &["connectivity", "test", "--image", IMAGE])?;
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        eventually("it has begun", ENDED, || {
            let namespaces = cluster.api.read(NAMESPACES)?.to_string();
            ensure!(namespaces.contains("ovnkube-test-"), "no namespace yet");
            Ok(())
        })?;
        command::output(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
        ensure!(child.wait()?.code() == Some(130));
        must_leave_nothing(cluster)
    });
}

#[test]
fn the_connectivity_test_tries_policies_of_the_cluster_and_load_balancers_where_they_are() {
    Cluster::of_nodes(2).test(|cluster| {
        cluster.import_ovnkube()?;
        cluster.define_cluster_policies()?;
        cluster.assign_load_balancers()?;
        // It would look for them within minutes.
        cluster.master.stop()?;
        cluster.master.spawn()?;
        eventually("the control plane is ready", ENDED, || cluster.master_is_ready(1))?;
        let (report, output) = test(cluster, &[])?;
        ensure!(output.status.code() == Some(0), "{}: {report:#}", output.status);
        let passed = of_state(&report, "ok");
        for (subject, count) in [("outer addresses", 6), ("policies of the cluster", 20)] {
            let found = passed.iter().filter(|finding| finding["subject"] == subject).count();
            ensure!(found == count, "{found} of {count} {subject}: {report:#}");
        }
        must_leave_nothing(cluster)?;
        let left = cluster.cluster_policies()?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    });
}
