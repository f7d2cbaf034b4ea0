//! Both forms of the server's configuration: version 1.0.0 for containerd 1.6, and 1.1.0 for
//! cnitool.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, Node, cluster::Containerd};
use serde_json::Value;

use crate::cluster::support::{PODS, SOON, delete, small_pod, start};

#[test]
fn containerd_attaches_pods_with_version_1_0_0_and_cnitool_with_1_1_0() {
    Cluster::of_nodes(1).containerd(Containerd::One).test(|cluster| {
        let before = cluster.leftovers()?;
        let (node, worker) = cluster.nodes().next().expect("a cluster has a node");
        let runs = start(cluster, &small_pod("runs", "node1"))?;
        let of_containerd = cached_result(node, &runs.sandbox)?;
        ensure!(of_containerd["cniVersion"] == "1.0.0", "{of_containerd:#}");

        // Without its kubelet, the node gets pods that are not started.
        worker.kubelet.kill()?;
        cluster.api.create(PODS, &small_pod("by-hand", "node1"))?;
        let uid = cluster.pods.wait("the pod has an address", SOON, |known| {
            let pod = known.get("default/by-hand").context("it is not there")?;
            let annotations = pod.metadata.annotations.clone().unwrap_or_default();
            let annotation: Value = serde_json::from_str(
                annotations.get("k8s.ovn.org/pod-networks").context("it has no annotation")?,
            )?;
            let address =
                annotation["default"]["ip_addresses"][0].as_str().context("an address")?.to_owned();
            Ok((pod.metadata.uid.clone().unwrap_or_default(), address))
        });
        let (uid, address) = uid?;
        let mut by_hand = runs.next_sandbox();
        "by-hand".clone_into(&mut by_hand.name);
        by_hand.uid = uid;
        node.add_namespaces(std::slice::from_ref(&by_hand))?;
        let cnitool = |verb: &str| node.runtime().cnitool(verb, &by_hand)?.run()?.success();
        let result = cnitool("add")?;
        ensure!(
            result["cniVersion"] == "1.1.0" && result["ips"][0]["address"] == address.as_str(),
            "{result:#}"
        );
        cluster.lab.ping(&runs, address.split('/').next().unwrap_or_default().parse()?)?;
        cnitool("check")?;
        cnitool("del")?;
        node.remove_namespaces(&[by_hand])?;

        worker.kubelet.spawn()?;
        delete(cluster, "by-hand")?;
        delete(cluster, "runs")?;
        cluster.must_leave_nothing(&before)
    });
}

/// The result of an ADD in libcni's cache.
fn cached_result(node: &Node, sandbox: &str) -> Result<Value> {
    let file = node.path(format!("/var/lib/cni/results/ovn-kubernetes-{sandbox}-eth0"));
    let cached: Value = serde_json::from_str(
        &fs::read_to_string(&file).with_context(|| file.display().to_string())?,
    )?;
    Ok(cached["result"].clone())
}
