//! The events that `kubectl describe pod` shows for a pod without a network.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, eventually};
use serde_json::Value;

use crate::cluster::support::{PODS, delete, small_pod, wait_ready};

#[test]
fn a_pod_whose_annotation_does_not_come_gets_an_event_and_later_its_network() {
    Cluster::of_nodes(1).test(|cluster| {
        let before = cluster.leftovers()?;
        cluster.master.stop()?;
        cluster.api.create(PODS, &small_pod("forgotten", "node1"))?;
        let late = eventually("the pod has an event", Duration::from_secs(60), || {
            event(cluster, "forgotten", "NetworkLate")
        })?;
        ensure!(late["type"] == "Warning" && late["reportingInstance"] == "node1", "{late:#}");
        ensure!(late["note"].as_str().is_some_and(|note| note.contains("annotation")), "{late:#}");
        let shown = cluster.kubectl(["describe", "pod", "forgotten"])?;
        ensure!(shown.contains("NetworkLate"), "{shown}");

        cluster.master.spawn()?;
        wait_ready(cluster, &["forgotten"])?;
        delete(cluster, "forgotten")?;
        cluster.must_leave_nothing(&before)
    });
}

fn event(cluster: &Cluster, pod: &str, reason: &str) -> Result<Value> {
    let events = cluster.api.read("/apis/events.k8s.io/v1/namespaces/default/events")?;
    let events = events["items"].as_array().context("a list of events")?;
    let found =
        events.iter().find(|event| event["reason"] == reason && event["regarding"]["name"] == pod);
    found.cloned().with_context(|| {
        format!("events: {:?}", events.iter().map(|event| &event["reason"]).collect::<Vec<_>>())
    })
}
