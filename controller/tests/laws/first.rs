//! The shortest way through everything: one node, one pod.

use controller::{
    observation::{Observation, Seen},
    reconcile::Stopped,
};

use crate::{
    cluster::{all_nodes, all_pods, config, node, pod, pod_key},
    database::{Northbound, contents},
    running::Running,
};

#[tokio::test]
async fn a_pod_has_its_port_on_its_nodes_switch_until_it_is_gone() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::start(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([pod(1, 1, 0)]));
    controller.converged().await;

    let found = contents(&connection).await;
    let switch = found.row("Logical_Switch", "n1").unwrap_or_else(|| panic!("{found:#?}"));
    assert!(switch["ports"].contains("<ns1_p1>") && switch["ports"].contains("<stor-n1>"), "{switch:?}");
    let port = found.row("Logical_Switch_Port", "ns1_p1").unwrap();
    assert_eq!(port["addresses"], "0a:58:0a:00:01:97 10.0.1.151");
    assert_eq!(port["options"], "iface-id-ver=uid-1-0, requested-chassis=chassis-1");

    controller.observe(Observation::Pods(Seen::Deleted(pod_key(1))));
    controller.reaches("work", |progress| !progress.converged).await;
    controller.converged().await;
    assert_eq!(contents(&connection).await.row("Logical_Switch_Port", "ns1_p1"), None);
    assert_eq!(controller.stop().await, Stopped::ObservationsEnded);
}
