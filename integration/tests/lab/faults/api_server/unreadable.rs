//! The API server's objects are unreadable, or it refuses what the control plane writes. The
//! control plane runs on a whole Kubernetes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{
    Cluster, Pod,
    cluster::manifest::{for_node, idle_pod},
    eventually,
};
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/node1";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const SUBNETS: &str = "k8s.ovn.org/node-subnets";
const NETWORK: &str = "k8s.ovn.org/pod-networks";
/// Time for a pod to become ready on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn start(cluster: &Cluster, name: &str, node: &str) -> Result<Pod> {
    cluster.api.create(PODS, &for_node(idle_pod(name), node))?;
    ready(cluster, name)
}

fn ready(cluster: &Cluster, name: &str) -> Result<Pod> {
    let key = format!("default/{name}");
    cluster.wait_for_pod(&key, SOON)?;
    cluster.attached(&key)
}

fn annotations(object: &Value) -> Value {
    object["metadata"]["annotations"].clone()
}

fn annotate(cluster: &Cluster, path: &str, annotations: &Value) -> Result<()> {
    cluster.api.patch(path, &json!({"metadata": {"annotations": annotations}})).map(drop)
}

/// Succeeds if the object has an event with this reason whose note contains `note`.
fn told(cluster: &Cluster, name: &str, reason: &str, note: &str) -> Result<()> {
    let events = cluster.api.read("/apis/events.k8s.io/v1/namespaces/default/events")?;
    let events = events["items"].as_array().context("events")?;
    let is_it = |event: &&Value| event["reason"] == reason && event["regarding"]["name"] == name;
    let notes: Vec<&Value> = events
        .iter()
        .filter(is_it)
        .filter(|event| event["regarding"]["uid"].is_string())
        .map(|event| &event["note"])
        .collect();
    ensure!(
        notes.iter().any(|told| told.as_str().is_some_and(|told| told.contains(note))),
        "{notes:?}"
    );
    Ok(())
}

// --- 78
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_78_annotations_of_a_node_that_are_lost_or_garbled_cost_its_pods_no_packet() {
    Cluster::of_nodes(2).test(|cluster| {
        let [here, there] = [start(cluster, "here", "node1")?, start(cluster, "there", "node2")?];
        let before = annotations(&cluster.api.read(NODE)?);
        // A pod that is ready need not be reachable from every node yet.
        cluster.lab.ping(&here, there.address())?;
        cluster.lab.ping(&there, here.address())?;
        let flow = cluster.lab.flow(&here, &there)?;
        let lost = json!({SUBNETS: null, "k8s.ovn.org/node-chassis-id": null, "k8s.ovn.org/zone-name": null});
        // Garbage that may be a name.
        let names = json!({"k8s.ovn.org/node-chassis-id": "999999", "k8s.ovn.org/zone-name": "null"});
        let unreadable = json!({SUBNETS: "{\"default\":[\"10.0.0.0/240\"]}"});
        for spoilt in [lost, names, json!({SUBNETS: "{"}), unreadable] {
            annotate(cluster, NODE, &spoilt)?;
            eventually("the annotations are as they were", SOON, || {
                let now = annotations(&cluster.api.read(NODE)?);
                for name in spoilt.as_object().context("annotations")?.keys() {
                    ensure!(now[name] == before[name], "{name} is {}", now[name]);
                }
                Ok(())
            })?;
        }

        // After a restart the control plane has no earlier value: it leaves the node and its rows
        // alone until the annotation is corrected.
        cluster.master.kill()?;
        annotate(cluster, NODE, &json!({SUBNETS: "{"}))?;
        cluster.master.spawn()?;
        eventually("the node has an event that says what to correct", SOON, || {
            told(cluster, "node1", "UnreadableAnnotation", "k8s.ovn.org/node-subnets cannot be read")?;
            cluster.master_is_ready(1)
        })?;
        cluster.lab.ping(&there, here.address())?;
        annotate(cluster, NODE, &json!({SUBNETS: before[SUBNETS]}))?;
        // Open vSwitch loses packets of its own tunnels while a port is added
        // (docs/troubleshooting.md).
        flow.stop()?.none_is_lost(2)?;
        start(cluster, "next", "node1")?;
        let flow = cluster.lab.flow(&here, &there)?;

        // A lost annotation of which no cluster manager remembers the value: the node's pods show
        // it.
        cluster.master.kill()?;
        annotate(cluster, NODE, &json!({SUBNETS: null}))?;
        cluster.master.spawn()?;
        eventually("the node has the subnet that its pods are in", SOON, || {
            let now = annotations(&cluster.api.read(NODE)?);
            ensure!(now[SUBNETS] == before[SUBNETS], "{} instead of {}", now[SUBNETS], before[SUBNETS]);
            cluster.master_is_ready(1)
        })?;
        flow.stop()?.none_is_lost(2)?;
        start(cluster, "last", "node1")?;
        cluster.northbound_must_match()
    });
}

