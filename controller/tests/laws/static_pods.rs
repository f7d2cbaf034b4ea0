//! Static pods: the API server only has their mirror pods, each with a UID of its own.

use std::{sync::Arc, time::Duration};

use controller::{
    kinds::pod::object::{Annotated, Pod},
    watch_event::{Seen, WatchEvent},
};
use ovsdb::{Datum, Mutation, Transaction};

use crate::{
    cluster::{all_nodes, all_pods, config, node, node_name, pod_key},
    database::{Contents, Northbound, contents},
    running::Running,
};

/// Longer than a static pod keeps its network without a mirror.
const LONG: Duration = Duration::from_secs(121);

fn mirror(uid: &str, hash: &str) -> Pod {
    Pod { node: Some(node_name(1)), config_hash: Some(Arc::from(hash)), ..Pod::with_uid(uid) }
}

fn appear(controller: &Running, pod: Pod) {
    controller.observe(WatchEvent::Pods(Seen::Applied((pod_key(1), pod))));
}

fn disappear(controller: &Running) {
    controller.observe(WatchEvent::Pods(Seen::Deleted(pod_key(1))));
}

/// The pod's port: its row, addresses and options.
fn port(contents: &Contents) -> Option<(String, String, String)> {
    let ((_, _, uuid), row) = contents.0.iter().find(|((_, name, _), _)| name == "ns1_p1")?;
    Some((
        uuid.to_string(),
        row["addresses"].clone(),
        row.get("options").cloned().unwrap_or_default(),
    ))
}

/// The port of the next mirror pod had another address and `iface-id-ver` than the sandbox, which
/// does not change: the pod lost its network.
#[tokio::test]
async fn law_6_a_static_pod_keeps_its_port_when_its_mirror_is_deleted_and_made_anew() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([(pod_key(1), mirror("mirror-1", "hash"))]));
    controller.converged().await;
    let before = port(&contents(&connection).await);
    assert_eq!(before.as_ref().unwrap().2, "requested-chassis=n1", "{before:?}");
    assert_eq!(&*controller.annotations.recv().await.unwrap().uid, "mirror-1");

    disappear(&controller);
    controller.observe(WatchEvent::Nodes(Seen::Applied(node(2))));
    controller.reaches("work", |progress| !progress.converged).await;
    controller.converged().await;
    assert_eq!(port(&contents(&connection).await), before, "without a mirror");
    appear(&controller, mirror("mirror-2", "hash"));
    let written = controller.annotations.recv().await.unwrap();
    assert_eq!(&*written.uid, "mirror-2");
    assert!(written.annotations().values().any(|text| text.contains("10.0.1.3/24")), "{written:?}");
    controller.converged().await;
    assert_eq!(port(&contents(&connection).await), before, "with the second mirror");

    // And while no controller runs.
    controller.kill().await;
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([(pod_key(1), mirror("mirror-3", "hash"))]));
    controller.converged().await;
    assert_eq!(port(&contents(&connection).await), before, "after a restart");
    assert_eq!(&*controller.annotations.recv().await.unwrap().uid, "mirror-3");
}

#[tokio::test]
async fn a_static_pod_whose_mirror_does_not_come_back_is_gone() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([(pod_key(1), mirror("mirror-1", "hash"))]));
    controller.converged().await;
    disappear(&controller);
    let total = controller.transactions();
    let before = total.get();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(port(&contents(&connection).await).is_some());
    tokio::time::pause();
    tokio::time::advance(LONG).await;
    tokio::time::resume();
    controller.reaches("the removal", |progress| progress.converged && total.get() > before).await;
    assert_eq!(port(&contents(&connection).await), None);
}

/// The file was edited: the kubelet starts another pod under the same name.
#[tokio::test]
async fn a_static_pod_out_of_another_file_is_another_pod() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([(pod_key(1), mirror("mirror-1", "hash"))]));
    controller.converged().await;
    disappear(&controller);
    appear(&controller, mirror("mirror-2", "another hash"));
    controller.reaches("work", |progress| !progress.converged).await;
    controller.converged().await;
    assert_eq!(port(&contents(&connection).await).unwrap().1, "0a:58:0a:00:01:04 10.0.1.4");
}

/// Upstream's controller writes the mirror pod's UID, as its plugin does.
#[tokio::test]
async fn upstreams_port_of_a_static_pod_is_adopted_as_it_is_until_its_mirror_is_another() {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1)]));
    let annotated = |uid: &str| {
        let (_, ordinary) = crate::cluster::pod(1, 1, 0);
        assert!(matches!(ordinary.annotated, Annotated::Network { .. }));
        Pod { annotated: ordinary.annotated, ..mirror(uid, "hash") }
    };
    controller.observe(all_pods([(pod_key(1), annotated("mirror-1"))]));
    controller.converged().await;
    controller.kill().await;
    let mut transaction = Transaction::new();
    let port_row =
        contents(&connection).await.0.keys().find(|(_, name, _)| name == "ns1_p1").unwrap().2;
    transaction.mutate(
        "Logical_Switch_Port",
        port_row,
        vec![Mutation::insert("options", Datum::map([("iface-id-ver", "mirror-1")]))],
    );
    connection.transact(transaction).await.unwrap();

    let mut controller = Running::without_services(northbound.endpoint(), config());
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([(pod_key(1), annotated("mirror-1"))]));
    controller.converged().await;
    assert_eq!(
        (
            controller.transactions().get(),
            port(&contents(&connection).await).unwrap().2.contains("iface-id-ver=mirror-1")
        ),
        (0, true)
    );
    appear(&controller, annotated("mirror-2"));
    controller.reaches("work", |progress| !progress.converged).await;
    controller.converged().await;
    assert!(!port(&contents(&connection).await).unwrap().2.contains("iface-id-ver"));
}
