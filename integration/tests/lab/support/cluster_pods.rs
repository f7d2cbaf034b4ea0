//! The lab's nodes and pods as objects of the API server, and pods that a runtime attaches as the
//! CNI configuration of their node says.

use anyhow::{Context as _, Result};
use integration::{Lab, Node, Pod, fabric};
use serde_json::{Value, json};

use crate::support::api::Api;

/// The Node of this name, with the node's address on the wire.
pub(crate) fn put_node(api: &Api, node: &Node, name: &str) {
    let addresses = json!([{"type": "InternalIP", "address": fabric::address(node.index)}]);
    api.put(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
        "status": {"addresses": addresses},
    }));
}

/// The object of a pod on this Node.
pub(crate) fn object(pod: &Pod, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    })
}

/// Creates a pod in the API, and has the runtime attach it. It has the addresses of the result.
pub(crate) fn attach(lab: &Lab, api: &Api, node: &Node) -> Result<Pod> {
    let mut pod = lab.plan_pod(node);
    node.add_namespaces(std::slice::from_ref(&pod))?;
    api.put(object(&pod, &node.name));
    let result = node.configured_runtime()?.add(&pod)?.success()?;
    let addresses = result["ips"].as_array().context("the result has addresses")?;
    let addresses = addresses.iter().map(|ip| {
        let text = ip["address"].as_str().context("an address is text")?;
        text.parse().with_context(|| text.to_owned())
    });
    pod.addresses = addresses.collect::<Result<_>>()?;
    Ok(pod)
}
