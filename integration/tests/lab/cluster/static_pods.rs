//! Static pods: the API server has only mirrors of them, which come and go while the pods run.

use std::{fs, time::Duration};

use anyhow::{Context as _, ensure};
use integration::{
    Cluster, Pod,
    cluster::{attached::is_ready, worker::STATIC_PODS},
    eventually,
};
use kube::ResourceExt as _;

use crate::cluster::support::{PODS, SOON, attached, small_pod, start, wait_ready};

/// Limit of the wait for a new mirror: longer than the kubelet's interval between two syncs of a
/// static pod.
const NEXT_LOOK: Duration = Duration::from_secs(120);

/// Annotation with the kubelet's own UID of the pod.
const HASH: &str = "kubernetes.io/config.hash";

/// The kubelet's UID of a static pod is the hash of its file; the UID of the mirror is the API
/// server's. Regression: deleting the mirror cut the pod off, because the next mirror got another
/// address and its port another `iface-id-ver`, while the sandbox stayed.
#[test]
fn a_static_pod_keeps_its_network_when_somebody_deletes_its_mirror() {
    Cluster::of_nodes(1).test(|cluster| {
        let node = &cluster.lab.nodes[0];
        let file = node.path(STATIC_PODS).join("static.json");
        fs::write(&file, small_pod("static", "node1").to_string())?;
        wait_ready(cluster, &["static-node1"])?;
        let witness = start(cluster, &small_pod("witness", "node1"))?;
        let first = attached(cluster, "static-node1")?;
        let hash = cluster.pods.now()["default/static-node1"]
            .annotations()
            .get(HASH)
            .cloned()
            .context("a hash")?;
        let log_directories = node.run(["ls", "/var/log/pods"])?;
        ensure!(
            log_directories.contains(&format!("default_static-node1_{hash}")),
            "the runtime's UID: {log_directories}"
        );
        ensure!(hash != first.uid, "the mirror has the hash as UID");

        // A kubelet that learns of the deletion creates another mirror at once; otherwise at its
        // next sync of the pod, after 60 to 90 s. The server would have removed leftovers of a
        // deleted pod after 30 s.
        let mut last = first.clone();
        for options in ["", "?gracePeriodSeconds=0"] {
            let flow = cluster.lab.flow(&witness, &first)?;
            cluster.api.delete(&format!("{PODS}/static-node1{options}"))?;
            let next = mirrored_anew(cluster, &last)?;
            flow.stop()?.none_is_lost(1)?;
            ensure!(
                next.sandbox == first.sandbox && next.addresses == first.addresses,
                "{first:?}\n{next:?}"
            );
            last = next;
        }
        let flow = cluster.lab.flow(&witness, &first)?;
        cluster.master.kill()?;
        cluster.master.spawn()?;
        eventually("the control plane is ready again", SOON, || cluster.master_is_ready(1))?;
        flow.stop()?.none_is_lost(1)?;

        // A new sandbox of the same pod, under the second mirror.
        node.run([
            "ctr",
            "--address",
            "/run/containerd/containerd.sock",
            "-n",
            "k8s.io",
            "tasks",
            "kill",
            "-s",
            "KILL",
            &first.sandbox,
        ])?;
        let third = eventually("the static pod has another sandbox", SOON, || {
            let third = attached(cluster, "static-node1")?;
            ensure!(third.sandbox != first.sandbox, "{third:?}");
            Ok(third)
        })?;
        wait_ready(cluster, &["static-node1"])?;
        ensure!(third.addresses == first.addresses, "{first:?}\n{third:?}");
        cluster.lab.ping(&witness, third.address())
    });
}

/// Waits until another mirror is there with its annotation.
fn mirrored_anew(cluster: &Cluster, first: &Pod) -> anyhow::Result<Pod> {
    cluster.pods.wait("there is another mirror", NEXT_LOOK, |known| {
        let mirror = known.get("default/static-node1").context("no mirror is there")?;
        ensure!(
            mirror.uid().is_some_and(|uid| uid != first.uid) && is_ready(mirror),
            "{:?}",
            mirror.metadata
        );
        ensure!(
            mirror.annotations().contains_key("k8s.ovn.org/pod-networks"),
            "{:?}",
            mirror.annotations()
        );
        Ok(())
    })?;
    attached(cluster, "static-node1")
}
