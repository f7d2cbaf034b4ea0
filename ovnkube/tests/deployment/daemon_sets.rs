//! The DaemonSets and the ConfigMap of `conf/kubernetes/openshift`.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::PodSpec};
use serde_json::{Value, json};

use crate::manifests::{conf, documents, read, strictly};

/// The keys of the ConfigMap and the variables that they become.
const KEYS: [(&str, &str); 5] = [
    ("OVN_NORTH", "OvnNorth"),
    ("OVN_SOUTH", "OvnSouth"),
    ("K8S_APISERVER", "k8s_apiserver"),
    ("OVN_NET_CIDR", "net_cidr"),
    ("OVN_SVC_CIDR", "svc_cidr"),
];

fn objects(name: &str) -> Vec<Value> {
    documents(&read(&conf(&format!("kubernetes/openshift/{name}.yaml"))))
}

fn daemon_set(name: &str) -> DaemonSet {
    let objects = objects(name);
    let [object] = &objects[..] else { panic!("{objects:#?}") };
    let daemon_set: DaemonSet = strictly(object);
    assert_eq!(daemon_set.metadata.name.as_deref(), Some(name));
    assert_eq!(daemon_set.metadata.namespace.as_deref(), Some("ovn-kubernetes"));
    daemon_set
}

fn pod(daemon_set: DaemonSet) -> PodSpec {
    daemon_set.spec.unwrap().template.spec.unwrap()
}

/// Each mount: where, what of the host, and whether it may be written.
fn mounts(pod: &PodSpec) -> BTreeMap<String, (String, bool)> {
    let volumes = pod.volumes.as_deref().unwrap();
    let path = |name: &str| {
        let volume = volumes.iter().find(|volume| volume.name == name).unwrap();
        volume.host_path.as_ref().unwrap().path.clone()
    };
    let mounts = pod.containers[0].volume_mounts.as_deref().unwrap();
    mounts
        .iter()
        .map(|mount| (mount.mount_path.clone(), (path(&mount.name), mount.read_only != Some(true))))
        .collect()
}

#[test]
fn the_config_map_has_the_five_keys_which_both_daemon_sets_pass_on() {
    let objects = objects("ovn-config");
    let config = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    assert_eq!(config["metadata"]["name"], "ovn-config");
    let keys: Vec<_> = config["data"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = KEYS.map(|(_, key)| key);
    expected.sort_unstable();
    assert_eq!(keys, expected);
    for name in ["ovnkube-master", "ovnkube"] {
        let environment = pod(daemon_set(name)).containers[0].env.clone().unwrap();
        for (variable, key) in KEYS {
            let found = environment.iter().find(|found| found.name == variable).unwrap();
            let reference = found.value_from.as_ref().unwrap().config_map_key_ref.as_ref().unwrap();
            assert_eq!((reference.name.as_str(), reference.key.as_str()), ("ovn-config", key));
        }
        let master = environment.iter().find(|found| found.name == "OVN_MASTER");
        let master = master.and_then(|found| found.value.as_deref());
        assert_eq!(master, (name == "ovnkube-master").then_some("true"), "{name}");
    }
}

#[test]
fn the_daemon_sets_run_one_image_with_what_its_programs_need_of_the_host() {
    for (name, container, label) in [
        ("ovnkube-master", "ovnkube-master", ("node-role.kubernetes.io/master", "true")),
        ("ovnkube", "ovn-node", ("node-role.kubernetes.io/compute", "true")),
        ("sdn-ovs", "sdn-ovs", ("kubernetes.io/os", "linux")),
    ] {
        let pod = pod(daemon_set(name));
        assert_eq!(pod.service_account_name.as_deref(), Some("ovn"));
        assert_eq!((pod.host_network, pod.host_pid), (Some(true), Some(true)), "{name}");
        let selector = pod.node_selector.clone().unwrap();
        assert_eq!(selector, BTreeMap::from([(label.0.to_owned(), label.1.to_owned())]));
        let [only] = &pod.containers[..] else { panic!("{:#?}", pod.containers) };
        assert_eq!(only.name, container);
        assert_eq!(only.image.as_deref(), Some("netdev22:5000/ovn-kube:latest"));
        assert_eq!(only.security_context.as_ref().unwrap().privileged, Some(true));
        assert_eq!(only.command, None, "the image says what is started");
        let mounts = mounts(&pod);
        let mut expected = vec![
            ("/var/run/openvswitch", "/var/run/openvswitch", true),
            ("/var/lib/openvswitch", "/var/lib/openvswitch", true),
        ];
        if name != "sdn-ovs" {
            expected.extend([
                ("/host/opt/cni/bin", "/opt/cni/bin", true),
                ("/etc/cni/net.d", "/etc/cni/net.d", true),
                (
                    "/var/lib/cni/networks/ovn-k8s-cni-overlay",
                    "/var/lib/cni/networks/ovn-k8s-cni-overlay",
                    true,
                ),
                ("/var/run/ovn-kubernetes", "/var/run/ovn-kubernetes", true),
                ("/etc/origin/node", "/etc/origin/node", false),
                ("/etc/sysconfig/origin-node", "/etc/sysconfig/origin-node", false),
            ]);
        }
        for (at, host, writable) in expected {
            assert_eq!(mounts.get(at), Some(&(host.to_owned(), writable)), "{name}: {at}");
        }
    }
}

#[test]
fn the_account_may_do_what_the_control_plane_and_a_nodes_server_may() {
    let rules = |text: &str, kind: &str| -> Vec<(Value, Value, Vec<String>)> {
        let of_role = documents(text).into_iter().filter(|object| object["kind"] == kind);
        let mut rights = Vec::new();
        for rule in of_role.flat_map(|role| role["rules"].as_array().unwrap().clone()) {
            for resource in rule["resources"].as_array().unwrap() {
                let verbs = rule["verbs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|verb| verb.as_str().unwrap().to_owned());
                rights.push((rule["apiGroups"].clone(), resource.clone(), verbs.collect()));
            }
        }
        rights
    };
    let ours = read(&conf("kubernetes/openshift/ovn-config.yaml"));
    for kind in ["ClusterRole", "Role"] {
        let ours = rules(&ours, kind);
        for file in ["ovn-kubernetes-node", "ovn-kubernetes-control-plane"] {
            for (group, resource, verbs) in
                rules(&read(&conf(&format!("kubernetes/{file}.yaml"))), kind)
            {
                // The account is that of every node: with the right to approve, each could be
                // anybody.
                if group == json!(["certificates.k8s.io"]) {
                    assert!(ours.iter().all(|(of, ..)| *of != group), "{resource}");
                    continue;
                }
                for verb in verbs {
                    let granted = ours.iter().any(|(of, what, may)| {
                        *of == group && *what == resource && may.contains(&verb)
                    });
                    assert!(granted, "{file} has {verb} of {resource} in {group}");
                }
            }
        }
    }
}
