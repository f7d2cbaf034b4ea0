//! Law 3 for addresses: foreign ports on nodes' switches keep their addresses, which no pod gets.

use std::collections::BTreeMap;

use controller::engine::reconcile::Report;
use kubeapi::object::Object;
use ovsdb::Datum;
use proptest::prelude::*;
use tokio::time::timeout;

use crate::{
    cluster::pod,
    database::{Contents, Row},
    histories::on,
    history::Step,
    running::deadline,
    second_writer::port,
    world::World,
};

/// What happens on the switch of node 1.
#[derive(Debug, Clone, Copy)]
enum Event {
    Pod(u32),
    PodGone(u32),
    /// A foreign port gets a free address, `ahead` places after the highest one in use.
    Foreign {
        ahead: u8,
    },
    ForeignGone,
    Restart,
}

/// The addresses of each port on the switch of node 1, by the port's name: the last byte of each.
fn addresses(contents: &Contents) -> BTreeMap<String, Vec<u8>> {
    let ports = contents.0.iter().filter(|((table, ..), _)| table == "Logical_Switch_Port");
    let hosts = |text: &str| {
        text.split([' ', ',', '='])
            .filter_map(|word| word.strip_prefix("10.0.1.")?.parse().ok())
            .collect()
    };
    let columns = ["addresses", "dynamic_addresses", "options"];
    let text = |row: &Row| columns.map(|column| row.get(column).cloned().unwrap_or_default());
    ports.map(|((_, name, _), row)| (name.clone(), hosts(&text(row).join(" ")))).collect()
}

/// The port `int-NODE` of hybrid overlay has the first address that a pod can get. The next pod got
/// the same one.
#[test]
fn law_3_no_pod_gets_an_address_of_a_foreign_port() {
    let events = prop_oneof![
        6 => (0_u32..5).prop_map(|number| Event::Pod(2 * number)),
        2 => (0_u32..5).prop_map(|number| Event::PodGone(2 * number)),
        4 => (1_u8..4).prop_map(|ahead| Event::Foreign { ahead }),
        1 => Just(Event::ForeignGone),
        1 => Just(Event::Restart),
    ];
    on(8, 24, events, async |history| {
        let mut world = World::new().await;
        world.happen(Step::Node(1)).await;
        world.rest().await;
        for (number, event) in history.into_iter().enumerate() {
            match event {
                Event::Pod(pod) => world.happen(Step::Pod { pod, node: 1 }).await,
                Event::PodGone(pod) => world.happen(Step::PodGone(pod)).await,
                Event::Foreign { ahead } => {
                    world.rest().await;
                    let used = addresses(&world.contents().await);
                    let highest = used
                        .values()
                        .flatten()
                        .filter(|host| **host < 200)
                        .max()
                        .copied()
                        .unwrap_or(2);
                    let (mac, address) = (
                        format!("0a:58:0a:00:09:{number:02x}"),
                        format!("10.0.1.{}", highest + ahead),
                    );
                    // All ways in which a port can have an address.
                    let columns = match number % 3 {
                        0 => ovsdb::Row::new()
                            .with("addresses", format!("{mac} {address} fd00::{number}")),
                        1 => ovsdb::Row::new()
                            .with("addresses", "dynamic")
                            .with("dynamic_addresses", format!("{mac} {address}")),
                        _ => ovsdb::Row::new()
                            .with("type", "virtual")
                            .with("options", Datum::map([("virtual-ip", address)])),
                    };
                    world.foreign_port(1, &format!("int-{number}"), columns).await;
                }
                Event::ForeignGone => world.no_foreign_ports().await,
                Event::Restart => world.restart(true).await,
            }
        }
        world.rest().await;
        let mut owners = BTreeMap::<u8, String>::new();
        for (name, hosts) in addresses(&world.contents().await) {
            for host in hosts {
                let twin = owners.insert(host, name.clone());
                assert!(twin.is_none(), "10.0.1.{host} is {name}'s and {twin:?}'s");
            }
        }
        world.end().await;
    });
}

