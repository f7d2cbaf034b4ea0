//! Pods reach each other, and leave nothing behind.

use std::fs;

use anyhow::{Result, ensure};
use integration::{Cluster, Pod, cluster::worker::STATIC_PODS};
use serde_json::json;

use crate::cluster::support::{
    PODS, attached, delete, pod, small_pod, start, wait_gone, wait_ready,
};

#[test]
fn pods_of_two_nodes_reach_each_other_by_ping_tcp_and_udp() {
    Cluster::of_nodes(2).test(|cluster| {
        let before = cluster.leftovers()?;
        cluster.api.create_all(
            PODS,
            &[pod("here", "node1"), pod("beside", "node1"), pod("there", "node2")],
        )?;
        wait_ready(cluster, &["here", "beside", "there"])?;
        let [here, beside, there] =
            [attached(cluster, "here")?, attached(cluster, "beside")?, attached(cluster, "there")?];
        for (from, to) in [(&here, &beside), (&here, &there), (&there, &here)] {
            cluster.lab.ping(from, to.address())?;
            cluster.lab.tcp(from, to, 4 << 20)?;
            let echoes = cluster.lab.udp(from, to, 100, 1300)?;
            ensure!(echoes.received == echoes.sent, "{} to {}: {echoes:?}", from.name, to.name);
            // The same with programs in the pods' own image, as a user would.
            let exec = |command: &str| {
                cluster.kubectl(
                    ["exec", &from.name, "--"].into_iter().chain(command.split_whitespace()),
                )
            };
            exec(&format!("ping -c 1 -W 2 {}", to.address()))?;
            let name = exec(&format!("timeout 5 wget -qO- http://{}:8080/hostname", to.address()))?;
            ensure!(name == to.name, "{} calls itself {name:?}", to.name);
            exec(&format!("/agnhost connect {}:8081 --protocol=udp --timeout=5s", to.address()))?;
        }
        ["here", "beside", "there"].iter().try_for_each(|name| delete(cluster, name))?;
        cluster.must_leave_nothing(&before)
    });
}

#[test]
fn fifty_pods_of_a_node_reach_each_other_and_leave_nothing() {
    Cluster::of_nodes(1).test(|cluster| {
        let before = cluster.leftovers()?;
        let names: Vec<String> = (0..50).map(|number| format!("pod-{number}")).collect();
        let mut pods: Vec<_> = names.iter().map(|name| small_pod(name, "node1")).collect();
        // Every tenth pod has a limit, i.e. a QoS row with its queues.
        for pod in pods.iter_mut().step_by(10) {
            pod["metadata"]["annotations"] = json!({"kubernetes.io/ingress-bandwidth": "100M"});
        }
        cluster.api.create_all(PODS, &pods)?;
        wait_ready(cluster, &names)?;
        let attached = names.iter().map(|name| attached(cluster, name)).collect::<Result<Vec<Pod>>>()?;
        let targets: Vec<String> = attached.iter().map(|pod| pod.address().to_string()).collect();
        // Each pod pings all others at once. Single packets may be lost to address resolution.
        let reach =
            "for try in 1 2 3 4 5 6 7 8 9 10; do ping -n -q -c 1 -W 1 $to >/dev/null && exit; done; echo $to";
        let pings = format!("for to in {}; do ({reach}) & done; wait", targets.join(" "));
        let node = &cluster.lab.nodes[0];
        let rows = node.census()?;
        ensure!(rows.lines_with("QoS type").len() == 5, "{rows}");
        for some in attached.chunks(5) {
            for pod in some {
                let silent = node.run_in_pod(pod, ["sh", "-c", &pings])?;
                ensure!(
                    silent.is_empty(),
                    "{} does not reach {}",
                    pod.name,
                    silent.split_whitespace().collect::<Vec<_>>().join(", ")
                );
            }
            // The kernel keeps at most 1024 neighbours for all network namespaces together
            // (gc_thresh3), fewer than all pairs need.
            node.run(["ip", "-all", "netns", "exec", "ip", "neigh", "flush", "all"])?;
        }
        cluster.api.delete(PODS)?;
        cluster.must_leave_nothing(&before)
    });
}

#[test]
fn static_pods_have_their_network_and_pods_of_the_host_network_are_left_alone() {
    Cluster::of_nodes(1).test(|cluster| {
        let before = cluster.leftovers()?;
        let node = &cluster.lab.nodes[0];
        let file = node.path(STATIC_PODS).join("static.json");
        fs::write(&file, pod("static", "node1").to_string())?;
        let mut host = small_pod("host", "node1");
        host["spec"]["hostNetwork"] = json!(true);
        cluster.api.create(PODS, &host)?;
        // At the API server a static pod is a mirror pod, whose name ends with the node's name.
        wait_ready(cluster, &["static-node1", "host"])?;

        let pod = start(cluster, &small_pod("ordinary", "node1"))?;
        let fixed = attached(cluster, "static-node1")?;
        cluster.lab.ping(&pod, fixed.address())?;
        cluster.lab.tcp(&fixed, &pod, 1 << 20)?;

        let known = cluster.pods.now();
        let annotations = known["default/host"].metadata.annotations.clone().unwrap_or_default();
        ensure!(!annotations.contains_key("k8s.ovn.org/pod-networks"), "{annotations:?}");
        let address = known["default/host"].status.clone().and_then(|status| status.pod_ip);
        ensure!(address.as_deref() == Some("172.30.0.11"), "{address:?}");
        ensure!(node.census()?.lines_with("default_host").is_empty(), "{}", node.census()?);

        fs::remove_file(&file)?;
        wait_gone(cluster, "static-node1")?;
        ["host", "ordinary"].iter().try_for_each(|name| delete(cluster, name))?;
        cluster.must_leave_nothing(&before)
    });
}
