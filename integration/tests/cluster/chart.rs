//! The chart of `conf/helm` on fresh nodes: control plane, nodes, Open vSwitch, ovn-controller and a cluster of OVN's
//! databases, all in pods.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster,
    cluster::{CLUSTER_SUBNETS, GatewayMode, control_plane},
    command, eventually, executable, mounts,
};
use serde_json::{Value, json};

use crate::{
    deployment::image_of,
    support::{PODS, SOON, attached, pod, wait_ready},
};

const IMAGE: &str = "ovn-kube:of-the-chart";
const NAMESPACE: &str = "--namespace=ovn-kubernetes";
/// What the chart makes, in the order in which an upgrade replaces it.
const WORKLOADS: [&str; 5] = [
    "deployment/ovn-kubernetes-control-plane",
    "daemonset/ovn-kubernetes-databases",
    "daemonset/ovn-kubernetes-node",
    "daemonset/ovn-kubernetes-controller",
    "daemonset/ovn-kubernetes-openvswitch",
];

#[test]
fn the_chart_makes_a_network_with_clustered_databases_of_fresh_nodes_and_upgrades_it_under_traffic() {
    let blueprint = Cluster::of_nodes(3).gateway(GatewayMode::Local).without_network();
    blueprint.test(|cluster| {
        cluster.freshen()?;
        // The image with Open vSwitch and OVN takes the place of the small one.
        let archive = image_of("ovn-kube", IMAGE)?;
        for (node, worker) in cluster.nodes() {
            worker.import_image(node, &archive)?;
        }
        let began = Instant::now();
        install(cluster)?;
        cluster.wait_until_ready().with_context(|| said(cluster))?;
        let pods = ["near", "far"].map(|name| pod(name, if name == "near" { "node1" } else { "node2" }));
        cluster.api.create_all(PODS, &pods)?;
        wait_ready(cluster, &["near", "far"]).with_context(|| said(cluster))?;
        let [near, far] = [attached(cluster, "near")?, attached(cluster, "far")?];
        eventually("a pod of another node answers", SOON, || cluster.lab.ping(&near, far.address()))?;
        eprintln!("a pod of another node answers after {:.1?}", began.elapsed());
        tests_succeed(cluster)?;
        upgrade(cluster).with_context(|| said(cluster))
    });
}

/// As `helm install` does it.
fn install(cluster: &Cluster) -> Result<()> {
    eventually("the nodes are known", SOON, || {
        cluster.kubectl(["get", "node", "node1", "node2", "node3"]).map(drop)
    })?;
    cluster.kubectl(["label", "node", "node1", "node-role.kubernetes.io/control-plane="])?;
    cluster.kubectl(["label", "node", "--all", "k8s.ovn.org/ovnkube-db=true"])?;
    // The namespace is there: the lab's accounts are in it.
    apply(cluster, &values())?;
    rolled_out(cluster)
}

/// Another level of all logs: the options files change, and so does every pod that has them. Packets of running pods
/// go on, but for Open vSwitch, which stays: it forwards in user space here.
fn upgrade(cluster: &Cluster) -> Result<()> {
    let mut values = values();
    for program in ["node", "controlPlane"] {
        values[program]["config"] = json!("[logging]\nloglevel=dbg\n");
    }
    for program in ["databases", "ovnController"] {
        values[program]["resources"] = json!({"requests": {"memory": "100Mi"}});
    }
    let [near, far] = [attached(cluster, "near")?, attached(cluster, "far")?];
    let flow = cluster.lab.flow(&near, &far)?;
    let began = Instant::now();
    apply(cluster, &values)?;
    rolled_out(cluster)?;
    let echoes = flow.stop()?;
    eprintln!("upgraded in {:.1?}: {echoes:?}", began.elapsed());
    echoes.none_is_lost(1).context("while everything but Open vSwitch was replaced")?;
    let later = pod("later", "node3");
    cluster.api.create(PODS, &later)?;
    wait_ready(cluster, &["later"])?;
    let later = attached(cluster, "later")?;
    eventually("a pod of after the upgrade answers", SOON, || cluster.lab.ping(&near, later.address()))
}

fn rolled_out(cluster: &Cluster) -> Result<()> {
    for workload in WORKLOADS {
        cluster
            .kubectl([NAMESPACE, "rollout", "status", workload, "--timeout=120s"])
            .with_context(|| said(cluster))?;
    }
    Ok(())
}

/// The pods of `helm test`.
fn tests_succeed(cluster: &Cluster) -> Result<()> {
    let file = render("tests", &values())?;
    cluster.kubectl(["apply", "--filename", &file.to_string_lossy()])?;
    for name in ["network", "databases"] {
        let pod = format!("pod/ovn-kubernetes-test-{name}");
        let succeeded = "--for=jsonpath={.status.phase}=Succeeded";
        let log = || cluster.kubectl([NAMESPACE, "logs", &pod]).unwrap_or_default();
        cluster
            .kubectl([NAMESPACE, "wait", succeeded, &pod, "--timeout=60s"])
            .with_context(|| format!("{pod}: {}{}", log(), said(cluster)))?;
        let lines = log().lines().count();
        ensure!(lines == if name == "network" { 2 } else { 6 }, "{pod} says: {}", log());
    }
    Ok(())
}

fn values() -> Value {
    json!({
        "k8sAPIServer": control_plane::URL,
        "podNetwork": CLUSTER_SUBNETS,
        "serviceNetwork": "10.96.0.0/16",
        "databases": {"mode": "raft", "nodes": ["172.30.0.11", "172.30.0.12", "172.30.0.13"]},
        "openVSwitch": {"inPods": true},
        "ovnController": {"inPods": true},
        "controlPlane": {"replicas": 1},
        "global": {"gatewayMode": "local", "image": {"repository": "ovn-kube", "tag": "of-the-chart"}},
    })
}

fn apply(cluster: &Cluster, values: &Value) -> Result<()> {
    let file = render("template", values)?;
    cluster.kubectl(["apply", "--filename", &file.to_string_lossy()]).map(drop)
}

/// What Helm makes of the chart: its objects, or those of `helm test`.
fn render(verb: &str, values: &Value) -> Result<PathBuf> {
    let [values_file, objects] =
        ["values.json", "objects.yaml"].map(|name| Path::new(mounts::LAB).join(name));
    // JSON is YAML.
    fs::write(&values_file, values.to_string())?;
    let tool = executable::target_dir()?.join("tools/charts");
    ensure!(
        tool.is_file(),
        "{} is missing; build it with: integration/prerequisites.sh test",
        tool.display()
    );
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/helm/ovn-kubernetes");
    let rendered = command::output(std::process::Command::new(tool).arg(verb).arg(chart).arg(&values_file))?;
    fs::write(&objects, rendered)?;
    Ok(objects)
}

/// State of the chart's pods and their last log lines, for error messages.
fn said(cluster: &Cluster) -> String {
    let mut said = cluster.kubectl([NAMESPACE, "get", "pods,events", "--output=wide"]).unwrap_or_default();
    for workload in WORKLOADS {
        let name = workload.split_once('/').map_or(workload, |(_, name)| name);
        let selector = format!("--selector=app.kubernetes.io/name={name}");
        let log =
            cluster.kubectl([NAMESPACE, "logs", &selector, "--tail=20", "--prefix", "--all-containers"]);
        said += &log.unwrap_or_default();
    }
    said
}
