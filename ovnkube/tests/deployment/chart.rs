//! The Helm chart, rendered by Helm's own packages (`integration/helm`): the same content as the plain
//! manifests.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::manifests::{Manifests, conf, documents, read};

fn charts(verb: &str, values: Option<&Value>) -> Output {
    let own = std::env::current_exe().unwrap();
    let tool =
        own.ancestors().skip(1).map(|directory| directory.join("tools/charts")).find(|tool| tool.is_file());
    let tool =
        tool.expect("target/tools/charts is missing; build it with: integration/prerequisites.sh test");
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

/// The same objects as [`Manifests`], with a namespace, which the chart leaves to Helm.
fn manifests(values: &Value) -> Manifests {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ovn-kubernetes"}});
    let mut objects = template(Some(values));
    // Helm's order of installation is not that of the plain file.
    let kinds = [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ConfigMap",
        "DaemonSet",
    ];
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
        // Only the chart has it: a changed checksum restarts the servers after a change of the options. By
        // hand that is `kubectl rollout restart`.
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
        "cniChain": [{"type": "portmap", "capabilities": {"portMappings": true}}],
        "extraArgs": ["--loglevel=dbg"],
        "metrics": {"address": "127.0.0.1", "port": 19410, "tlsSecret": "node-tls"},
        "healthAddress": "0.0.0.0",
        "healthPort": 19411,
        "hostPaths": {"cniBin": "/bin-dir", "cniConf": "/conf-dir", "openVSwitch": "/ovs-dir", "ovn": "/ovn-dir", "openVSwitchConf": "/ovs-conf-dir"},
        "maxUnavailable": 3,
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "priorityClassName": "p",
        "resources": {"limits": {"memory": "1Gi"}},
        "seLinuxOptions": {"type": "spc_t"},
    }));
    assert_eq!(all.config.data.as_ref().unwrap()["ovn_k8s.conf"], "[default]\nmtu=1300\n");
    let chain: Value = serde_json::from_str(&all.config.data.as_ref().unwrap()["cni-chain.json"]).unwrap();
    assert_eq!(chain, json!([{"type": "portmap", "capabilities": {"portMappings": true}}]));
    let container = serde_json::to_value(all.container()).unwrap();
    assert_eq!(
        (&container["image"], &container["imagePullPolicy"]),
        (&json!("registry/node:7"), &json!("Always"))
    );
    let arguments: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()).collect();
    for argument in [
        "--loglevel=dbg",
        "--metrics-bind-address=127.0.0.1:19410",
        "--healthz-bind-address=0.0.0.0:19411",
        "--node-server-privkey=/etc/ovn-kubernetes-tls/tls.key",
        "--node-server-cert=/etc/ovn-kubernetes-tls/tls.crt",
        "--ovs-run-dir=/ovs-dir",
        "--ovn-run-dir=/ovn-dir",
        "--cni-chain=/etc/ovn-kubernetes/cni-chain.json",
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
        ("/volumes/6/hostPath/path", "/ovn-dir"),
        ("/volumes/7/hostPath/path", "/ovs-conf-dir"),
    ] {
        assert_eq!(pod.pointer(pointer), Some(&json!(value)), "{pointer}");
    }
}

/// Kubernetes before 1.30 does not have these kinds, and Helm would install nothing.
#[test]
fn the_policy_about_a_nodes_own_annotations_can_be_left_out() {
    let kinds: Vec<Value> = template(Some(&json!({"ownNodeOnly": false})))
        .into_iter()
        .map(|object| object["kind"].clone())
        .filter(|kind| kind.as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmission")))
        .collect();
    assert_eq!(kinds, Vec::<Value>::new());
}

/// The paths for the server, and those for the plugin, which runs on the host and does not see the
/// container's mounts.
#[test]
fn what_the_plugin_is_told_of_open_vswitch_is_true_on_the_host() {
    for (open_vswitch, ovn, endpoint, ovn_run_dir) in [
        ("/var/run/openvswitch", "/var/run/ovn", None, None),
        ("/ovs-dir", "/var/run/ovn-ic", Some("unix:/ovs-dir/db.sock"), Some("/var/run/ovn-ic")),
        // Upstream's DaemonSet: one directory for both.
        ("/var/run/openvswitch", "/var/run/openvswitch", None, Some("/var/run/openvswitch")),
    ] {
        let manifests = manifests(&json!({"hostPaths": {"openVSwitch": open_vswitch, "ovn": ovn}}));
        let mounts = manifests.container().volume_mounts.as_ref().unwrap();
        let paths: std::collections::BTreeSet<&str> =
            mounts.iter().map(|mount| mount.mount_path.as_str()).collect();
        assert_eq!(paths.len(), mounts.len(), "Kubernetes refuses two mounts of one path: {mounts:?}");
        let pod = manifests.daemon_set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        for directory in [open_vswitch, ovn] {
            let mount = mounts
                .iter()
                .find(|mount| mount.mount_path == directory)
                .unwrap_or_else(|| panic!("{directory} in {mounts:?}"));
            let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name).unwrap();
            assert_eq!(volume.host_path.as_ref().unwrap().path, directory);
        }
        let line = manifests.container().args.as_ref().unwrap().join(" ").replace("$(K8S_NODE)", "n1");
        let line = line.replace("--config-file=/etc/ovn-kubernetes/ovn_k8s.conf", "--pod-manifests=/pods");
        let options: ovnkube::options::Options = line.parse().unwrap();
        let ovnkube::options::Program::Node(node) = options.program().unwrap() else { panic!("{line}") };
        let places = node.config(&std::collections::BTreeMap::new()).unwrap().cni_conf.places();
        assert_eq!(
            (places.ovsdb_endpoint.as_deref(), places.ovn_run_dir.as_deref()),
            (endpoint, ovn_run_dir)
        );
    }
}

#[test]
fn values_that_make_no_sense_are_refused_by_name() {
    for (values, name) in [
        (json!({"metrics": {"port": 70000}}), "/metrics/port"),
        (json!({"metricsPort": 1}), "metricsPort"),
        (json!({"healthAddress": "everywhere"}), "/healthAddress"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "/image/pullPolicy"),
        (json!({"extraArgs": ["loglevel"]}), "/extraArgs/0"),
        (json!({"hostPaths": {"cniBin": "opt"}}), "/hostPaths/cniBin"),
        (json!({"cniChain": [{"type": "/bin/sh"}]}), "/cniChain/0/type"),
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
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!(env!("CARGO_PKG_VERSION")))
    );
}
