//! Nodes that leave together, with more rows than one turn compares or one transaction holds.

use controller::watch_event::{Seen, WatchEvent};

use crate::{
    cluster::{all_nodes, all_pods, config, node, node_name, pod},
    database::{Northbound, contents},
    history::Foreign,
    running::Running,
    second_writer::SecondWriter,
};

const NODES: u32 = 12;
const PODS_OF_A_NODE: u32 = 100;

/// A switch with a foreign row outlives its node. When a turn ended between the nodes and their
/// pods, the switch had lost its port to the router and with it its owner, and the pods' ports
/// stayed in it for ever.
#[tokio::test]
async fn ports_of_pods_leave_switches_that_outlive_their_nodes_however_many_leave_at_once() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes((1..=NODES).map(node)));
    let on = |number: u32| 1 + number / PODS_OF_A_NODE;
    controller
        .observe(all_pods((0..NODES * PODS_OF_A_NODE).map(|number| pod(number, on(number), 0))));
    controller.converged().await;
    let mut second = SecondWriter::default();
    for number in 1..=NODES {
        let foreign = if number % 2 == 0 {
            Foreign::QosOnSwitch(number)
        } else {
            Foreign::AclOnSwitch(number)
        };
        second.foreign(&connection, foreign).await;
    }

    // No await in between: all nodes are dirty before the controller compares anything.
    for number in 1..=NODES {
        controller.observe(WatchEvent::Nodes(Seen::Deleted(node_name(number))));
    }
    controller.reaches("work", |progress| !progress.converged).await;
    controller.converged().await;

    let left = contents(&connection).await;
    for number in 1..=NODES {
        let switch =
            left.row("Logical_Switch", &node_name(number)).expect("it holds a foreign row");
        let ports = switch.get("ports").map_or(0, |ports| ports.split(", ").count());
        assert_eq!(ports, 0, "ports in the switch of node {number}: {:?}", switch.get("ports"));
    }
    let harmed = second.harmed(&left);
    assert!(harmed.is_empty(), "{harmed:#?}");
}
