//! The DaemonSets of `conf/kubernetes/openshift` on fresh nodes: everything of the network, Open
//! vSwitch and OVN's databases among it, runs in pods of one image.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster,
    cluster::{CLUSTER_SUBNETS, GatewayMode, control_plane},
    eventually, mounts,
};
use serde_json::json;

use crate::cluster::{
    deployment::image_of,
    support::{PODS, SOON, attached, pod, wait_ready},
};

/// Where the manifests are.
const MANIFESTS: &str = "conf/kubernetes/openshift";
/// The guide that goes through them.
const GUIDE: &str = "docs/how-to/install.md";
/// The image that they name.
const IMAGE: &str = "netdev22:5000/ovn-kube:latest";
/// The DaemonSets, in the order in which a node needs them.
const DAEMON_SETS: [&str; 3] = ["sdn-ovs", "ovnkube-master", "ovnkube"];

/// Longest silence that an update of Open vSwitch may cause where it forwards in user space, on a
/// busy machine.
const OF_USER_SPACE: Duration = Duration::from_secs(60);

#[test]
fn the_daemon_sets_make_a_network_of_fresh_nodes() {
    let blueprint = Cluster::of_nodes(2).gateway(GatewayMode::Local).without_network();
    blueprint.test(|cluster| {
        let archive = image_of("ovn-kube", IMAGE)?;
        cluster.freshen()?;
        for (node, worker) in cluster.nodes() {
            worker.import_image(node, &archive)?;
        }
        let manifests = manifests()?;
        eventually("both nodes are known", SOON, || {
            cluster.kubectl(["get", "node", "node1", "node2"]).map(drop)
        })?;
        let began = Instant::now();
        follow(cluster, &manifests, "## 3. The nodes", "## Update")
            .with_context(|| said(cluster))?;
        cluster.wait_until_ready().with_context(|| said(cluster))?;
        let ready = began.elapsed();
        let pods = ["near", "far"].map(|name| {
            let mut pod = pod(name, if name == "near" { "node1" } else { "node2" });
            pod["spec"]["dnsPolicy"] = json!("ClusterFirst");
            pod
        });
        cluster.api.create_all(PODS, &pods)?;
        wait_ready(cluster, &["near", "far"]).with_context(|| said(cluster))?;
        answers(cluster, "near", "far", &address(cluster, "far")?)?;
        eprintln!(
            "nodes ready after {ready:.1?}, a pod of another node answers after {:.1?}",
            began.elapsed()
        );
        answers(cluster, "far", "near", &address(cluster, "near")?)?;
        cluster.start_dns().with_context(|| said(cluster))?;
        service(cluster)?;
        answers(cluster, "near", "far", "far.default.svc.cluster.local")?;

        updates(cluster).with_context(|| said(cluster))?;
        answers(cluster, "near", "far", "far.default.svc.cluster.local")
    });
}

/// Restarts each DaemonSet while packets go between two pods.
fn updates(cluster: &Cluster) -> Result<()> {
    for name in ["ovnkube", "ovnkube-master", "sdn-ovs"] {
        let [near, far] = [attached(cluster, "near")?, attached(cluster, "far")?];
        let flow = cluster.lab.flow(&near, &far)?;
        let began = Instant::now();
        let daemon_set = format!("daemonset/{name}");
        cluster.kubectl(["--namespace=ovn-kubernetes", "rollout", "restart", &daemon_set])?;
        cluster.kubectl([
            "--namespace=ovn-kubernetes",
            "rollout",
            "status",
            &daemon_set,
            "--timeout=120s",
        ])?;
        // Whatever was lost: ovn-controller takes some seconds to find a new Open vSwitch.
        eventually("packets arrive again", SOON, || cluster.lab.ping(&near, far.address()))?;
        let echoes = flow.stop()?;
        eprintln!("{name} is replaced in {:.1?}: {echoes:?}", began.elapsed());
        if name == "sdn-ovs" {
            ensure!(echoes.silence() < OF_USER_SPACE, "{name}: {echoes:?}");
        } else {
            echoes.none_is_lost(1).with_context(|| format!("while {name} was replaced"))?;
        }
        answers(cluster, "near", "far", &address(cluster, "far")?)?;
    }
    Ok(())
}

