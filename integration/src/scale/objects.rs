//! The nodes and pods of a run, as API objects: pure.

use std::{collections::BTreeMap, net::Ipv4Addr};

use contract::{
    mac::Mac,
    node_annotation::{
        DEFAULT_NETWORK, GATEWAY_CONFIG, Gateway, GatewayEntry, GatewayMode, PerNetwork,
    },
};
use ipnet::{IpNet, Ipv4Net};
use serde_json::{Value, json};

/// Pods per namespace, in a run without policies.
pub(crate) const TOGETHER: usize = 100;
/// Label of a pod: its number within its namespace.
pub(crate) const PLACE: &str = "place";
/// Name prefix of the pods that are created to measure latency.
pub(crate) const PROBE: &str = "probe";

/// Namespace and name of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Name {
    /// The pod with this number, in this namespace.
    pub(crate) fn of(namespace: String, number: usize) -> Self {
        Self { namespace, name: format!("web-{number:06}-6d4cf56db6-x2vlp") }
    }

    /// A pod to measure with.
    pub(crate) fn of_probe(namespace: String, phase: &str, number: usize) -> Self {
        Self { namespace, name: format!("{PROBE}-{phase}-{number:06}") }
    }

    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub(crate) fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// Name of its logical switch port, which is also the `iface-id` that the plugin sets.
    pub(crate) fn port(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }
}

/// The name of a namespace.
pub(crate) fn namespace_name(number: usize) -> String {
    format!("team-{number:04}")
}

/// A namespace.
pub(crate) fn namespace(name: &str, labels: &BTreeMap<&str, String>) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number:04}")
}

/// The address of a node, and its network.
fn address(number: usize) -> Ipv4Net {
    let [high, middle, low] = [16 + number / 62_500, number / 250 % 250, 2 + number % 250]
        .map(|number| u8::try_from(number).expect("a run has fewer than 15 million nodes"));
    Ipv4Net::new_assert(Ipv4Addr::new(172, high, middle, low), 12)
}

/// The annotation of a node's gateway in shared mode, as its server writes it: key and value.
pub(crate) fn gateway(number: usize) -> (&'static str, String) {
    let net = address(number);
    let entry = GatewayEntry {
        mode: GatewayMode::Shared,
        bridge: BRIDGE.to_owned(),
        gateway: Gateway {
            interface: bridge_port(&node_name(number)),
            mac: Mac::from_ip(net.addr().into()),
            addresses: vec![IpNet::V4(net)],
            next_hops: vec![Ipv4Addr::new(172, 16, 0, 1).into()],
            vlan: None,
        },
        node_ports: true,
    };
    let mut annotation = PerNetwork::default();
    annotation.set_gateway(DEFAULT_NETWORK, &entry);
    (GATEWAY_CONFIG, annotation.to_string())
}

/// The bridge of every node's NIC.
const BRIDGE: &str = "breth0";

/// The port that stands for the bridge of the node in OVN.
pub(crate) fn bridge_port(node: &str) -> String {
    format!("{BRIDGE}_{node}")
}

/// A node with the annotations that node servers write; the subnet annotation is left to the
/// control plane.
pub(crate) fn node(number: usize) -> Value {
    let name = node_name(number);
    let net = address(number);
    let address = net.addr().to_string();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
            "annotations": {
                "k8s.ovn.org/node-chassis-id": format!("6bf64a4a-7be4-4a4c-b6a5-{number:012}"),
                "k8s.ovn.org/zone-name": "global",
                "k8s.ovn.org/node-primary-ifaddr": json!({"ipv4": net.to_string()}).to_string(),
                "k8s.ovn.org/host-cidrs": json!([net.to_string()]).to_string(),
            },
        },
        "spec": {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "capacity": {"cpu": "16", "memory": "64Gi", "pods": "250"},
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "250"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}],
        },
    })
}

/// A pod as a Deployment's ReplicaSet and the scheduler leave it: bound to its node, not started
/// yet. `place`: its number within its namespace, for the selectors of policies.
pub(crate) fn pod(name: &Name, node: &str, place: usize) -> Value {
    let app = name.name.split('-').take(2).collect::<Vec<_>>().join("-");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name.name, "namespace": name.namespace,
            "labels": {
                "app": app, "pod-template-hash": "6d4cf56db6", "app.kubernetes.io/part-of": "scale",
                PLACE: place.to_string(),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-6d4cf56db6"), "controller": true,
                "uid": "0b8f7d0c-6f57-4a57-9d86-0d2b2c5f5a11", "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": node,
            "containers": [{
                "name": "web", "image": "registry.example/web:1.27.3", "ports": [{"name": "http", "containerPort": 8080}],
                "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "LISTEN", "value": ":8080"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}},
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
            }],
        },
    })
}

/// A Service without a selector: its slice is written by hand.
pub(crate) fn service(namespace: &str, number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": service_name(number), "namespace": namespace, "labels": {"app": "web"}},
        "spec": {"ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]},
    })
}

/// Its slice.
pub(crate) fn slice(namespace: &str, number: usize, endpoints: Vec<Value>) -> Value {
    let name = service_name(number);
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{name}-x7k2p"), "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": endpoints,
    })
}

/// Endpoints on consecutive nodes, the first one at this address.
pub(crate) fn endpoints(number: usize, nodes: usize, backends: usize, first: &str) -> Vec<Value> {
    (0..backends)
        .map(|place| {
            let node = (number + place) % nodes;
            let address = format!(
                "10.{}.{}.{}",
                128 + node / 256,
                node % 256,
                3 + (number / nodes + place) % 250
            );
            let address = if place == 0 { first.to_owned() } else { address };
            json!({
                "addresses": [address], "nodeName": node_name(node),
                "conditions": {"ready": true, "serving": true, "terminating": false},
            })
        })
        .collect()
}

fn service_name(number: usize) -> String {
    format!("web-{number:06}")
}

/// Collections of Services and of slices in the namespace.
pub(crate) fn service_collections(namespace: &str) -> [String; 2] {
    [
        format!("/api/v1/namespaces/{namespace}/services"),
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nodes_have_addresses_of_their_own() {
        let addresses: BTreeSet<String> = (0..70_000)
            .step_by(7)
            .map(|number| node(number)["status"]["addresses"][0].to_string())
            .collect();
        assert_eq!(addresses.len(), 10_000);
        assert!(addresses.iter().all(|address| !address.contains("256")), "no number is over 255");
    }
}
