//! The Helm chart, rendered by Helm's own packages (`integration/helm`): the same content as the
//! plain manifests.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Output},
};

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use serde_json::{Value, json};

use crate::manifests::{Manifests, conf, documents, read, strictly};

/// The program of `integration/helm`.
pub(crate) fn charts_tool() -> Command {
    let own = std::env::current_exe().unwrap();
    let tool = own
        .ancestors()
        .skip(1)
        .map(|directory| directory.join("tools/charts"))
        .find(|tool| tool.is_file());
    let tool = tool
        .expect("target/tools/charts is missing; build it with: integration/prerequisites.sh test");
    Command::new(tool)
}

fn charts(verb: &str, values: Option<&Value>) -> Output {
    charts_in(&json!([]), verb, values)
}

/// The same in a cluster with these objects.
fn charts_in(objects: &Value, verb: &str, values: Option<&Value>) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let [file, cluster] = ["values.yaml", "objects.yaml"].map(|name| directory.path().join(name));
    let mut command = charts_tool();
    command.arg(verb).arg(conf("helm/ovn-kubernetes"));
    if let Some(values) = values {
        // JSON is YAML.
        fs::write(&file, values.to_string()).unwrap();
        fs::write(&cluster, objects.to_string()).unwrap();
        command.args([&file, &cluster]);
    }
    command.output().unwrap()
}

/// The objects that Helm makes with these values.
fn template(values: Option<&Value>) -> Vec<Value> {
    let Output { status, stdout, stderr } = charts("template", values);
    assert!(status.success(), "{values:?}: {}", String::from_utf8_lossy(&stderr));
    documents(&String::from_utf8(stdout).unwrap())
}

