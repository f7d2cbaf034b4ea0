//! Manifests of test pods, as small as they can be.

use serde_json::{Value, json};

use super::programs::AGNHOST;

/// A pod of one container, which `container` completes. Its label `name` is its name.
pub fn pod(name: &str, container: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"name": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "dnsPolicy": "Default",
            "containers": [{"name": "main", "image": AGNHOST, "imagePullPolicy": "Never"}],
        },
    });
    for (field, value) in container.as_object().into_iter().flatten() {
        pod["spec"]["containers"][0][field] = value.clone();
    }
    pod
}

/// A pod with only a shell that waits, so that many of them are cheap.
pub fn idle_pod(name: &str) -> Value {
    pod(name, &json!({"command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]}))
}

/// The pod on this node, whatever a scheduler says.
#[must_use]
pub fn on_node(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// The pod, to be scheduled to the node of this name.
#[must_use]
pub fn for_node(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    pod
}
