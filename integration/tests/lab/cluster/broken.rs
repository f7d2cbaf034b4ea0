//! Clusters in which one thing is broken: `ovnkube status`, `diagnose` or `trace` name it, in two
//! commands at most.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Node,
    central::{NORTHBOUND, SOUTHBOUND},
    eventually, executable,
};
use serde_json::{Value, json};

use crate::{
    cluster::{
        day_two::ovnkube,
        support::{PODS, SOON, attached, small_pod, wait_ready},
    },
    support::api::Api,
};

const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
/// The pod that somebody asks about.
const POD: &str = "default/near";

/// What a command has said, a line for each finding that is no success.
type Faults = Vec<String>;

fn faults(output: &std::process::Output) -> Result<Faults> {
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text)
        .with_context(|| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))?;
    let all = report["findings"].as_array().cloned().unwrap_or_default();
    let faulty = all.into_iter().filter(|it| it["state"] != "ok" && it["state"] != "skipped");
    let line = |it: Value| {
        let text = |field: &str| it[field].as_str().unwrap_or_default().to_owned();
        format!("{}: {}; next: {}", text("name"), text("summary"), text("next"))
    };
    // Of the machine's own Open vSwitch, whatever the test does.
    Ok(faulty.map(line).filter(|fault| !fault.contains("OpenVSwitchAborts")).collect())
}

/// As an administrator asks on a node.
fn on_node(cluster: &Cluster, node: &Node, arguments: &[&str]) -> Result<Faults> {
    let mut command = node.command(executable::under_test(executable::SERVER)?);
    command.args(arguments).args(["-o", "json", "--k8s-kubeconfig"]).arg(cluster.kubeconfig());
    faults(&command.output()?)
}

/// Where the databases are.
fn at_databases(cluster: &Cluster, arguments: &[&str]) -> Result<Faults> {
    let places = [format!("--nb-address={NORTHBOUND}"), format!("--sb-address={SOUTHBOUND}")];
    let mut command = ovnkube(cluster, arguments)?;
    faults(&command.args(["-o", "json"]).args(places).output()?)
}

/// Waits until one fault has all these words.
fn must_name(words: &[&str], ask: impl Fn() -> Result<Faults>) -> Result<()> {
    eventually(&format!("{words:?} is named"), SOON, || {
        let faults = ask()?;
        let is_named = |fault: &String| words.iter().all(|word| fault.contains(word));
        ensure!(faults.iter().any(is_named), "{faults:#?}");
        Ok(())
    })
    .inspect(|()| eprintln!("named: {words:?}"))
}

/// Waits until the report has no such fault any more.
fn must_be_over(words: &[&str], ask: impl Fn() -> Result<Faults>) -> Result<()> {
    eventually(&format!("{words:?} is over"), SOON, || {
        let faults = ask()?;
        let is_named = |fault: &String| words.iter().all(|word| fault.contains(word));
        ensure!(!faults.iter().any(is_named), "{faults:#?}");
        Ok(())
    })
}