/// Runs the commands of the guide between two of its headings.
fn follow(cluster: &Cluster, manifests: &Path, from: &str, to: &str) -> Result<()> {
    let guide =
        fs::read_to_string(workspace().join(GUIDE)).with_context(|| format!("read {GUIDE}"))?;
    let part = guide.split_once(from).and_then(|(_, rest)| rest.split_once(to));
    let (part, _) = part.with_context(|| format!("{GUIDE} has no {from:?} before {to:?}"))?;
    let commands: Vec<_> = part.lines().filter_map(|line| line.strip_prefix("kubectl ")).collect();
    ensure!(commands.len() > 5, "{GUIDE} has {} commands", commands.len());
    for line in commands {
        // A comment may follow.
        let words = line.split("  #").next().unwrap_or(line).split_whitespace();
        let words = words.map(|word| word.replace(MANIFESTS, &manifests.to_string_lossy()));
        cluster.kubectl(words).with_context(|| format!("kubectl {line}"))?;
    }
    Ok(())
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The manifests with the cluster's values in the ConfigMap, as an administrator writes them.
fn manifests() -> Result<PathBuf> {
    let directory = Path::new(mounts::LAB).join("openshift");
    fs::create_dir_all(&directory)?;
    let source = workspace().join(MANIFESTS);
    for name in ["ovn-config", "sdn-ovs", "ovnkube-master", "ovnkube"] {
        let file = format!("{name}.yaml");
        let mut text =
            fs::read_to_string(source.join(&file)).with_context(|| format!("read {file}"))?;
        if name == "ovn-config" {
            let values = [
                ("tcp:10.19.188.22:", "tcp:172.30.0.11:"),
                ("https://wsfd-netdev22.ntdv.lab.eng.bos.redhat.com:8443", control_plane::URL),
                ("10.128.0.0/14\n", &format!("{CLUSTER_SUBNETS}\n")),
                ("172.30.0.0/16\n", "10.96.0.0/16\n"),
            ];
            for (default, value) in values {
                ensure!(text.contains(default), "{file} has no {default} any more");
                text = text.replace(default, value);
            }
        }
        fs::write(directory.join(&file), text)?;
    }
    Ok(directory)
}

fn address(cluster: &Cluster, pod: &str) -> Result<String> {
    cluster.kubectl(["get", "pod", pod, "--output=jsonpath={.status.podIP}"])
}

/// The pod `name` answers `client` at this address.
fn answers(cluster: &Cluster, client: &str, name: &str, address: &str) -> Result<()> {
    eventually(&format!("{name} answers {client} at {address}"), SOON, || {
        let url = format!("http://{address}:8080/hostname");
        let said = cluster.kubectl(["exec", client, "--", "timeout", "5", "wget", "-qO-", &url])?;
        ensure!(said == name, "{said:?}");
        Ok(())
    })
}

/// A Service of the pod `far`, under its name and port.
fn service(cluster: &Cluster) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "far"},
        "spec": {"selector": {"name": "far"}, "ports": [{"port": 8080}]}});
    cluster.api.create("/api/v1/namespaces/default/services", &object).map(drop)
}

/// State of the DaemonSets' pods and their last log lines, for error messages.
fn said(cluster: &Cluster) -> String {
    let mut said = cluster
        .kubectl(["--namespace=ovn-kubernetes", "get", "pods,events", "--output=wide"])
        .unwrap_or_default();
    for name in DAEMON_SETS {
        let selector = format!("--selector=app={name}");
        let log = cluster.kubectl([
            "--namespace=ovn-kubernetes",
            "logs",
            &selector,
            "--tail=40",
            "--prefix",
        ]);
        said += &log.unwrap_or_default();
    }
    said
}
