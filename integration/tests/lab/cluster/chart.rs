//! The chart of `conf/helm` on fresh nodes, by Helm: control plane, nodes, Open vSwitch,
//! ovn-controller and OVN's databases, all in pods.

use std::{path::Path, time::Instant};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster,
    cluster::{CLUSTER_SUBNETS, GatewayMode, access, control_plane},
    eventually,
    peer::Echoes,
};
use serde_json::{Value, json};

use crate::cluster::{
    deployment::image_of,
    held::Held,
    helm::Release,
    node_identity::openssl,
    support::{PODS, SOON, attached, pod, wait_ready},
};

mod both;
mod zones;

const IMAGE: &str = "ovn-kube:of-the-chart";
const NAMESPACE: &str = "--namespace=ovn-kubernetes";
/// What the chart makes, in the order in which an upgrade replaces it.
const WORKLOADS: [&str; 6] = [
    "deployment/ovn-kubernetes-control-plane",
    "daemonset/ovn-kubernetes-databases",
    "daemonset/ovn-kubernetes-zone-databases",
    "daemonset/ovn-kubernetes-node",
    "daemonset/ovn-kubernetes-controller",
    "daemonset/ovn-kubernetes-openvswitch",
];

#[test]
fn the_chart_makes_a_network_with_clustered_databases_of_fresh_nodes_and_is_upgraded_rolled_back_and_uninstalled()
 {
    let blueprint = Cluster::of_nodes(3).gateway(GatewayMode::Local).without_network();
    blueprint.test(|cluster| {
        let release = on_fresh_nodes(cluster, &values())?;
        each_server_has_a_certificate_of_its_node(cluster)?;
        tests_succeed(&release).with_context(|| said(cluster))?;
        a_wrong_upgrade_and_another_release_are_refused(&release)?;
        upgrade(&release).with_context(|| said(cluster))?;
        roll_back(&release).with_context(|| said(cluster))?;
        uninstall(&release)?;
        install_with_one_database(&release).with_context(|| said(cluster))
    });
}

/// Installs the chart, and waits for two pods, `near` and `far`, on two nodes.
fn on_fresh_nodes<'c>(cluster: &'c Cluster, values: &Value) -> Result<Release<'c>> {
    cluster.freshen()?;
    // The image with Open vSwitch and OVN takes the place of the small one.
    let archive = image_of("ovn-kube", IMAGE)?;
    for (node, worker) in cluster.nodes() {
        worker.import_image(node, &archive)?;
    }
    let release = Release { name: "ovn-kubernetes", cluster };
    let began = Instant::now();
    install(&release, values).with_context(|| said(cluster))?;
    cluster.wait_until_ready().with_context(|| said(cluster))?;
    let pods =
        ["near", "far"].map(|name| pod(name, if name == "near" { "node1" } else { "node2" }));
    cluster.api.create_all(PODS, &pods)?;
    wait_ready(cluster, &["near", "far"]).with_context(|| said(cluster))?;
    near_reaches_far(cluster)?;
    eprintln!("a pod of another node answers after {:.1?}", began.elapsed());
    Ok(release)
}

fn install(release: &Release<'_>, values: &Value) -> Result<()> {
    let cluster = release.cluster;
    eventually("the nodes are known", SOON, || {
        cluster.kubectl(["get", "node", "node1", "node2", "node3"]).map(drop)
    })?;
    cluster.kubectl(["label", "node", "node1", "node-role.kubernetes.io/control-plane="])?;
    cluster.kubectl(["label", "node", "--all", "k8s.ovn.org/ovnkube-db=true"])?;
    // The lab's accounts, for programs beside the kubelets, are those of the manifests.
    refused(
        release.install(values),
        "OVN-Kubernetes is installed in this cluster already, by hand (kubectl apply)",
    )?;
    for account in [access::NODE, access::MASTER] {
        let kinds = ["clusterrole", "clusterrolebinding", "serviceaccount", "role", "rolebinding"];
        for object in kinds.map(|kind| format!("{kind}/{account}")) {
            cluster.kubectl([NAMESPACE, "delete", "--ignore-not-found", &object])?;
        }
    }
    release.install(values)
}

fn refused(answer: Result<()>, words: &str) -> Result<()> {
    let error = answer.err().with_context(|| format!("it was not refused: {words}"))?;
    ensure!(format!("{error:#}").contains(words), "not {words:?}: {error:#}");
    Ok(())
}

