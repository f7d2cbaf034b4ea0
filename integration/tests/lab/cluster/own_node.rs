//! What the deployment lets a node's server write: annotations of its own node, judged by a real
//! API server.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::{Method, Request};
use integration::{
    Cluster,
    cluster::access::{self, NODE},
    eventually,
};
use serde_json::{Value, json};

/// A container breakout on one node could write addresses, chassis and gateway of every other node.
#[test]
fn a_nodes_server_may_annotate_its_own_node_and_no_other() {
    Cluster::of_nodes(2).test(|cluster| {
        // The policy alone: the servers of the lab do not run in pods.
        access::create_own_node_only(&cluster.api)?;
        let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
        let annotation = |value: &str| annotated("k8s.ovn.org/vteps", value);
        // The API server learns of a policy within a moment.
        eventually("another node's annotation is refused", Duration::from_secs(30), || {
            let answer = patch(cluster, "node2", Some("node1"), &annotation("other"));
            ensure!(says(&answer, "own node only"), "{answer:?}");
            Ok(())
        })?;
        patch(cluster, "node1", Some("node1"), &annotation("own"))?;
        for (node, of, change) in [
            ("node1", None, annotation("token of no pod")),
            (
                "node1",
                Some("node1"),
                json!({"metadata": {"labels": {"example.org/tried": "label"}}}),
            ),
            ("node1", Some("node1"), json!({"status": {"phase": "Terminated"}})),
            // Annotations of others, and of the cluster manager.
            ("node1", Some("node1"), annotated("example.org/tried", "x")),
            ("node1", Some("node1"), annotated("k8s.ovn.org/node-subnets", "x")),
            // The zone of another node.
            ("node1", Some("node1"), annotated("k8s.ovn.org/zone-name", "node2")),
            ("node1", Some("node1"), annotated("k8s.ovn.org/zone-next", "node2")),
        ] {
            let answer = patch(cluster, node, of, &change);
            ensure!(says(&answer, "ValidatingAdmissionPolicy"), "{change}: {answer:?}");
        }
        for zone in ["node1", "global"] {
            let own = annotated("k8s.ovn.org/zone-name", zone);
            patch(cluster, "node1", Some("node1"), &own)?;
        }
        // The kubelets go on writing theirs.
        cluster.wait_until_ready()
    });
}

fn says(answer: &Result<Value>, words: &str) -> bool {
    answer.as_ref().is_err_and(|error| format!("{error:#}").contains(words))
}

/// Patches the status of a node as the server of the node `of`, which the token of its pod names.
fn patch(cluster: &Cluster, node: &str, of: Option<&str>, change: &Value) -> Result<Value> {
    let user = format!("system:serviceaccount:ovn-kubernetes:{NODE}");
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("/api/v1/nodes/{node}/status"))
        .header("content-type", "application/merge-patch+json")
        .header("impersonate-user", user);
    let request = match of {
        Some(of) => {
            request.header("impersonate-extra-authentication.kubernetes.io%2fnode-name", of)
        }
        None => request,
    };
    let request = request.body(serde_json::to_vec(change)?)?;
    Ok(cluster.api.runtime.block_on(cluster.api.client.request(request))?)
}
