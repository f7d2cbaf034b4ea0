//! Pods while the API server is away, and after it is back.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use integration::{Cluster, cluster::worker::STATIC_PODS, eventually};

use crate::cluster::support::{PODS, attached, pod, small_pod, start, start_within, wait_ready};

#[test]
fn pods_keep_their_network_while_the_api_server_is_away_for_30_s() {
    Cluster::of_nodes(2).test(|cluster| {
        let before = cluster.leftovers()?;
        let node = &cluster.lab.nodes[0];
        let file = node.path(STATIC_PODS).join("static.json");
        fs::write(&file, small_pod("static", "node1").to_string())?;
        wait_ready(cluster, &["static-node1"])?;
        let [here, there] = [
            start(cluster, &small_pod("here", "node1"))?,
            start(cluster, &small_pod("there", "node2"))?,
        ];
        let fixed = attached(cluster, "static-node1")?;

        // Warm-up: the first packet may be lost to address resolution.
        cluster.lab.ping(&here, there.address())?;
        cluster.control_plane.api_server.kill()?;
        // A static pod's manifest is removed: the kubelet calls DEL without the API server.
        fs::remove_file(&file)?;
        eventually("DEL leaves nothing", Duration::from_secs(20), || -> Result<_> {
            let rows = node.census()?;
            ensure!(
                rows.lines_with(&fixed.sandbox).is_empty(),
                "{:#?}",
                rows.lines_with(&fixed.sandbox)
            );
            Ok(())
        })?;
        // Ten packets a second for 30 s. Only after the DEL, and what of it follows the rows: the
        // userspace datapath drops a packet now and then while any port comes or goes (coverage
        // counter `datapath_drop_upcall_error`).
        cluster.lab.ping(&here, there.address())?;
        let pinged = node.run_in_pod(
            &here,
            ["ping", "-n", "-D", "-O", "-i", "0.1", "-c", "300", &there.address().to_string()],
        )?;
        let answers = pinged
            .split(", ")
            .find_map(|part| part.strip_suffix(" received"))
            .context(pinged.clone())?;
        let unanswered: Vec<&str> =
            pinged.lines().filter(|line| !line.contains("bytes from")).collect();
        ensure!(answers == "300", "packets were lost: {unanswered:#?}");

        cluster.start_api_server()?;
        // After such a long outage the scheduler and the kubelet retry only every 30 s.
        let new = start_within(cluster, &pod("new", "node1"), Duration::from_secs(120))?;
        cluster.lab.ping(&there, new.address())?;
        cluster.lab.tcp(&new, &there, 1 << 20)?;
        cluster.api.delete(PODS)?;
        cluster.must_leave_nothing(&before)
    });
}

/// The sandbox of a running pod ends, and the next one gets its network from what the server
/// already knows.
#[test]
fn a_pod_gets_another_sandbox_while_the_api_server_is_away() {
    Cluster::of_nodes(1).test(|cluster| {
        let node = &cluster.lab.nodes[0];
        let [pod, other] = [
            start(cluster, &small_pod("pod", "node1"))?,
            start(cluster, &small_pod("other", "node1"))?,
        ];
        cluster.control_plane.api_server.kill()?;
        node.run([
            "ctr",
            "--address",
            "/run/containerd/containerd.sock",
            "--namespace",
            "k8s.io",
            "tasks",
            "kill",
            "--signal",
            "SIGKILL",
            &pod.sandbox,
        ])?;
        let next =
            eventually("the pod has another sandbox", Duration::from_secs(60), || -> Result<_> {
                let next = attached(cluster, "pod")?;
                ensure!(next.sandbox != pod.sandbox, "it has the first one");
                Ok(next)
            })?;
        ensure!(next.address() == pod.address(), "{} became {}", pod.address(), next.address());
        cluster.lab.ping(&other, next.address())
    });
}
