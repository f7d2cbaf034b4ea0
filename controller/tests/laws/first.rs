//! The shortest way through the controller: one node, one pod.

use controller::{
    config::ClusterConfig,
    engine::reconcile::Stopped,
    watch_event::{Seen, WatchEvent},
};

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod, pod_key},
    database::{Contents, Northbound, contents},
    history::Drift,
    running::Running,
    second_writer::SecondWriter,
};

#[tokio::test]
async fn a_pod_has_its_port_on_its_nodes_switch_until_it_is_gone() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([pod(1, 1, 0)]));
    controller.converged().await;

    let found = contents(&connection).await;
    let switch = found.row("Logical_Switch", "n1").unwrap_or_else(|| panic!("{found:#?}"));
    assert!(
        switch["ports"].contains("<ns1_p1>") && switch["ports"].contains("<stor-n1>"),
        "{switch:?}"
    );
    let port = found.row("Logical_Switch_Port", "ns1_p1").unwrap();
    assert_eq!(port["addresses"], "0a:58:0a:00:01:2c 10.0.1.44");
    assert_eq!(port["options"], "iface-id-ver=uid-1-0, requested-chassis=n1");

    controller.observe(WatchEvent::Pods(Seen::Deleted(pod_key(1))));
    controller.reaches("work", |progress| !progress.converged).await;
    controller.converged().await;
    assert_eq!(contents(&connection).await.row("Logical_Switch_Port", "ns1_p1"), None);
    assert_eq!(controller.stop().await, Stopped::ObservationsEnded);
}

/// A restart with the kubeconfig of another cluster removed every row of this one.
#[tokio::test]
async fn a_database_says_which_clusters_it_is_once_something_is_written_and_no_other_clusters_lists_count()
 {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let start = async |id: &str| {
        let mut controller = Running::without_services(northbound.endpoint(), config());
        controller.reaches("the database is read", |progress| progress.loaded).await;
        controller.observe(WatchEvent::Cluster(Some(id.into())));
        controller
    };
    let router = async || {
        contents(&connection).await.row("Logical_Router", "ovn_cluster_router").unwrap()["external_ids"]
            .clone()
    };

    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([pod(1, 1, 0)]));
    controller.converged().await;
    controller.kill().await;
    let mut controller = start("own").await;
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([pod(1, 1, 0)]));
    controller.converged().await;
    assert_eq!(
        (controller.transactions().get(), router().await.as_str()),
        (0, "k8s-cluster-router=yes"),
        "a start writes nothing"
    );
    controller.observe(WatchEvent::Pods(Seen::Applied(pod(2, 1, 0))));
    controller.reaches("work", |progress| !progress.converged).await;
    controller.converged().await;
    assert_eq!(router().await, "k8s-cluster-router=yes, k8s-cluster-uid=own");
    let before = contents(&connection).await;
    controller.kill().await;

    let mut controller = start("another").await;
    controller.observe(all_nodes([node(1), node(2)]));
    controller.observe(all_pods([pod(3, 2, 0)]));
    controller.doubted(|doubted| doubted.other_cluster.is_some()).await;
    assert!(!controller.progress.borrow().converged);
    assert_eq!(contents(&connection).await, before);
    controller.observe(WatchEvent::Cluster(Some("own".into())));
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([pod(1, 1, 0), pod(2, 1, 0)]));
    controller.converged().await;
    assert_eq!(contents(&connection).await, before);
}

/// After a start with other join subnets (`--gateway-*-join-subnet`) and transit subnets, the
/// cluster router has its new address, and no row of a node or pod is touched.
#[tokio::test]
async fn other_join_and_transit_subnets_change_the_cluster_routers_port_and_no_row_of_a_pod_or_node()
 {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let subnets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1), node(2)]));
    controller.observe(all_pods([pod(1, 1, 0), pod(2, 2, 0)]));
    controller.converged().await;
    let before = contents(&connection).await;
    controller.kill().await;

    let changed = ClusterConfig {
        join_subnets: subnets(&["100.72.0.0/16"]),
        transit_subnets: subnets(&["100.92.0.0/16"]),
        ..config()
    };
    let mut controller = Running::without_services(northbound.endpoint(), changed);
    controller.observe(all_nodes([node(1), node(2)]));
    controller.observe(all_pods([pod(1, 1, 0), pod(2, 2, 0)]));
    controller.converged().await;
    let after = contents(&connection).await;
    assert_eq!(
        after.row("Logical_Router_Port", "rtoj-ovn_cluster_router").unwrap()["networks"],
        "100.72.0.1/16"
    );
    let others = |contents: &Contents| {
        let mut rows = contents.0.clone();
        rows.retain(|(_, name, _), _| name != "rtoj-ovn_cluster_router");
        rows
    };
    assert_eq!(others(&after), others(&before));
    assert_eq!(controller.stop().await, Stopped::ObservationsEnded);
}

/// A switch without its port to the router had no owner, and stayed for ever with its management
/// port and its pods' ports.
#[tokio::test]
async fn the_switch_of_a_node_that_goes_while_nobody_looks_is_removed_though_somebody_took_its_link_to_the_router()
 {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1), node(2), node(3)]));
    controller.observe(all_pods([pod(1, 1, 0)]));
    controller.converged().await;
    controller.kill().await;
    SecondWriter::default().drift(&connection, Drift::LinkGone(1)).await;
    assert_eq!(contents(&connection).await.row("Logical_Switch_Port", "stor-n1"), None);

    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(2), node(3)]));
    controller.observe(all_pods([]));
    // The lists are doubted, so they have to come twice.
    controller.observe(WatchEvent::Cluster(None));
    controller.observe(all_nodes([node(2), node(3)]));
    controller.observe(all_pods([]));
    controller.converged().await;
    assert_eq!(contents(&connection).await.row("Logical_Switch", "n1"), None);
    assert_eq!(controller.stop().await, Stopped::ObservationsEnded);
}