fn near_reaches_far(cluster: &Cluster) -> Result<()> {
    let [near, far] = [attached(cluster, "near")?, attached(cluster, "far")?];
    eventually("a pod of another node answers", SOON, || cluster.lab.ping(&near, far.address()))
}

/// Another level of all logs: the options files change, and so does every pod that has them.
/// Packets of running pods go on, but for Open vSwitch, which stays: it forwards in user space
/// here.
fn upgrade(release: &Release<'_>) -> Result<()> {
    let cluster = release.cluster;
    let mut changes = json!({});
    for program in ["node", "controlPlane"] {
        changes[program]["config"] = json!("[logging]\nloglevel=dbg\n");
    }
    for program in ["databases", "ovnController"] {
        changes[program]["resources"] = json!({"requests": {"memory": "100Mi"}});
    }
    // By hand: what the chart does not speak of stays, what it does is the chart's again.
    let by_hand = json!({
        "metadata": {"annotations": {"example.com/by": "hand"}},
        "spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "90%"}}},
    });
    let patch = format!("--patch={by_hand}");
    cluster.kubectl([NAMESPACE, "patch", "daemonset/ovn-kubernetes-node", &patch])?;
    none_is_lost(cluster, "upgrade", || release.upgrade(&changes))?;
    let strategy = r#"jsonpath={.metadata.annotations.example\.com/by} {.spec.updateStrategy.rollingUpdate.maxUnavailable}"#;
    let found = cluster.kubectl([
        NAMESPACE,
        "get",
        "daemonset/ovn-kubernetes-node",
        "--output",
        strategy,
    ])?;
    ensure!(found == "hand 10%", "annotation by hand and strategy after the upgrade: {found}");
    starts_and_answers(cluster, "later", "node3")
}

fn roll_back(release: &Release<'_>) -> Result<()> {
    none_is_lost(release.cluster, "rollback", || release.roll_back_to(1))?;
    let file = release.cluster.kubectl([
        NAMESPACE,
        "get",
        "configmap/ovn-kubernetes-node",
        "--output=yaml",
    ])?;
    ensure!(!file.contains("loglevel"), "after the rollback: {file}");
    let history = release.history()?;
    let states = ["1: superseded", "2: superseded", "3: deployed"];
    ensure!(
        history == states.map(|state| format!("ovn-kubernetes revision {state}")),
        "history: {history:?}"
    );
    Ok(())
}

/// No packet between two pods is lost, as all but Open vSwitch is replaced.
fn none_is_lost(cluster: &Cluster, what: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
    while_pods_speak(cluster, what, act)?.none_is_lost(1).with_context(|| what.to_owned())
}

/// None of the connections of 22 kinds of flow from each of two nodes breaks meanwhile. Returns
/// what two pods hear of each other. What the flows lose is said: all is forwarded in user space
/// here, by the processors that start the pods.
fn while_pods_speak(
    cluster: &Cluster,
    what: &str,
    act: impl FnOnce() -> Result<()>,
) -> Result<Echoes> {
    let [near, far] = [attached(cluster, "near")?, attached(cluster, "far")?];
    let held = Held::start(cluster, IMAGE)?;
    let flow = cluster.lab.flow(&near, &far)?;
    let began = Instant::now();
    act()?;
    let echoes = flow.stop()?;
    let took = began.elapsed();
    let lost = all_flows(held).with_context(|| what.to_owned())?;
    eprintln!("{what}: {took:.1?}: {echoes:?}; lost packets of flows: {lost:?}");
    Ok(echoes)
}

/// Of each of two nodes, 22 kinds. Returns the flows that have lost packets.
fn all_flows(held: Held<'_>) -> Result<Vec<String>> {
    let (flows, lost) = held.end()?;
    ensure!(flows == 2 * 22, "{flows} flows");
    Ok(lost)
}

/// Starts another pod and waits until it answers.
fn starts_and_answers(cluster: &Cluster, name: &str, node: &str) -> Result<()> {
    near_reaches_far(cluster)?;
    cluster.api.create(PODS, &pod(name, node))?;
    wait_ready(cluster, &[name])?;
    let [near, new] = [attached(cluster, "near")?, attached(cluster, name)?];
    eventually("a new pod answers", SOON, || cluster.lab.ping(&near, new.address()))
}

/// `node.certificates`: the token of the pod has requested it.
fn each_server_has_a_certificate_of_its_node(cluster: &Cluster) -> Result<()> {
    for (node, _) in cluster.nodes() {
        let directory = Path::new("/run/ovn-kubernetes/certs");
        let file = node.path(directory.join("ovnkube-client-current.pem"));
        let pem = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let subject = openssl(&["x509", "-noout", "-subject", "-nameopt", "RFC2253"], &pem)?;
        let expected = format!("subject=CN=system:ovn-node:{},O=system:ovn-nodes", node.name);
        ensure!(subject.trim() == expected, "{}: {subject}", node.name);
    }
    Ok(())
}

