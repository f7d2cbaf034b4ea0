//! Objects of nodes and pods that the lab has planned.

use anyhow::Result;
use integration::{Lab, Pod, by_hand};
use serde_json::json;

use crate::support::api::Api;

/// A pod of that namespace on the node, and its object.
pub(crate) fn new_pod(lab: &Lab, api: &Api, node: usize, namespace: &str) -> Result<Pod> {
    let node = &lab.nodes[node];
    let mut pod = lab.plan_pod(node);
    pod.namespace = namespace.to_owned();
    node.add_namespaces(std::slice::from_ref(&pod))?;
    let annotations = json!({"k8s.ovn.org/pod-networks": pod.annotation().to_string()});
    api.put(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": pod.name, "uid": pod.uid, "annotations": annotations},
        "spec": {"nodeName": node.name, "containers": [{"name": "main", "image": "none"}]},
    }));
    by_hand::attach(node, &pod)?;
    Ok(pod)
}

/// The objects of the lab's nodes, as their servers would have annotated them.
pub(crate) fn tell_nodes(lab: &Lab, api: &Api) {
    for node in &lab.nodes {
        let subnets: Vec<String> = node.subnets.iter().map(ToString::to_string).collect();
        let annotations = json!({
            "k8s.ovn.org/node-subnets": json!({"default": subnets}).to_string(),
            "k8s.ovn.org/node-chassis-id": node.name,
            "k8s.ovn.org/zone-name": "global",
        });
        let metadata = json!({"name": node.name, "uid": node.name, "annotations": annotations});
        api.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}));
    }
}
