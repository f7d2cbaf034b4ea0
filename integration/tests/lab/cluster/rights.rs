//! Commands as users with the rights that each command names (docs/reference/report.md), and as a
//! user without any.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster,
    central::{NORTHBOUND, SOUTHBOUND},
    cluster::ovnkube::IMAGE,
    eventually, mounts,
};
use serde_json::{Value, json};

use super::{
    day_two::{must_leave_nothing, ovnkube},
    support::{PODS, SOON, small_pod, wait_ready},
};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
/// How an answer to a request without the right is told.
const FORBIDDEN: &str = "(403)";

/// A command, and its rights: group, resources, verbs.
struct Command {
    words: &'static [&'static str],
    rights: &'static [[&'static str; 3]],
    /// It asks the API server for something that it cannot do without.
    needs_rights: bool,
}

const STATUS: [[&str; 3]; 4] = [
    ["", "nodes events", "list"],
    ["k8s.ovn.org", "egressfirewalls egressqoses", "list"],
    ["coordination.k8s.io", "leases", "list get"],
    ["apps", "deployments daemonsets", "list"],
];
const EXPLAIN: [[&str; 3]; 6] = [
    ["", "pods namespaces services", "get"],
    ["", "nodes pods services", "list"],
    ["k8s.ovn.org", "egressfirewalls", "get"],
    ["networking.k8s.io", "networkpolicies", "list"],
    ["policy.networking.k8s.io", "*", "list"],
    ["discovery.k8s.io", "endpointslices", "list"],
];
const TRACE: [[&str; 3]; 3] = [
    ["", "pods services nodes", "get"],
    ["", "nodes pods", "list"],
    ["", "pods/exec", "create get"],
];
const TEST: [[&str; 3]; 7] = [
    ["", "namespaces", "create get delete"],
    ["", "pods services", "create get list"],
    ["", "pods/log", "get"],
    ["", "nodes", "list"],
    ["networking.k8s.io", "networkpolicies", "create"],
    ["policy.networking.k8s.io", "clusternetworkpolicies", "create get delete"],
    ["policy.networking.k8s.io", "adminnetworkpolicies", "create get delete"],
];

const COMMANDS: [Command; 8] = [
    Command { words: &["status"], rights: &STATUS, needs_rights: true },
    Command {
        words: &["diagnose", "default/near"],
        rights: &[
            ["", "pods services", "get"],
            ["", "events nodes pods", "list"],
            ["", "pods/exec", "create get"],
        ],
        needs_rights: true,
    },
    Command {
        words: &["trace", "default/near", "default/far", "--tcp", "8080"],
        rights: &TRACE,
        // The databases know the pods, too.
        needs_rights: false,
    },
    Command {
        words: &["trace", "default/near", "svc/default/kubernetes", "--tcp", "443"],
        rights: &TRACE,
        needs_rights: false,
    },
    Command {
        words: &["policy", "explain", "default/near", "default/far", "80"],
        rights: &EXPLAIN,
        needs_rights: true,
    },
    Command {
        words: &["policy", "explain", "default/near", "svc/default/kubernetes", "443"],
        rights: &EXPLAIN,
        needs_rights: true,
    },
    Command { words: &["check"], rights: &[], needs_rights: false },
    Command {
        words: &["connectivity", "test", "--image", IMAGE],
        rights: &TEST,
        needs_rights: true,
    },
];

/// A user with these rights: its kubeconfig.
pub(crate) fn user(cluster: &Cluster, name: &str, rights: &[[&str; 3]]) -> Result<PathBuf> {
    let metadata = json!({"name": name, "namespace": "default"});
    cluster.api.create(ACCOUNTS, &json!({"metadata": metadata}))?;
    let rule = |[group, resources, verbs]: &[&str; 3]| {
        let [resources, verbs] = [resources, verbs].map(|it| it.split(' ').collect::<Vec<_>>());
        json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
    };
    let rules: Vec<Value> = rights.iter().map(rule).collect();
    let role = json!({"metadata": {"name": name}, "rules": rules});
    cluster.api.create(&format!("{RBAC}/clusterroles"), &role)?;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}],
    });
    cluster.api.create(&format!("{RBAC}/clusterrolebindings"), &binding)?;
    let token = cluster.kubectl(["-n", "default", "create", "token", name])?;
    let view = cluster.kubectl(["config", "view", "--raw", "-o", "json"])?;
    let mut config: Value = serde_json::from_str(&view)?;
    config["users"][0]["user"] = json!({"token": token.trim()});
    let file = PathBuf::from(mounts::LAB).join(format!("{name}.kubeconfig"));
    fs::write(&file, config.to_string())?;
    Ok(file)
}

/// What the command says as this user, and its exit status.
fn said(cluster: &Cluster, command: &Command, kubeconfig: &PathBuf) -> Result<(String, i32)> {
    let mut program = ovnkube(cluster, command.words)?;
    program.args(["-o", "json", "--k8s-kubeconfig"]).arg(kubeconfig);
    match command.words[0] {
        "check" | "connectivity" => {}
        "policy" => drop(program.arg(format!("--nb-address={NORTHBOUND}"))),
        _ => {
            let places =
                [format!("--nb-address={NORTHBOUND}"), format!("--sb-address={SOUTHBOUND}")];
            program.args(places);
        }
    }
    let output = program.output()?;
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let status = output.status.code().context("an exit status")?;
    Ok((String::from_utf8_lossy(&text).into_owned(), status))
}

#[test]
fn each_command_needs_the_rights_that_it_names_and_no_other() {
    Cluster::of_nodes(2).dns().test(|cluster| {
        cluster.import_ovnkube()?;
        let pods = ["near", "far"].into_iter().zip(["node1", "node2"]);
        let pods: Vec<Value> = pods.map(|(name, node)| small_pod(name, node)).collect();
        cluster.api.create_all(PODS, &pods)?;
        wait_ready(cluster, &["near", "far"])?;
        let nobody = user(cluster, "nobody-in-particular", &[])?;
        for (number, command) in COMMANDS.iter().enumerate() {
            let words = command.words;
            let asker = user(cluster, &format!("asker-{number}"), command.rights)?;
            // The API server's authorizer follows the new rights.
            eventually(&format!("{words:?} has its rights"), SOON, || {
                let (text, status) = said(cluster, command, &asker)?;
                ensure!(!text.contains(FORBIDDEN), "{words:?} lacks a right: {text}");
                ensure!([0, 4].contains(&status) || words == ["check"], "{status}: {text}");
                Ok(())
            })?;
            let (text, status) = said(cluster, command, &nobody)?;
            if command.needs_rights {
                ensure!(text.contains(FORBIDDEN) && [1, 3].contains(&status), "{status}: {text}");
            }
            ensure!(status != 101 && !text.contains("panicked"), "{words:?}: {text}");
        }
        must_leave_nothing(cluster)
    });
}
