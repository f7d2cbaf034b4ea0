//! Load balancers while a node cannot be read: what it may need stays on it, and nowhere else.

use contract::node_annotation::NODE_SUBNETS;
use controller::{
    kinds::node::object::{Node, Unreadable},
    watch_event::{Seen, WatchEvent},
};
use ovsdb::{Condition, Datum, Mutation, Row, Transaction};

use crate::{
    cluster::{all_nodes, all_pods, config, node},
    database::{Northbound, contents},
    running::Running,
    services::{service, slice},
};

/// The service's own lists, and those of all other kinds but nodes.
fn tell(controller: &Running) {
    controller.observe(all_pods([]));
    controller.observe(WatchEvent::Namespaces(Seen::All(Vec::new())));
    controller.observe(WatchEvent::Policies(Seen::All(Vec::new())));
    WatchEvent::no_optional_kinds().into_iter().for_each(|list| controller.observe(list));
    controller.observe(WatchEvent::Services(Seen::All(vec![service(2, 0, 0)])));
    controller.observe(WatchEvent::Slices(Seen::All(vec![slice(2, 2, 1)])));
}

/// One such node at a start kept the former load balancers of all Services, on all nodes: two with
/// one address, one of them with endpoints that are gone.
#[tokio::test]
async fn a_former_load_balancer_stays_on_the_switch_of_an_unreadable_node_alone() {
    let northbound = Northbound::start();
    let mut controller = Running::start(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1), node(2)]));
    tell(&controller);
    controller.converged().await;
    controller.kill().await;

    let connection = northbound.open().await;
    let mut transaction = Transaction::new();
    let mut add = |name: &str, table: &str, holders: &[&str]| {
        let ids = [("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", "ns2/s2")];
        let row = Row::new()
            .with("name", name)
            .with("protocol", Datum::set(["tcp"]))
            .with("vips", Datum::map([("172.16.0.2:81", "10.0.1.99:8080")]))
            .with("external_ids", Datum::map(ids));
        let row = transaction.insert("Load_Balancer", row);
        for holder in holders {
            let into = Mutation::insert("load_balancer", &row);
            transaction.mutate(table, Condition::equal("name", *holder), vec![into]);
        }
    };
    add("Service_ns2/s2_TCP_former", "Load_Balancer_Group", &["clusterLBGroup"]);
    add("Service_ns2/s2_TCP_node_switch_n2", "Logical_Switch", &["n1", "n2"]);
    connection.transact(transaction).await.unwrap();

    let why = "not JSON".to_owned();
    let unreadable = vec![Unreadable { annotation: NODE_SUBNETS, why }];
    let mut controller = Running::start(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1), Node { unreadable, ..Node::named("n2") }]));
    tell(&controller);
    controller.converged().await;
    let now = contents(&connection).await;
    assert_eq!(now.row("Load_Balancer", "Service_ns2/s2_TCP_former"), None);
    let on = |switch: &str| {
        let row = now.row("Logical_Switch", switch).unwrap();
        row.get("load_balancer")
            .is_some_and(|all| all.contains("<Service_ns2/s2_TCP_node_switch_n2>"))
    };
    assert_eq!(["n1", "n2"].map(on), [false, true]);

    controller.observe(WatchEvent::Nodes(Seen::Applied(node(2))));
    controller.reaches("it is read", |now| now.converged).await;
    let begun = std::time::Instant::now();
    while contents(&connection)
        .await
        .row("Load_Balancer", "Service_ns2/s2_TCP_node_switch_n2")
        .is_some()
    {
        assert!(
            begun.elapsed() < crate::running::deadline(),
            "it stays although the node can be read"
        );
        tokio::task::yield_now().await;
    }
    controller.stop().await;
}
