//! The Helm chart, through Helm's own packages (`integration/helm`): one more form of the plain manifests, and never another content.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::manifests::{Manifests, conf, documents, read};

fn charts(verb: &str, values: Option<&Value>) -> Output {
    let own = std::env::current_exe().unwrap();
    let tool = own.ancestors().skip(1).map(|directory| directory.join("tools/charts")).find(|tool| tool.is_file());
    let tool = tool.expect("target/tools/charts is missing; build it with: integration/prerequisites.sh test");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("values.yaml");
    let mut command = Command::new(tool);
    command.arg(verb).arg(conf("helm/ovn-kubernetes-node"));
    if let Some(values) = values {
        // JSON is YAML.
        fs::write(&file, values.to_string()).unwrap();
        command.arg(&file);
    }
    command.output().unwrap()
}

/// The objects that Helm makes with these values.
fn template(values: Option<&Value>) -> Vec<Value> {
    let Output { status, stdout, stderr } = charts("template", values);
    assert!(status.success(), "{values:?}: {}", String::from_utf8_lossy(&stderr));
    documents(&String::from_utf8(stdout).unwrap())
}

/// The same as manifests; the chart leaves the namespace to Helm.
fn manifests(values: &Value) -> Manifests {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ovn-kubernetes"}});
    let mut objects = template(Some(values));
    // Helm's order of installation is not that of the plain file.
    let kinds = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet"];
    objects.sort_by_key(|object| kinds.iter().position(|kind| object["kind"] == *kind));
    objects.insert(0, namespace);
    Manifests::of(&objects)
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    let Output { status, stdout, stderr } = charts("lint", None);
    assert!(status.success(), "{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
}

#[test]
fn without_values_the_chart_makes_what_the_plain_manifests_make() {
    let by_name = |mut objects: Vec<Value>| {
        objects.sort_by_key(|object| object["kind"].to_string());
        objects
    };
    let mut rendered = template(None);
    for object in &mut rendered {
        // The chart's way to restart the servers after a change of the options; by hand: kubectl rollout restart.
        if let Some(metadata) = object.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut) {
            assert!(metadata.remove("annotations").unwrap()["checksum/config"].is_string());
        }
    }
    let mut plain = documents(&read(&conf("kubernetes/ovn-kubernetes-node.yaml")));
    plain.retain(|object| object["kind"] != "Namespace");
    assert_eq!(by_name(rendered), by_name(plain));
}

#[test]
fn every_value_reaches_the_objects() {
    let all = manifests(&json!({
        "image": {"repository": "registry/node", "tag": "7", "pullPolicy": "Always", "pullSecrets": ["pull"]},
        "config": "[default]\nmtu=1300\n",
        "extraArgs": ["--loglevel=dbg"],
        "metrics": {"port": 19410, "tlsSecret": "node-tls"},
        "healthPort": 19411,
        "hostPaths": {"cniBin": "/bin-dir", "cniConf": "/conf-dir", "openVSwitch": "/ovs-dir", "openVSwitchConf": "/ovs-conf-dir"},
        "maxUnavailable": 3,
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "priorityClassName": "p",
        "resources": {"limits": {"memory": "1Gi"}},
        "seLinuxOptions": {"type": "spc_t"},
    }));
    assert_eq!(all.config.data.as_ref().unwrap()["ovn_k8s.conf"], "[default]\nmtu=1300\n");
    let container = serde_json::to_value(all.container()).unwrap();
    assert_eq!((&container["image"], &container["imagePullPolicy"]), (&json!("registry/node:7"), &json!("Always")));
    let arguments: Vec<&str> = container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()).collect();
    for argument in [
        "--loglevel=dbg",
        "--metrics-bind-address=:19410",
        "--healthz-bind-address=127.0.0.1:19411",
        "--node-server-privkey=/etc/ovn-kubernetes-tls/tls.key",
        "--node-server-cert=/etc/ovn-kubernetes-tls/tls.crt",
    ] {
        assert!(arguments.contains(&argument), "{argument}: {arguments:?}");
    }
    assert_eq!(container["resources"]["limits"], json!({"memory": "1Gi"}));
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], 19411);
    let spec = serde_json::to_value(all.daemon_set.spec.unwrap()).unwrap();
    assert_eq!(spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"], 3);
    let pod = &spec["template"]["spec"];
    for (pointer, value) in [
        ("/nodeSelector/pool", "a"),
        ("/tolerations/0/key", "k"),
        ("/priorityClassName", "p"),
        ("/securityContext/seLinuxOptions/type", "spc_t"),
        ("/imagePullSecrets/0/name", "pull"),
        ("/volumes/1/secret/secretName", "node-tls"),
        ("/volumes/2/hostPath/path", "/bin-dir"),
        ("/volumes/3/hostPath/path", "/conf-dir"),
        ("/volumes/5/hostPath/path", "/ovs-dir"),
        ("/volumes/7/hostPath/path", "/ovs-conf-dir"),
    ] {
        assert_eq!(pod.pointer(pointer), Some(&json!(value)), "{pointer}");
    }
}

#[test]
fn values_that_make_no_sense_are_refused_by_name() {
    for (values, name) in [
        (json!({"metrics": {"port": 70000}}), "/metrics/port"),
        (json!({"metricsPort": 1}), "metricsPort"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "/image/pullPolicy"),
        (json!({"extraArgs": ["loglevel"]}), "/extraArgs/0"),
        (json!({"hostPaths": {"cniBin": "opt"}}), "/hostPaths/cniBin"),
        (json!({"maxUnavailable": "0%"}), "/maxUnavailable"),
    ] {
        let Output { status, stderr, .. } = charts("template", Some(&values));
        let words = String::from_utf8_lossy(&stderr).into_owned();
        assert!(!status.success() && words.contains(name), "{values}: {words}");
    }
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart: Value = serde_yaml_ng::from_str(&read(&conf("helm/ovn-kubernetes-node/Chart.yaml"))).unwrap();
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(env!("CARGO_PKG_VERSION")), &json!(env!("CARGO_PKG_VERSION"))));
}
