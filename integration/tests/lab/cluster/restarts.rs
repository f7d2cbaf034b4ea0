//! Restarts of a node's programs while pods run, come and go.

use anyhow::ensure;
use integration::{Cluster, cluster::attached::is_ready};

use crate::cluster::support::{PODS, SOON, delete, small_pod, start, wait_gone, wait_ready};

#[test]
fn pods_keep_their_network_while_the_kubelet_and_containerd_restart() {
    Cluster::of_nodes(1).test(|cluster| {
        let before = cluster.leftovers()?;
        let (node, worker) = cluster.nodes().next().expect("a cluster has a node");
        let [one, other] = [
            start(cluster, &small_pod("one", "node1"))?,
            start(cluster, &small_pod("other", "node1"))?,
        ];
        let flow = cluster.lab.flow(&one, &other)?;
        worker.kubelet.kill()?;
        // Requests to a node without its kubelet are served by the next kubelet.
        cluster.api.create(PODS, &small_pod("later", "node1"))?;
        worker.containerd.kill()?;
        worker.start_containerd(node)?;
        worker.kubelet.spawn()?;
        wait_ready(cluster, &["one", "other", "later"])?;
        flow.stop()?.none_is_lost(50)?;
        let [same, still] = [cluster.attached("default/one")?, cluster.attached("default/other")?];
        ensure!(
            same.sandbox == one.sandbox && still.sandbox == other.sandbox,
            "pods were restarted: {same:?} {still:?}"
        );
        cluster.lab.ping(&one, cluster.attached("default/later")?.address())?;
        cluster.api.delete(PODS)?;
        cluster.must_leave_nothing(&before)
    });
}

#[test]
fn a_burst_of_pods_gets_its_network_while_the_server_is_killed_and_restarted() {
    Cluster::of_nodes(1).test(|cluster| {
        let before = cluster.leftovers()?;
        let node = &cluster.lab.nodes[0];
        let names: Vec<String> = (0..30).map(|number| format!("pod-{number}")).collect();
        let pods: Vec<_> = names.iter().map(|name| small_pod(name, "node1")).collect();
        cluster.api.create_all(PODS, &pods)?;
        let ready = |count: usize| {
            cluster.pods.wait(&format!("{count} pods are ready"), SOON, |known| {
                let ready = known.values().filter(|pod| is_ready(pod)).count();
                ensure!(ready >= count, "{ready} are");
                Ok(())
            })
        };
        ready(1)?;
        node.server.kill()?;
        node.start_server()?;
        ready(8)?;
        node.server.stop()?;
        node.start_server()?;
        wait_ready(cluster, &names)?;
        let [first, last] =
            [cluster.attached("default/pod-0")?, cluster.attached("default/pod-29")?];
        cluster.lab.ping(&first, last.address())?;
        cluster.lab.tcp(&last, &first, 1 << 20)?;
        // DEL needs no server: the pod must go while it is away.
        node.server.kill()?;
        delete(cluster, "pod-0")?;
        wait_gone(cluster, "pod-0")?;
        node.start_server()?;
        cluster.api.delete(PODS)?;
        cluster.must_leave_nothing(&before)
    });
}