/// The objects of the nodes' server, as [`Manifests`], with a namespace, which the chart leaves to
/// Helm.
fn manifests(values: &Value) -> Manifests {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ovn-kubernetes"}});
    let mut objects = template(Some(values));
    objects.retain(|object| object["metadata"]["name"] == "ovn-kubernetes-node");
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

/// The only container of an object's pods.
fn container(objects: &[Value], kind: &str, name: &str) -> Value {
    let object = objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no {kind} {name}"));
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let [container] = &containers[..] else { panic!("{containers:#?}") };
    container.clone()
}

/// The options file in a ConfigMap.
fn options(objects: &[Value], name: &str) -> String {
    let config = objects
        .iter()
        .find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no ConfigMap {name}"));
    config["data"]["ovn_k8s.conf"].as_str().unwrap().to_owned()
}

/// What a program reads in this options file: the values, by the option's name.
fn read_options(text: &str) -> Vec<(&'static str, String)> {
    let said = ovnkube::options::conf_file::said(text, "ovn_k8s.conf".as_ref());
    assert_eq!((said.problems, said.notes), (Vec::new(), Vec::new()), "{text}");
    said.values.into_iter().map(|(name, (value, _))| (name, value)).collect()
}

#[test]
fn helm_finds_nothing_to_complain_about() {
    let Output { status, stdout, stderr } = charts("lint", None);
    assert!(
        status.success(),
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
}

#[test]
fn without_values_the_chart_makes_what_the_plain_manifests_make() {
    let by_name = |mut objects: Vec<Value>| {
        for object in &mut objects {
            // The same options; the manifests' files have comments.
            if let Some(text) = object.pointer_mut("/data/ovn_k8s.conf") {
                *text = json!(read_options(text.as_str().unwrap()));
            }
        }
        objects.sort_by_key(|object| {
            (object["kind"].to_string(), object["metadata"]["name"].to_string())
        });
        objects
    };
    let mut rendered = template(None);
    for object in &mut rendered {
        // Only the chart has it: a changed checksum restarts the programs after a change of the
        // options. By hand that is `kubectl rollout restart`.
        if let Some(metadata) =
            object.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut)
        {
            assert!(metadata.remove("annotations").unwrap()["checksum/config"].is_string());
        }
        if object["kind"] == "CustomResourceDefinition" {
            let kept = object["metadata"].as_object_mut().unwrap().remove("annotations").unwrap();
            assert_eq!(kept, json!({"helm.sh/resource-policy": "keep"}));
        }
    }
    let mut plain = Vec::new();
    for file in
        ["egressfirewalls", "egressqoses", "ovn-kubernetes-control-plane", "ovn-kubernetes-node"]
    {
        plain.extend(documents(&read(&conf(&format!("kubernetes/{file}.yaml")))));
    }
    plain.retain(|object| object["kind"] != "Namespace");
    assert_eq!(by_name(rendered), by_name(plain));
}

#[test]
fn every_value_of_the_nodes_reaches_the_objects() {
    let all = manifests(&json!({
        "image": {"repository": "registry/node", "tag": "7", "pullPolicy": "Always", "pullSecrets": ["pull"]},
        "hostPaths": {"cniBin": "/bin-dir", "cniConf": "/conf-dir", "openVSwitch": "/ovs-dir", "ovn": "/ovn-dir", "openVSwitchConf": "/ovs-conf-dir"},
        "seLinuxOptions": {"type": "spc_t"},
        "node": {
            "config": "[default]\nmtu=1300\n",
            "cniChain": [{"type": "portmap", "capabilities": {"portMappings": true}}],
            "extraArgs": ["--loglevel=dbg"],
            "metrics": {
                "address": "127.0.0.1",
                "port": 19410,
                "daemonsPort": 19476,
                "tlsSecret": "node-tls",
            },
            "healthAddress": "0.0.0.0",
            "healthPort": 19411,
            "maxUnavailable": 3,
            "nodeSelector": {"pool": "a"},
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "priorityClassName": "p",
            "resources": {"limits": {"memory": "1Gi"}},
        },
        "global": {"gatewayOpts": "--gateway-nexthop=192.0.2.1 --gateway-vlanid=7"},
    }));
    let options = read_options(&all.config.data.as_ref().unwrap()["ovn_k8s.conf"]);
    assert!(options.contains(&("mtu", "1300".to_owned())), "the further lines win: {options:?}");
    let chain: Value =
        serde_json::from_str(&all.config.data.as_ref().unwrap()["cni-chain.json"]).unwrap();
    assert_eq!(chain, json!([{"type": "portmap", "capabilities": {"portMappings": true}}]));
    let container = serde_json::to_value(all.container()).unwrap();
    assert_eq!(
        (&container["image"], &container["imagePullPolicy"]),
        (&json!("registry/node:7"), &json!("Always"))
    );
    let arguments: Vec<&str> = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|argument| argument.as_str().unwrap())
        .collect();
    for argument in [
        "--loglevel=dbg",
        "--metrics-bind-address=127.0.0.1:19410",
        "--ovn-metrics-bind-address=127.0.0.1:19476",
        "--export-ovs-metrics",
        "--healthz-bind-address=0.0.0.0:19411",
        "--node-server-privkey=/etc/ovn-kubernetes-tls/tls.key",
        "--node-server-cert=/etc/ovn-kubernetes-tls/tls.crt",
        "--ovs-run-dir=/ovs-dir",
        "--ovn-run-dir=/ovn-dir",
        "--cni-chain=/etc/ovn-kubernetes/cni-chain.json",
        "--gateway-nexthop=192.0.2.1",
        "--gateway-vlanid=7",
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

#[test]
fn every_value_of_the_control_plane_reaches_the_objects() {
    let objects = template(Some(&json!({
        "image": {"repository": "registry/node", "tag": "7"},
        "k8sAPIServer": "https://192.0.2.1:6443",
        "databases": {"north": "ssl:192.0.2.2:6641,ssl:192.0.2.3:6641", "south": "tcp:[fd00::2]:6642"},
        "controlPlane": {
            "replicas": 3,
            "config": "[logging]\nloglevel=dbg\n",
            "extraArgs": ["--zone=z"],
            "metrics": {"address": "127.0.0.1", "port": 19409},
            "healthPort": 19408,
            "nodeSelector": {"pool": "b"},
            "priorityClassName": "p",
            "resources": {"limits": {"memory": "2Gi"}},
        },
        "global": {"enableMulticast": true},
    })));
    let options = read_options(&options(&objects, "ovn-kubernetes-control-plane"));
    for (name, value) in [
        ("k8s-apiserver", "https://192.0.2.1:6443"),
        ("nb-address", "ssl:192.0.2.2:6641,ssl:192.0.2.3:6641"),
        ("sb-address", "tcp:[fd00::2]:6642"),
        ("loglevel", "dbg"),
    ] {
        assert!(options.contains(&(name, value.to_owned())), "{name}={value}: {options:?}");
    }
    let container = container(&objects, "Deployment", "ovn-kubernetes-control-plane");
    assert_eq!(container["image"], "registry/node:7");
    let arguments = container["args"].as_array().unwrap();
    for argument in [
        "--zone=z",
        "--enable-multicast",
        "--metrics-bind-address=127.0.0.1:19409",
        "--healthz-bind-address=127.0.0.1:19408",
    ] {
        assert!(arguments.contains(&json!(argument)), "{argument}: {arguments:?}");
    }
    assert_eq!(container["livenessProbe"]["httpGet"]["port"], 19408);
    assert_eq!(container["resources"]["limits"], json!({"memory": "2Gi"}));
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 3);
    let pod = &spec["template"]["spec"];
    assert_eq!(
        (&pod["nodeSelector"]["pool"], &pod["priorityClassName"]),
        (&json!("b"), &json!("p"))
    );
}

/// A file of values that was written for upstream's chart, with its defaults: what this version has
/// not is off.
#[test]
fn values_with_the_names_of_upstreams_chart_mean_the_same() {
    let objects = template(Some(&json!({
        "k8sAPIServer": "https://172.25.0.2:6443",
        "podNetwork": "10.244.0.0/16/24",
        "serviceNetwork": "10.96.0.0/16",
        "mtu": 1300,
        "skipCallToK8s": true,
        "ovnkube-master": {"replicas": 1},
        "global": {
            "gatewayMode": "local",
            "extGatewayNetworkInterface": "eth1",
            "encapPort": 6082,
            "v4JoinSubnet": "100.65.0.0/16",
            "v4MasqueradeSubnet": "169.254.0.0/17",
            "v6MasqueradeSubnet": "fd69::/112",
            "enableOvnKubeIdentity": true,
            "enableAdminNetworkPolicy": true,
            "enableEgressFirewall": true,
            "enableEgressIp": false,
            "enableHybridOverlay": "",
            "enableInterconnect": false,
            "enableSvcTemplate": true,
            "enableLFlowCache": true,
            "lFlowCacheLimit": 2_000_000,
            "lFlowCacheLimitKb": "",
            "disableForwarding": "",
            "remoteProbeInterval": 100_000,
            "aclLoggingRateLimit": 30,
            "noHostSubnetLabel": "network=other",
            "netFlowTargets": "",
            "image": {"repository": "registry/ovn-kube", "tag": "master", "pullPolicy": "Always"},
            "imagePullSecretName": "pull",
        },
    })));
    for name in ["ovn-kubernetes-node", "ovn-kubernetes-control-plane"] {
        let options = read_options(&options(&objects, name));
        for (name, value) in [
            ("k8s-apiserver", "https://172.25.0.2:6443"),
            ("cluster-subnets", "10.244.0.0/16/24"),
            ("k8s-service-cidrs", "10.96.0.0/16"),
            ("mtu", "1300"),
            ("gateway-mode", "local"),
            ("gateway-interface", "eth1"),
            ("encap-port", "6082"),
            ("gateway-v4-join-subnet", "100.65.0.0/16"),
            ("gateway-v4-masquerade-subnet", "169.254.0.0/17"),
            ("gateway-v6-masquerade-subnet", "fd69::/112"),
            ("enable-svc-template-support", "true"),
            ("enable-lflow-cache", "true"),
            ("lflow-cache-limit", "2000000"),
            ("inactivity-probe", "100000"),
            ("acl-logging-rate-limit", "30"),
            ("no-hostsubnet-nodes", "network=other"),
        ] {
            assert!(options.contains(&(name, value.to_owned())), "{name}={value}: {options:?}");
        }
        assert!(!options.iter().any(|(name, _)| *name == "disable-forwarding"), "{options:?}");
    }
    for (kind, name) in
        [("DaemonSet", "ovn-kubernetes-node"), ("Deployment", "ovn-kubernetes-control-plane")]
    {
        let container = container(&objects, kind, name);
        assert_eq!(
            (&container["image"], &container["imagePullPolicy"]),
            (&json!("registry/ovn-kube:master"), &json!("Always"))
        );
    }
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(
        deployment["spec"]["template"]["spec"]["imagePullSecrets"],
        json!([{"name": "pull"}])
    );
}

/// Everything in pods: each of the API's objects, strictly read, with no more rights than it needs.
#[test]
fn with_everything_in_pods_only_open_vswitch_is_privileged_and_only_ovnkube_speaks_to_the_api_server()
 {
    for (mode, nodes, north) in [
        ("standalone", json!(["10.0.0.1"]), "tcp:10.0.0.1:7641"),
        (
            "raft",
            json!(["10.0.0.1", "10.0.0.2", "fd00::3"]),
            "tcp:10.0.0.1:7641,tcp:10.0.0.2:7641,tcp:[fd00::3]:7641",
        ),
    ] {
        let values = json!({
            "databases": {"mode": mode, "nodes": nodes},
            "openVSwitch": {"inPods": true},
            "ovnController": {"inPods": true},
            "ovnImage": {"repository": "registry/ovn-kube", "tag": "7"},
            "global": {"nbPort": 7641},
        });
        let objects = template(Some(&values));
        let daemon_sets: Vec<DaemonSet> =
            objects.iter().filter(|object| object["kind"] == "DaemonSet").map(strictly).collect();
        assert_eq!(daemon_sets.len(), 4);
        for daemon_set in daemon_sets {
            let name = daemon_set.metadata.name.unwrap();
            let pod = daemon_set.spec.unwrap().template.spec.unwrap();
            assert_eq!(pod.host_network, Some(true), "{name}: there is no other network yet");
            let account = pod.service_account_name.is_some();
            assert_eq!(account, name == "ovn-kubernetes-node", "{name}");
            assert_eq!(pod.automount_service_account_token, (!account).then_some(false), "{name}");
            for container in &pod.containers {
                let privileged =
                    container.security_context.as_ref().unwrap().privileged == Some(true);
                assert_eq!(privileged, name == "ovn-kubernetes-openvswitch", "{name}");
                let of_ovn = container.image.as_deref() == Some("registry/ovn-kube:7");
                assert_eq!(of_ovn, name != "ovn-kubernetes-node", "{name}: {:?}", container.image);
                assert!(
                    container.readiness_probe.is_some(),
                    "{name}: an update has to wait for it"
                );
            }
            if name == "ovn-kubernetes-databases" {
                let names: Vec<_> =
                    pod.containers.iter().map(|container| container.name.as_str()).collect();
                assert_eq!(names, ["nb-ovsdb", "sb-ovsdb", "ovn-northd"]);
                let environment = pod.containers[0].env.as_ref().unwrap();
                assert_eq!(environment[0].value.as_deref(), Some(north));
            }
        }
        for name in ["ovn-kubernetes-node", "ovn-kubernetes-control-plane"] {
            let options = read_options(&options(&objects, name));
            assert!(options.contains(&("nb-address", north.to_owned())), "{name}: {options:?}");
        }
    }
}

/// Databases on sockets of the node, and a controller in the process of the node's server, with the
/// rights of both.
#[test]
fn with_zones_each_node_has_databases_and_a_controller_of_its_own() {
    let values = json!({"layout": "zones", "node": {"maxUnavailable": "20%"}, "global": {"enableMulticast": true}});
    let objects = template(Some(&values));
    let arguments = |kind: &str, name: &str| container(&objects, kind, name)["args"].clone();
    let has = |arguments: &Value, wanted: &str| {
        arguments.as_array().unwrap().iter().any(|it| it == wanted)
    };
    let node = arguments("DaemonSet", "ovn-kubernetes-node");
    let manager = arguments("Deployment", "ovn-kubernetes-control-plane");
    assert!(
        has(&node, "--init-node=$(K8S_NODE)")
            && has(&node, "--init-ovnkube-controller=$(K8S_NODE)")
    );
    assert!(has(&node, "--enable-multicast") && !has(&manager, "--enable-multicast"));
    assert!(
        has(&manager, "--init-cluster-manager=$(K8S_NODE)")
            && !has(&manager, "--init-master=$(K8S_NODE)")
    );
    for name in ["ovn-kubernetes-node", "ovn-kubernetes-control-plane"] {
        let options = read_options(&options(&objects, name));
        for wanted in [
            ("enable-interconnect", "true"),
            ("nb-address", "unix:/var/run/ovn/ovnnb_db.sock"),
            ("sb-address", "unix:/var/run/ovn/ovnsb_db.sock"),
        ] {
            assert!(options.contains(&(wanted.0, wanted.1.to_owned())), "{name}: {options:?}");
        }
    }
    let databases = objects.iter().find(|object| {
        object["kind"] == "DaemonSet"
            && object["metadata"]["name"] == "ovn-kubernetes-zone-databases"
    });
    let databases = strictly::<DaemonSet>(databases.unwrap()).spec.unwrap();
    let strategy = json!(databases.update_strategy.unwrap());
    assert_eq!(strategy["rollingUpdate"]["maxUnavailable"], "20%");
    let pod = databases.template.spec.unwrap();
    assert_eq!(json!(pod.node_selector), json!({"kubernetes.io/os": "linux"}), "on all nodes");
    let commands: Vec<_> =
        pod.containers.iter().map(|it| it.command.clone().unwrap()[1].clone()).collect();
    assert_eq!(commands, ["local-nb-ovsdb", "local-sb-ovsdb", "run-ovn-northd"]);
    let rules = |name: &str| -> Vec<Value> {
        let role = objects
            .iter()
            .find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == name);
        role.unwrap()["rules"].as_array().unwrap().clone()
    };
    let granted = |rules: &[Value]| -> BTreeSet<String> {
        let list = |value: &Value| -> Vec<String> {
            let texts = value.as_array().into_iter().flatten();
            texts.map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let mut granted = BTreeSet::new();
        for rule in rules {
            for resource in list(&rule["resources"]) {
                granted.extend(
                    list(&rule["verbs"]).into_iter().map(|verb| format!("{verb} {resource}")),
                );
            }
        }
        granted
    };
    // But for the cluster manager's part, which approves certificates.
    let manager = granted(&rules("ovn-kubernetes-control-plane"));
    let node = granted(&rules("ovn-kubernetes-node"));
    let missing: Vec<_> = manager.difference(&node).collect();
    assert_eq!(missing, ["approve signers", "patch certificatesigningrequests/approval"]);
}

/// On the way between the two: what both have, with sockets that do not collide.
#[test]
fn with_both_layouts_each_node_knows_the_databases_of_all_and_its_own() {
    let of_all = json!({"mode": "standalone", "nodes": ["10.0.0.1"]});
    let objects = template(Some(&json!({"layout": "both", "databases": of_all})));
    let arguments = |kind: &str, name: &str| container(&objects, kind, name)["args"].clone();
    let node = arguments("DaemonSet", "ovn-kubernetes-node");
    for wanted in [
        "--init-node=$(K8S_NODE)",
        "--init-ovnkube-controller=$(K8S_NODE)",
        "--zone=$(K8S_NODE)",
        "--nb-address=unix:/var/run/ovn/zone/ovnnb_db.sock",
        "--sb-address=unix:/var/run/ovn/zone/ovnsb_db.sock",
        "--other-zone=global",
        "--other-sb-address=tcp:10.0.0.1:6642",
    ] {
        assert!(node.as_array().unwrap().contains(&json!(wanted)), "{wanted}: {node}");
    }
    let control_plane = arguments("Deployment", "ovn-kubernetes-control-plane");
    assert!(control_plane.as_array().unwrap().contains(&json!("--init-master=$(K8S_NODE)")));
    for name in ["ovn-kubernetes-node", "ovn-kubernetes-control-plane"] {
        let options = read_options(&options(&objects, name));
        assert!(options.contains(&("enable-interconnect", "true".to_owned())), "{options:?}");
        assert!(options.contains(&("nb-address", "tcp:10.0.0.1:6641".to_owned())), "{options:?}");
    }
    let databases = |name: &str| -> (Vec<String>, Vec<String>) {
        let object = objects
            .iter()
            .find(|object| object["kind"] == "DaemonSet" && object["metadata"]["name"] == name);
        let set = strictly::<DaemonSet>(object.unwrap()).spec.unwrap();
        let pod = set.template.spec.unwrap();
        let commands =
            pod.containers.iter().map(|it| it.command.clone().unwrap()[1].clone()).collect();
        let volumes = pod.volumes.unwrap_or_default().into_iter();
        let paths = volumes.filter_map(|volume| volume.host_path).map(|host| host.path).collect();
        (commands, paths)
    };
    let (commands, of_all) = databases("ovn-kubernetes-databases");
    assert_eq!(commands, ["nb-ovsdb", "sb-ovsdb", "run-ovn-northd"]);
    let (commands, of_zone) = databases("ovn-kubernetes-zone-databases");
    assert_eq!(commands, ["local-nb-ovsdb", "local-sb-ovsdb", "run-ovn-northd"]);
    // Their files have names of their own there: `zone/ovnnb_db.db`.
    let shared: Vec<_> = of_all.iter().filter(|path| of_zone.contains(path)).collect();
    assert_eq!(shared, ["/var/lib/openvswitch"]);
}

#[test]
fn helm_test_asks_the_network_and_the_databases_that_are_in_pods() {
    let names = |values: Value| -> Vec<String> {
        let Output { status, stdout, .. } = charts("tests", Some(&values));
        assert!(status.success());
        let pods = documents(&String::from_utf8(stdout).unwrap());
        let name = |pod: &Value| strictly::<Pod>(pod).metadata.name.unwrap();
        pods.iter().map(name).collect()
    };
    assert_eq!(names(json!({})), ["ovn-kubernetes-test-network"]);
    let in_pods = json!({"databases": {"mode": "standalone", "nodes": ["10.0.0.1"]}});
    assert_eq!(names(in_pods), ["ovn-kubernetes-test-databases", "ovn-kubernetes-test-network"]);
}

#[test]
fn with_certificates_the_token_of_the_pod_only_requests_them_and_the_control_plane_approves_them() {
    let values = json!({"k8sAPIServer": "https://192.0.2.1:6443", "node": {"certificates": true}});
    let objects = template(Some(&values));
    let arguments = |kind, name| container(&objects, kind, name)["args"].clone();
    let of_node = arguments("DaemonSet", "ovn-kubernetes-node").to_string();
    assert!(
        of_node.contains("--bootstrap-kubeconfig=/etc/ovn-kubernetes/bootstrap.conf"),
        "{of_node}"
    );
    assert!(of_node.contains("--cert-dir=/var/run/ovn-kubernetes/certs"), "{of_node}");
    let of_control_plane = arguments("Deployment", "ovn-kubernetes-control-plane").to_string();
    let users = "--node-bootstrap-users=system:serviceaccount:ovn-kubernetes:ovn-kubernetes-node";
    assert!(of_control_plane.contains("--approve-node-certificates"), "{of_control_plane}");
    assert!(of_control_plane.contains(users), "{of_control_plane}");

    let is_config = |object: &&Value| {
        object["kind"] == "ConfigMap" && object["metadata"]["name"] == "ovn-kubernetes-node"
    };
    let text = objects.iter().find(is_config).unwrap()["data"]["bootstrap.conf"].as_str().unwrap();
    let kubeconfig: Value = serde_json::from_str(text).unwrap();
    assert_eq!(kubeconfig["clusters"][0]["cluster"]["server"], "https://192.0.2.1:6443");
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    assert_eq!(kubeconfig["users"][0]["user"], json!({"tokenFile": format!("{account}/token")}));
}

/// Kubernetes before 1.30 does not have these kinds, and Helm would install nothing.
#[test]
fn the_policy_about_a_nodes_own_annotations_can_be_left_out() {
    let kinds: Vec<Value> = template(Some(&json!({"node": {"ownNodeOnly": false}})))
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
        let paths: BTreeSet<&str> = mounts.iter().map(|mount| mount.mount_path.as_str()).collect();
        assert_eq!(
            paths.len(),
            mounts.len(),
            "Kubernetes refuses two mounts of one path: {mounts:?}"
        );
        let pod = manifests.daemon_set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        for directory in [open_vswitch, ovn] {
            let mount = mounts
                .iter()
                .find(|mount| mount.mount_path == directory)
                .unwrap_or_else(|| panic!("{directory} in {mounts:?}"));
            let volume =
                pod.volumes.iter().flatten().find(|volume| volume.name == mount.name).unwrap();
            assert_eq!(volume.host_path.as_ref().unwrap().path, directory);
        }
        let line =
            manifests.container().args.as_ref().unwrap().join(" ").replace("$(K8S_NODE)", "n1");
        let line =
            line.replace("--config-file=/etc/ovn-kubernetes/ovn_k8s.conf", "--pod-manifests=/pods");
        let options: ovnkube::options::Options = line.parse().unwrap();
        let ovnkube::options::Program::Node(node) = options.program().unwrap() else {
            panic!("{line}")
        };
        let places = node.config(&std::collections::BTreeMap::new()).unwrap().cni_conf.places();
        assert_eq!(
            (places.ovsdb_endpoint.as_deref(), places.ovn_run_dir.as_deref()),
            (endpoint, ovn_run_dir)
        );
    }
}

