//! `ovnkube status` and `ovnkube connectivity test` on a whole cluster, as an administrator runs
//! them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, command, eventually, executable, mounts};
use serde_json::{Value, json};

const IMAGE: &str = "localhost/ovnkube:under-test";
const NAMESPACES: &str = "/api/v1/namespaces";
/// The namespaces of a run end within this.
const ENDED: Duration = Duration::from_secs(120);

/// An image of the executable under test, with the libraries that it needs, as a Docker archive.
fn image() -> Result<PathBuf> {
    let root = Path::new(mounts::LAB).join("image");
    let put = |from: &Path, to: &str| -> Result<()> {
        let to = root.join("layer").join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().context("a directory")?)?;
        fs::copy(from, to).map(drop).with_context(|| from.display().to_string())
    };
    let program = executable::under_test(executable::SERVER)?;
    put(&program, "/usr/bin/ovnkube")?;
    // A static executable has none.
    let libraries = Command::new("ldd").arg(&program).output()?;
    for path in String::from_utf8_lossy(&libraries.stdout)
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        put(Path::new(path), path)?;
    }
    let config = json!({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}});
    let tar = |directory: &Path, file: &Path| {
        command::output(Command::new("tar").arg("-C").arg(directory).arg("-cf").arg(file).arg("."))
    };
    let layer = root.join("archive/layer.tar");
    fs::create_dir_all(root.join("archive"))?;
    tar(&root.join("layer"), &layer)?;
    let sum = command::output(Command::new("sha256sum").arg(&layer))?;
    let sum = sum.split_whitespace().next().context("a sum")?;
    let mut config = config;
    config["rootfs"]["diff_ids"] = json!([format!("sha256:{sum}")]);
    fs::write(root.join("archive/config.json"), config.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    fs::write(root.join("archive/manifest.json"), manifest.to_string())?;
    let archive = root.join("image.tar");
    tar(&root.join("archive"), &archive)?;
    Ok(archive)
}

fn import(cluster: &Cluster) -> Result<()> {
    let image = image()?;
    for (node, worker) in cluster.nodes() {
        worker.import_image(node, &image)?;
    }
    Ok(())
}

pub(crate) fn ovnkube(cluster: &Cluster, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(executable::under_test(executable::SERVER)?);
    command
        .args(arguments)
        .arg("--k8s-kubeconfig")
        .arg(cluster.kubeconfig())
        .arg("--ovsdb-endpoint=unix:/nowhere");
    Ok(command)
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
        import(cluster)?;
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
        import(cluster)?;
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

/// Kinds of policies of the whole cluster, with their plural and version.
const KINDS: [(&str, &str, &str); 2] = [
    ("ClusterNetworkPolicy", "clusternetworkpolicies", "v1alpha2"),
    ("AdminNetworkPolicy", "adminnetworkpolicies", "v1alpha1"),
];
const GROUP: &str = "policy.networking.k8s.io";

/// The definition of a kind, without a schema.
fn definition((kind, plural, version): (&str, &str, &str)) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": version,
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    });
    let singular = kind.to_lowercase();
    let list = format!("{kind}List");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            // A group of Kubernetes' needs its word.
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": singular, "listKind": list},
            "versions": [version],
        },
    })
}

/// The names of all policies of the whole cluster.
fn cluster_policies(cluster: &Cluster) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (_, plural, version) in KINDS {
        let listed = cluster.api.read(&format!("/apis/{GROUP}/{version}/{plural}"))?;
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        names.extend(items.iter().map(|item| item["metadata"]["name"].to_string()));
    }
    Ok(names)
}

#[test]
fn the_connectivity_test_tries_policies_of_the_cluster_and_load_balancers_where_they_are() {
    Cluster::of_nodes(2).test(|cluster| {
        import(cluster)?;
        for kind in KINDS {
            let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            cluster.api.create(definitions, &definition(kind))?;
        }
        cluster.assign_load_balancers()?;
        // The API server serves a kind a moment after its definition is there.
        eventually("the kinds are served", ENDED, || cluster_policies(cluster).map(drop))?;
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
        let left = cluster_policies(cluster)?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    });
}