#[tokio::test]
async fn a_pod_may_not_claim_an_address_of_a_foreign_port_and_gets_another_one() {
    let mut world = World::new().await;
    world.happen(Step::Node(1)).await;
    world.rest().await;
    // The address in the annotation of pod 1.
    world
        .foreign_port(
            1,
            "int-n1",
            ovsdb::Row::new().with("addresses", "0a:58:0a:00:09:09 10.0.1.44"),
        )
        .await;
    world.happen(Step::Pod { pod: 1, node: 1 }).await;
    let report = timeout(deadline(), world.controller.reports.recv()).await.unwrap().unwrap();
    let Report::Problem(trouble) = report else { panic!("{report:?}") };
    assert_eq!(trouble.reason, "AddressOfPort");
    assert!(
        trouble.note.contains("10.0.1.44") && trouble.note.contains("int-n1"),
        "{}",
        trouble.note
    );
    world.controller.converged().await;
    let contents = world.contents().await;
    let addresses =
        format!("{:?}", contents.row("Logical_Switch_Port", &port(1)).unwrap().get("addresses"));
    assert!(addresses.contains("10.0.1.") && !addresses.contains("10.0.1.44"), "{addresses}");
    world.end().await;
}

#[tokio::test]
async fn a_pod_keeps_an_address_that_a_foreign_port_gets_later_and_its_owner_is_told() {
    let mut world = World::new().await;
    world.happen(Step::Node(1)).await;
    world.happen(Step::Pod { pod: 1, node: 1 }).await;
    world.rest().await;
    let before = world.contents().await.row("Logical_Switch_Port", &port(1)).cloned();
    world
        .foreign_port(
            1,
            "int-n1",
            ovsdb::Row::new().with("addresses", "0a:58:0a:00:09:09 10.0.1.44"),
        )
        .await;
    for restarts in [false, true] {
        if restarts {
            world.restart(false).await;
        }
        let report = timeout(deadline(), world.controller.reports.recv()).await.unwrap().unwrap();
        let Report::Problem(trouble) = report else { panic!("{report:?}") };
        assert_eq!(
            (trouble.reason, trouble.object),
            ("AddressShared", Object::Pod(pod(1, 1, 0).0))
        );
        assert!(trouble.note.contains("port int-n1 "), "{}", trouble.note);
        world.rest().await;
        assert_eq!(world.contents().await.row("Logical_Switch_Port", &port(1)).cloned(), before);
    }
    world.end().await;
}

/// A foreign router on a node's switch: the switch port's `addresses` is `router`, so its address
/// is that of the router port.
#[tokio::test]
async fn no_pod_gets_the_address_of_a_foreign_router() {
    let mut world = World::new().await;
    world.happen(Step::Node(1)).await;
    world.rest().await;
    let row = ovsdb::Row::new()
        .with("type", "router")
        .with("addresses", "router")
        .with("options", Datum::map([("router-port", "theirs")]));
    world.foreign_port(1, "to-theirs", row).await;
    world.foreign_router("theirs", "0a:58:0a:00:09:09", "10.0.1.3/24").await;
    world.happen(Step::Pod { pod: 2, node: 1 }).await;
    world.rest().await;
    let ports = addresses(&world.contents().await);
    assert_eq!(ports[&port(2)], [4], "{ports:?}");
    world.end().await;
}

/// A foreign port with the name of a pod's port becomes the pod's, so its address is not in the
/// pod's way.
#[tokio::test]
async fn a_port_of_a_pods_name_is_not_in_the_pods_own_way() {
    let mut world = World::new().await;
    world.happen(Step::Node(1)).await;
    world.rest().await;
    world
        .foreign_port(
            1,
            &port(1),
            ovsdb::Row::new().with("addresses", "0a:58:0a:00:01:2c 10.0.1.44"),
        )
        .await;
    world.happen(Step::Pod { pod: 1, node: 1 }).await;
    world.rest().await;
    assert!(world.controller.reports.try_recv().is_err());
    world.end().await;
}

/// A switch that has no node's name is another network, of another system in the same database.
#[tokio::test]
async fn a_port_of_a_switch_that_is_no_nodes_is_in_nobodys_way() {
    let mut world = World::new().await;
    world.happen(Step::Node(1)).await;
    world.rest().await;
    world.foreign_switch("tenant").await;
    world
        .foreign_port_on(
            "tenant",
            "vm",
            ovsdb::Row::new().with("addresses", "0a:58:0a:00:09:09 10.0.1.3"),
        )
        .await;
    world.happen(Step::Pod { pod: 2, node: 1 }).await;
    world.rest().await;
    let ports = addresses(&world.contents().await);
    assert_eq!(ports[&port(2)], [3], "{ports:?}");
    world.end().await;
}