/// In one message, which names the value.
#[test]
fn values_that_make_no_sense_are_refused_by_name() {
    for (values, message) in [
        (
            json!({"node": {"metrics": {"port": 70000}}}),
            "at '/node/metrics/port': maximum: got 70,000, want 65,535",
        ),
        (json!({"nodes": {}}), "additional properties 'nodes' not allowed"),
        (
            json!({"node": {"metricsPort": 1}}),
            "at '/node': additional properties 'metricsPort' not allowed",
        ),
        (json!({"node": {"healthAddress": "everywhere"}}), "at '/node/healthAddress'"),
        (
            json!({"image": {"pullPolicy": "Sometimes"}}),
            "at '/image/pullPolicy': value must be one of",
        ),
        (json!({"node": {"extraArgs": ["loglevel"]}}), "at '/node/extraArgs/0'"),
        (json!({"hostPaths": {"cniBin": "opt"}}), "at '/hostPaths/cniBin'"),
        (json!({"node": {"cniChain": [{"type": "/bin/sh"}]}}), "at '/node/cniChain/0/type'"),
        (json!({"node": {"maxUnavailable": "0%"}}), "at '/node/maxUnavailable'"),
        (json!({"podNetwork": "10.128.0.0"}), "at '/podNetwork'"),
        (json!({"mtu": "1400"}), "at '/mtu': got string, want integer"),
        (
            json!({"global": {"gatewayMode": "hybrid"}}),
            "at '/global/gatewayMode': value must be one of",
        ),
        // Upstream has it, this version has not: no network without what was asked for.
        (
            json!({"global": {"enableIpsec": true}}),
            "at '/global/enableIpsec': value must be one of false, ''",
        ),
        (json!({"node": {"certificates": true}}), "node.certificates needs k8sAPIServer"),
        (json!({"databases": {"mode": "raft3"}}), "at '/databases/mode': value must be one of"),
        (json!({"databases": {"nodes": ["node1"]}}), "at '/databases/nodes/0'"),
        (
            json!({"databases": {"nodes": ["10.0.0.1"]}}),
            "databases.nodes is for the modes standalone and raft",
        ),
        (
            json!({"databases": {"mode": "standalone"}}),
            "databases.nodes has 0 addresses: databases.mode=standalone takes the address of one node",
        ),
        (
            json!({"databases": {"mode": "raft", "nodes": ["10.0.0.1", "10.0.0.2"]}}),
            "databases.nodes has 2 addresses: databases.mode=raft takes those of three nodes",
        ),
        (
            json!({"databases": {"mode": "raft", "nodes": ["10.0.0.1", "10.0.0.2", "10.0.0.1"]}}),
            "at '/databases/nodes'",
        ),
        (
            json!({"databases": {"mode": "standalone", "nodes": ["10.0.0.1"], "south": "tcp:10.0.0.1:6642"}}),
            "databases.north and databases.south are for the mode external",
        ),
        (
            json!({"layout": "zone"}),
            "at '/layout': value must be one of 'central', 'both', 'zones'",
        ),
        (json!({"layout": "both"}), "layout=both needs databases.south"),
        (
            json!({"layout": "zones", "databases": {"mode": "standalone", "nodes": ["10.0.0.1"]}}),
            "databases has values for layout=central: with layout=zones each node has its own",
        ),
        (
            json!({"layout": "zones", "hostPaths": {"ovn": "/var/run/openvswitch"}}),
            "hostPaths.ovn is /var/run/openvswitch: with layout=zones it has to be /var/run/ovn",
        ),
    ] {
        let Output { status, stderr, .. } = charts("template", Some(&values));
        let words = String::from_utf8_lossy(&stderr).into_owned();
        assert!(!status.success() && words.contains(message), "{values}: {words}");
        let complaints = words
            .lines()
            .filter(|line| {
                ["at '", "databases", "node.", "hostPaths."].iter().any(|part| line.contains(part))
            })
            .count();
        assert_eq!(complaints, 1, "{values}: {words}");
    }
}