fn tests_succeed(release: &Release<'_>) -> Result<()> {
    let said = release.test()?;
    let lines = |text: &str| said.lines().filter(|line| line.contains(text)).count();
    let found = ["takes connections from a pod", "HTTP/1.1 200", " answers at tcp:"].map(lines);
    ensure!(found == [1, 1, 6], "{found:?} of the expected lines in: {said}");
    Ok(())
}

fn a_wrong_upgrade_and_another_release_are_refused(release: &Release<'_>) -> Result<()> {
    let two = json!({"databases": {"nodes": ["172.30.0.11", "172.30.0.12"]}});
    refused(release.upgrade(&two), "databases.nodes has 2 addresses")?;
    let other = Release { name: "another", ..*release };
    let words =
        "installed in this cluster already, as release ovn-kubernetes of namespace ovn-kubernetes";
    refused(other.install(&values()), words)?;
    ensure!(other.history().is_err(), "the other release is recorded");
    let history = release.history()?;
    ensure!(history == ["ovn-kubernetes revision 1: deployed"], "{history:?}");
    Ok(())
}

fn uninstall(release: &Release<'_>) -> Result<()> {
    release.uninstall()?;
    // Every EgressFirewall would go with its definition.
    release.cluster.kubectl(["get", "customresourcedefinition/egressfirewalls.k8s.ovn.org"])?;
    let kinds = "deployments,daemonsets,configmaps,serviceaccounts";
    let left = release.cluster.kubectl([NAMESPACE, "get", kinds, "--output=name"])?;
    let ours: Vec<_> = left.lines().filter(|line| WORKLOADS.contains(line)).collect();
    ensure!(ours.is_empty() && !left.contains("configmap/ovn-kubernetes"), "left: {left}");
    eventually("the pods of the chart have ended", SOON, || {
        let selector = "--selector=app.kubernetes.io/name,!helm.sh/hook";
        let pods =
            release.cluster.kubectl([NAMESPACE, "get", "pods", selector, "--output=name"])?;
        let pods: Vec<_> =
            pods.lines().filter(|pod| !pod.contains("ovn-kubernetes-test")).collect();
        ensure!(pods.is_empty(), "{pods:?}");
        Ok(())
    })
}

/// The rows of a member of the cluster go on in a database alone, as the entry point says that it
/// is done; pods of before are in them.
fn install_with_one_database(release: &Release<'_>) -> Result<()> {
    let cluster = release.cluster;
    let node = &cluster.lab.nodes[0];
    for database in ["ovnnb_db.db", "ovnsb_db.db"] {
        node.shell(&format!(
            "cd /var/lib/openvswitch && mv {database} {database}.cluster &&
             ovsdb-tool cluster-to-standalone {database} {database}.cluster"
        ))?;
    }
    cluster.kubectl(["label", "node", "node2", "node3", "k8s.ovn.org/ovnkube-db-"])?;
    let mut values = values();
    values["databases"] = json!({"mode": "standalone", "nodes": ["172.30.0.11"]});
    let began = Instant::now();
    release.install(&values)?;
    near_reaches_far(cluster)?;
    let last = pod("last", "node2");
    cluster.api.create(PODS, &last)?;
    wait_ready(cluster, &["last"])?;
    eprintln!("with one database, a new pod runs after {:.1?}", began.elapsed());
    let said = release.test()?;
    ensure!(said.matches(" answers at tcp:172.30.0.11:").count() == 2, "{said}");
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
        "node": {"certificates": true},
        "global": {"gatewayMode": "local", "image": {"repository": "ovn-kube", "tag": "of-the-chart"}},
    })
}

/// State of the chart's pods and their last log lines, for error messages.
fn said(cluster: &Cluster) -> String {
    let mut said =
        cluster.kubectl([NAMESPACE, "get", "pods,events", "--output=wide"]).unwrap_or_default();
    for workload in WORKLOADS {
        let name = workload.split_once('/').map_or(workload, |(_, name)| name);
        let selector = format!("--selector=app.kubernetes.io/name={name}");
        let log = cluster.kubectl([
            NAMESPACE,
            "logs",
            &selector,
            "--tail=20",
            "--prefix",
            "--all-containers",
        ]);
        said += &log.unwrap_or_default();
    }
    said
}