// --- 79
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_79_a_pod_whose_annotation_is_lost_while_nobody_looks_keeps_its_address() {
    Cluster::of_nodes(1).test(|cluster| {
        let [lost, garbled] =
            [start(cluster, "lost", "node1")?, start(cluster, "garbled", "node1")?];
        let path = |name: &str| format!("{PODS}/{name}");
        let before = ["lost", "garbled"].map(|name| {
            cluster.api.read(&path(name)).map(|pod| annotations(&pod)[NETWORK].clone())
        });
        let flow = cluster.lab.flow(&lost, &garbled)?;
        cluster.master.kill()?;
        annotate(cluster, &path("lost"), &json!({NETWORK: null}))?;
        annotate(cluster, &path("garbled"), &json!({NETWORK: "{"}))?;
        cluster.master.spawn()?;
        for (name, before) in ["lost", "garbled"].into_iter().zip(before) {
            let before: Value = serde_json::from_str(before?.as_str().context("an annotation")?)?;
            eventually("the annotation is there again", SOON, || {
                let now = annotations(&cluster.api.read(&path(name))?);
                let now: Value =
                    serde_json::from_str(now[NETWORK].as_str().context("no annotation")?)?;
                ensure!(
                    now["default"]["ip_addresses"] == before["default"]["ip_addresses"],
                    "{now} instead of {before}"
                );
                ensure!(
                    now["default"]["mac_address"] == before["default"]["mac_address"],
                    "{now} instead of {before}"
                );
                Ok(())
            })?;
        }
        flow.stop()?.none_is_lost(2)?;
        cluster.northbound_must_match()
    });
}

// --- 80
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_80_a_pod_whose_annotation_is_refused_keeps_no_other_waiting() {
    Cluster::of_nodes(1).test(|cluster| {
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "refuse"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}]},
                "validations": [{"expression": "object.metadata.name != 'refused'", "message": "not this one", "reason": "Forbidden"}],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "refuse"},
            "spec": {"policyName": "refuse", "validationActions": ["Deny"]},
        });
        cluster.api.create(&format!("{ADMISSION}/validatingadmissionpolicies"), &policy)?;
        let bindings = format!("{ADMISSION}/validatingadmissionpolicybindings");
        cluster.api.create(&bindings, &binding)?;
        // The pod has no node, and so no network, before the policy is in force.
        cluster.api.create(PODS, &for_node(idle_pod("refused"), "none"))?;
        let status = format!("{PODS}/refused/status");
        let mut round = 0;
        eventually("the policy is in force", SOON, || {
            round += 1;
            let patched = cluster.api.patch(&status, &json!({"metadata": {"annotations": {"test": format!("{round}")}}}));
            let error = patched.err().map(|error| format!("{error:#}")).unwrap_or_default();
            ensure!(error.contains("not this one"), "{error:?}");
            Ok(())
        })?;
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": "node1"});
        let to_node = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "refused"}, "target": target});
        cluster.api.create(&format!("{PODS}/refused/binding"), &to_node)?;
        eventually("the pod has the event", SOON, || told(cluster, "refused", "AnnotationsRefused", "not this one"))?;
        for name in ["one", "two", "three"] {
            start(cluster, name, "node1")?;
        }
        cluster.api.delete(&format!("{bindings}/refuse"))?;
        eventually("the pod has its annotation once the policy is gone", SOON, || {
            let now = annotations(&cluster.api.read(&format!("{PODS}/refused"))?);
            ensure!(now[NETWORK].is_string(), "{now}");
            Ok(())
        })
    });
}

// --- 81
// ----------------------------------------------------------------------------------------------------

#[test]
fn row_81_what_was_meant_for_a_pod_never_reaches_its_successor_of_the_same_name() {
    Cluster::of_nodes(1).test(|cluster| {
        cluster.api.create(PODS, &for_node(idle_pod("again"), "none"))?;
        // The control plane's own patch has the uid as a condition; these answers are the ones that
        // it takes for "gone".
        let patch = json!({"metadata": {"uid": "4b5f1c2e-0000-4000-8000-000000000000", "annotations": {NETWORK: "{}"}}});
        let answer = cluster.api.patch(&format!("{PODS}/again/status"), &patch);
        let error = answer.err().map(|error| format!("{error:?}")).context("it was written on another pod")?;
        let is_known = error.contains("409") && error.contains("UID") || error.contains("422") && error.contains("metadata.uid");
        ensure!(is_known, "{error}");
        let now = annotations(&cluster.api.read(&format!("{PODS}/again"))?);
        ensure!(now[NETWORK].is_null(), "{now}");
        Ok(())
    });
}