/// An object of the cluster's with this owner: the annotations that Helm writes.
fn owned(api_version: &str, kind: &str, name: &str, owner: Option<(&str, &str)>) -> Value {
    let annotations = owner.map(|(namespace, release)| {
        json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace})
    });
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "annotations": annotations}})
}

/// Two would write the same rows of the databases, and the same bridges of the nodes.
#[test]
fn a_second_installation_in_a_cluster_is_refused() {
    let installed =
        |owner| owned("rbac.authorization.k8s.io/v1", "ClusterRole", "ovn-kubernetes-node", owner);
    for (owner, by) in [
        (Some(("ovn-kubernetes", "first")), "as release first of namespace ovn-kubernetes"),
        (Some(("other", "ovn-kubernetes")), "as release ovn-kubernetes of namespace other"),
        (None, "by hand (kubectl apply)"),
    ] {
        let Output { status, stderr, .. } =
            charts_in(&json!([installed(owner)]), "template", Some(&json!({})));
        let words = String::from_utf8_lossy(&stderr).into_owned();
        assert!(
            !status.success()
                && words.contains("OVN-Kubernetes is installed in this cluster already"),
            "{words}"
        );
        assert!(words.contains(by), "{words}");
    }
    // By the DaemonSets that run everything in pods.
    let mut daemon_set = owned("apps/v1", "DaemonSet", "ovnkube", None);
    daemon_set["metadata"]["namespace"] = json!("ovn-kubernetes");
    let Output { status, stderr, .. } =
        charts_in(&json!([daemon_set]), "template", Some(&json!({})));
    let words = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success() && words.contains("(it has the DaemonSet ovnkube)"), "{words}");
    // An upgrade.
    let own = json!([installed(Some(("ovn-kubernetes", "ovn-kubernetes")))]);
    assert!(charts_in(&own, "template", Some(&json!({}))).status.success());
}

/// Helm would refuse to install anything.
#[test]
fn a_definition_that_upstream_has_left_stays_as_it_is() {
    let has_definition = |owner: Option<(&str, &str)>| {
        let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let names = ["egressfirewalls.k8s.ovn.org", "egressqoses.k8s.ovn.org"];
        let objects = json!(names.map(|name| owned(version, kind, name, owner)));
        let Output { status, stdout, .. } = charts_in(&objects, "template", Some(&json!({})));
        assert!(status.success());
        documents(&String::from_utf8(stdout).unwrap()).iter().any(|object| object["kind"] == kind)
    };
    assert!(!has_definition(None));
    assert!(has_definition(Some(("ovn-kubernetes", "ovn-kubernetes"))), "an upgrade keeps it");
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart: Value =
        serde_yaml_ng::from_str(&read(&conf("helm/ovn-kubernetes/Chart.yaml"))).unwrap();
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!(env!("CARGO_PKG_VERSION")))
    );
}
