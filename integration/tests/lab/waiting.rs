//! The waits of an ADD, and what ends them early.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use integration::{Lab, Node, Pod, eventually};
use serde_json::json;

use crate::support::attached::{hold_back, place, start_waiting_add};

/// Long enough for a busy machine, and far shorter than any deadline of the plugin or the server.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A change of a pod while its ADD waits for OVN, and the expected error.
struct Change {
    what: &'static str,
    make: fn(&Node, &Pod) -> Result<()>,
    code: u32,
    says: &'static str,
}

const CHANGES: &[Change] = &[
    Change { what: "deleted", make: Node::remove_manifest, code: 3, says: "deleted" },
    Change {
        what: "created anew",
        make: |node, pod| node.write_manifest(&pod.recreated()),
        code: 3,
        says: "UID",
    },
    Change {
        what: "given another MAC address",
        make: |node, pod| {
            let mut other = pod.clone();
            other.mac = "0a:58:0a:f4:ff:ff".to_owned();
            node.write_manifest(&other)
        },
        code: 11,
        says: "annotation changed",
    },
    Change {
        what: "stripped of its annotation",
        make: |node, pod| node.write_manifest_text(pod, &pod.manifest(None)),
        code: 11,
        says: "lost its network annotation",
    },
];

/// A pod that the control plane has not seen yet: its manifest has no annotation.
fn without_annotation(lab: &Lab, node: &Node) -> Result<Pod> {
    let pod = lab.plan_pod(node);
    place(lab, node, &pod, &pod.manifest(None))?;
    Ok(pod)
}

/// Waits until the server logs that it waits for the pod's annotation.
fn until_the_server_waits(node: &Node, pod: &Pod) -> Result<()> {
    eventually(
        &format!("the server waits for the annotation of {}", pod.name),
        Duration::from_secs(10),
        || {
            let log = node.server_log()?;
            ensure!(
                log.lines().any(|line| line.contains(&pod.name) && line.contains("no annotation")),
                "its log:\n{log}"
            );
            Ok(())
        },
    )
}

#[test]
fn a_pod_that_changes_while_its_flows_are_waited_for_ends_the_add_at_once() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        for Change { what, make, code, says } in CHANGES {
            let pod = lab.new_pod(node)?;
            hold_back(lab, &pod)?;
            let before = node.census()?;
            let add = start_waiting_add(node, &pod)?;
            let changed = Instant::now();
            make(node, &pod)?;
            let error = add.wait()?.failure().with_context(|| format!("the pod was {what}"))?;
            ensure!(
                changed.elapsed() < AT_ONCE,
                "the pod was {what}, and the ADD went on for {:?}",
                changed.elapsed()
            );
            ensure!(
                error.code == *code && error.msg.contains(says),
                "the pod was {what}: {error:?}"
            );
            before.must_equal(&node.census()?).with_context(|| format!("the pod was {what}"))?;
        }
        Ok(())
    });
}

#[test]
fn a_pod_that_is_deleted_while_its_annotation_is_waited_for_ends_the_add_at_once() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod = without_annotation(lab, node)?;
        let before = node.census()?;
        let add = node.runtime().call("ADD", Some(&pod)).start()?;
        until_the_server_waits(node, &pod)?;
        let changed = Instant::now();
        node.remove_manifest(&pod)?;
        let error = add.wait()?.failure()?;
        ensure!(changed.elapsed() < AT_ONCE, "the ADD went on for {:?}", changed.elapsed());
        ensure!(error.code == 3 && error.msg.contains("deleted"), "{error:?}");
        before.must_equal(&node.census()?)
    });
}

#[test]
fn an_add_whose_flows_never_come_ends_at_its_deadline_and_leaves_nothing() {
    Lab::of_nodes(1).test(|lab| {
        let node = &lab.nodes[0];
        node.start_server()?;
        let pod = lab.new_pod(node)?;
        hold_back(lab, &pod)?;
        let before = node.census()?;
        let outcome = node.runtime().with("timeoutSeconds", json!(1)).add(&pod)?;
        let error = outcome.failure()?;
        ensure!(
            error.code == 11
                && error.msg.contains("ovn_installed")
                && error.msg.contains(&pod.name),
            "{error:?}"
        );
        ensure!(
            error.details.contains("requested-chassis"),
            "no hint at what to look at: {error:?}"
        );
        ensure!(
            outcome.duration < Duration::from_secs(1) + AT_ONCE,
            "it went on for {:?}",
            outcome.duration
        );
        before.must_equal(&node.census()?)
    });
}
