//! The objects of a run.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Names, offered::ClusterPolicy, plan::Client};
use crate::probe::{PLAN, Plan, Probe};

/// The port that policies allow, and one that they do not.
pub(super) const PORT: u16 = 8080;
pub(super) const OTHER_PORT: u16 = 8081;
/// The port of Services.
pub(super) const SERVICE_PORT: u16 = 80;
/// The Service with a load balancer.
pub(super) const BALANCED: &str = "balanced";
/// Before other policies of the cluster, which are about other pods.
const PRIORITY: u32 = 17;
/// A pod of a run that was killed ends by itself.
const LONGEST_LIFE: u64 = 24 * 60 * 60;

pub(super) fn pods_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

pub(super) fn services_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services")
}

pub(super) fn policies_of(namespace: &str) -> String {
    format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")
}

/// Pods in the node's network need the level `privileged`.
pub(super) fn namespace(name: &str) -> Value {
    let labels = json!({
        "app.kubernetes.io/managed-by": "ovnkube-connectivity-test",
        "pod-security.kubernetes.io/enforce": "privileged",
    });
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// What stands in the manifest of a pod.
struct Pod<'a> {
    namespace: &'a str,
    name: &'a str,
    app: &'a str,
    node: &'a str,
    plan: &'a Plan,
    host_network: bool,
    image: &'a str,
}

pub(super) fn server(names: &Names, name: &str, app: &str, node: &str, image: &str) -> Value {
    let plan = Plan { serve: vec![PORT, OTHER_PORT], ..Plan::default() };
    pod(&Pod {
        namespace: &names.namespace,
        name,
        app,
        node,
        plan: &plan,
        host_network: false,
        image,
    })
}

pub(super) fn client(client: &Client, image: &str) -> Value {
    let Client { namespace, name, app, node, host_network, .. } = client;
    pod(&Pod {
        namespace,
        name,
        app,
        node,
        plan: &client.plan(),
        host_network: *host_network,
        image,
    })
}

/// The client with these flows.
pub(super) fn holder(client: &Client, flows: Vec<Probe>, image: &str) -> Value {
    let Client { namespace, name, app, node, host_network, .. } = client;
    let plan = Plan { flows, ..Plan::default() };
    pod(&Pod { namespace, name, app, node, plan: &plan, host_network: *host_network, image })
}

fn pod(of: &Pod<'_>) -> Value {
    let plan = serde_json::to_string(of.plan).unwrap_or_default();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": of.name, "namespace": of.namespace, "labels": {"app": of.app, "pod": of.name}},
        "spec": {
            "nodeName": of.node,
            "hostNetwork": of.host_network,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LONGEST_LIFE,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "probe",
                "image": of.image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/bin/ovnkube", "probe"],
                "env": [{"name": PLAN, "value": plan}],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    });
    if !of.host_network {
        // Echo requests without a capability; one of the sysctls that Kubernetes takes for safe.
        let sysctl = json!([{"name": "net.ipv4.ping_group_range", "value": "0 2147483647"}]);
        pod["spec"]["securityContext"] = json!({"sysctls": sysctl});
    }
    pod
}

/// A Service of the pods with this value of a label.
pub(super) fn service(names: &Names, name: &str, kind: &str, selector: (&str, &str)) -> Value {
    let (key, value) = selector;
    let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": SERVICE_PORT, "targetPort": PORT});
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": names.namespace},
        "spec": {
            "type": kind,
            "ipFamilyPolicy": "PreferDualStack",
            "selector": {key: value},
            "ports": [port("TCP"), port("UDP")],
        },
    })
}

/// The Service with addresses of this run's choice.
pub(super) fn external_service(names: &Names, addresses: &[IpAddr]) -> Value {
    let mut service = service(names, "external", "ClusterIP", ("app", "server"));
    service["spec"]["externalIPs"] = json!(addresses);
    service
}

/// The Service with a load balancer. Some take one protocol alone.
pub(super) fn balanced_service(names: &Names) -> Value {
    let mut service = service(names, BALANCED, "LoadBalancer", ("app", "server"));
    if let Some(ports) = service["spec"]["ports"].as_array_mut() {
        ports.retain(|port| port["protocol"] == "TCP");
    }
    service
}

/// The policy of the whole cluster: of pods with the kind's label, a friend may connect to one
/// port, and no other pod of this run to any.
pub(super) fn cluster_policy(names: &Names, kind: ClusterPolicy, version: &str) -> Value {
    let in_namespace = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let of_namespace = |name: &str, pods: Value| {
        let namespaces = in_namespace(name);
        json!({"pods": {"namespaceSelector": namespaces, "podSelector": pods}})
    };
    let app = |name: &str| json!({"matchLabels": {"app": name}});
    let mut allowed = json!({
        "name": "friend",
        "action": "Accept",
        "from": [of_namespace(&names.namespace, app("friend"))],
    });
    match kind {
        ClusterPolicy::ClusterNetworkPolicy => {
            allowed["protocols"] = json!([{"tcp": {"destinationPort": {"number": PORT}}}]);
        }
        ClusterPolicy::AdminNetworkPolicy => {
            allowed["action"] = json!("Allow");
            allowed["ports"] = json!([{"portNumber": {"protocol": "TCP", "port": PORT}}]);
        }
    }
    let denied = |name: &str, namespace: &str| {
        let all = of_namespace(namespace, json!({}));
        json!({"name": name, "action": "Deny", "from": [all]})
    };
    let rules = [allowed, denied("own", &names.namespace), denied("other", &names.other)];
    let subject = of_namespace(&names.namespace, app(kind.app()));
    let mut spec = json!({"priority": PRIORITY, "subject": subject, "ingress": rules});
    if kind == ClusterPolicy::ClusterNetworkPolicy {
        spec["tier"] = json!("Admin");
    }
    json!({
        "apiVersion": version,
        "kind": kind.name(),
        "metadata": {
            "name": names.namespace,
            "labels": {"app.kubernetes.io/managed-by": "ovnkube-connectivity-test"},
        },
        "spec": spec,
    })
}

/// A NetworkPolicy that allows everything: of pods that a policy of the cluster guards, which comes
/// before it.
pub(super) fn open_policy(names: &Names, kind: ClusterPolicy) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": kind.app(), "namespace": names.namespace},
        "spec": {
            "podSelector": {"matchLabels": {"app": kind.app()}},
            "policyTypes": ["Ingress"],
            "ingress": [{}],
        },
    })
}

/// The policies: of guarded pods, who may connect; of closed ones, where they may connect to.
pub(super) fn policies(names: &Names) -> [Value; 2] {
    let policy = |name: &str, spec: Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": names.namespace},
            "spec": spec,
        })
    };
    let app = |name: &str| json!({"matchLabels": {"app": name}});
    let port = json!([{"protocol": "TCP", "port": PORT}]);
    let other = json!({"matchLabels": {"kubernetes.io/metadata.name": names.other}});
    let guarded = json!({
        "podSelector": app("guarded"),
        "policyTypes": ["Ingress"],
        "ingress": [{
            "from": [{"podSelector": app("friend")}, {"namespaceSelector": other, "podSelector": app("friend")}],
            "ports": port,
        }],
    });
    let closed = json!({
        "podSelector": app("closed"),
        "policyTypes": ["Egress"],
        "egress": [{"to": [{"podSelector": app("server")}], "ports": port}],
    });
    [policy("guarded", guarded), policy("closed", closed)]
}
