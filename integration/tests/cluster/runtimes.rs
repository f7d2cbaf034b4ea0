//! containerd 2, which calls STATUS every 5 s. After an error its kubelet takes the node out of service.

use integration::{Cluster, cluster::Containerd};

use crate::{deployment, in_service::Scene, support::PODS};

#[test]
fn no_node_leaves_service_while_the_southbound_database_the_api_server_and_the_servers_restart_under_containerd_2()
 {
    Cluster::of_nodes(2).containerd(Containerd::Two).test(|cluster| {
        let before = cluster.leftovers()?;
        let scene = Scene::begin(cluster)?;
        scene.unnoticed("the southbound database restarts", || scene.southbound_database_restarts())?;
        scene.unnoticed("the API server is away", || scene.api_server_is_away())?;
        scene.unnoticed("the servers are replaced", || scene.servers_are_replaced())?;
        scene.a_missing_server_is_noticed_and_pods_go()?;
        cluster.api.delete(PODS)?;
        cluster.must_leave_nothing(&before)
    });
}

#[test]
fn no_node_leaves_service_while_the_daemon_set_is_rolled_out_under_containerd_2() {
    Cluster::of_nodes(2).containerd(Containerd::Two).test(|cluster| {
        deployment::deploy(cluster)?;
        cluster.wait_until_ready()?;
        let before = cluster.leftovers()?;
        let scene = Scene::begin(cluster)?;
        scene.unnoticed("the DaemonSet is rolled out", || deployment::roll_out(cluster))?;
        cluster.api.delete(PODS)?;
        cluster.must_leave_nothing(&before)
    });
}