#[test]
fn each_of_ten_faults_is_named_by_at_most_two_commands() {
    Cluster::of_nodes(2).dns().test(|cluster| {
        let [node, other] = &cluster.lab.nodes[..] else { anyhow::bail!("two nodes") };
        let pods = ["near", "far"].into_iter().zip(["node1", "node2"]);
        let pods: Vec<Value> = pods.map(|(name, node)| small_pod(name, node)).collect();
        cluster.api.create_all(PODS, &pods)?;
        wait_ready(cluster, &["near", "far"])?;
        let status = || on_node(cluster, node, &["status"]);
        let diagnose = || on_node(cluster, node, &["diagnose", POD]);
        let central = || at_databases(cluster, &["status"]);
        for ask in [&status as &dyn Fn() -> Result<Faults>, &diagnose, &central] {
            eventually("nothing is wrong", SOON, || {
                let faults = ask()?;
                ensure!(faults.is_empty(), "{faults:#?}");
                Ok(())
            })?;
        }
        let during = |words: &[&str],
                      ask: &dyn Fn() -> Result<Faults>,
                      [begin, end]: [&str; 2],
                      place: &Node| {
            place.shell(begin)?;
            let named = must_name(words, ask);
            place.shell(end)?;
            named.and_then(|()| must_be_over(words, ask))
        };

        let tunnel = "table=0,priority=65535,in_port=$port";
        let ports = "for port in $(ovs-vsctl --bare --columns=ofport find Interface type=geneve)";
        let blocked = [
            format!("{ports}; do ovs-ofctl add-flow br-int {tunnel},actions=drop; done"),
            format!("{ports}; do ovs-ofctl --strict del-flows br-int {tunnel}; done"),
        ];
        let silent = ["node node2", "does not answer through the tunnel", "6081"];
        during(&silent, &status, blocked.each_ref().map(String::as_str), node)?;
        let stale = node.cni_conf().with_file_name("05-stale.conflist");
        fs::write(&stale, r#"{"name":"old","plugins":[{"type":"flannel"}]}"#)?;
        must_name(&["05-stale.conflist comes before"], status)?;
        fs::remove_file(&stale)?;
        let on_disk = "mkdir -p /var/lib/ovn; mount -t tmpfs -o size=1m tmpfs /var/lib/ovn";
        let full = ["disk of /var/lib/ovn", "MiB left", "df -h"];
        during(&full, &status, [on_disk, "umount /var/lib/ovn"], node)?;
        let mtu =
            ["1500", "1400"].map(|mtu| format!("ovs-vsctl set Interface breth0 mtu_request={mtu}"));
        let [whole, less] = mtu.each_ref().map(String::as_str);
        during(&["MTU", "do not fit into 1400 of breth0"], &status, [less, whole], node)?;
        let lease = "192.0.2.77/24 dev eth0";
        let again = [format!("ip address add {lease}"), format!("ip address del {lease}")];
        let taken = ["eth0 is a port of a bridge", "192.0.2.77", "DHCP"];
        during(&taken, &status, again.each_ref().map(String::as_str), node)?;

        // The second command says which policy.
        let policy = json!({
            "metadata": {"name": "no-dns"},
            "spec": {"podSelector": {}, "policyTypes": ["Egress"],
                "egress": [{"ports": [{"port": 8080}]}]},
        });
        cluster.api.create(POLICIES, &policy)?;
        let trace = ["trace", POD, "svc/kube-system/kube-dns", "--udp", "53"];
        must_name(&["Service kube-system/kube-dns", &trace[..].join(" ")], diagnose)?;
        must_name(&["default", "no-dns"], || at_databases(cluster, &trace))?;
        cluster.api.delete(&format!("{POLICIES}/no-dns"))?;
        must_be_over(&["kube-dns"], diagnose)?;

        other.ovn_controller.stop()?;
        let on_other = || on_node(cluster, other, &["status"]);
        must_name(&["ovn-controller", "does not run"], on_other)?;
        other.start_ovn_controller()?;
        must_be_over(&["ovn-controller", "does not run"], on_other)?;

        let near = attached(cluster, "near")?;
        let twin = format!("addresses=\"0a:58:0a:f4:63:63 {}\"", near.address());
        let row = ["Logical_Switch_Port", "by_hand"];
        let add = ["lsp-add", &node.name, "by_hand", "--", "set"].into_iter().chain(row);
        cluster.lab.central.nbctl(add.chain([twin.as_str()]))?;
        let twice = || at_databases(cluster, &["diagnose", POD]);
        must_name(&["address twice", "by_hand"], twice)?;
        cluster.lab.central.nbctl(["--if-exists", "lsp-del", "by_hand"])?;

        cluster.lab.central.northd.stop()?;
        must_name(&["ovn-northd", "none is active"], central)?;
        cluster.lab.central.northd.spawn()?;
        must_be_over(&["ovn-northd"], central)?;

        let elsewhere = Api::start()?;
        elsewhere.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}}));
        must_name(&["none of 1 nodes, such as other", "another cluster's"], || {
            let mut command =
                std::process::Command::new(executable::under_test(executable::SERVER)?);
            command.env("HOME", Path::new("/nonexistent")).args(["status", "-o", "json"]);
            let places = [
                format!("--k8s-apiserver={}", elsewhere.url()),
                format!("--sb-address={SOUTHBOUND}"),
            ];
            faults(&command.args(places).output()?)
        })
    });
}
