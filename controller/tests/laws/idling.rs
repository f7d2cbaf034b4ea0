//! Services without pods: a connection to one that is idled is an event, and it is refused again
//! some time after that.

use std::{collections::BTreeMap, time::Duration};

use controller::{
    config::ClusterConfig,
    engine::reconcile::Report,
    rows::load_balancer::Protocol,
    watch_event::{Seen, WatchEvent},
};
use kubeapi::services::{Service, ServicePort};
use ovsdb::{Connection, Transaction, Where};

use crate::{
    cluster::{all_nodes, all_pods, config, node},
    database::Northbound,
    policies::objects::no_policies,
    running::{Running, deadline},
    services::service_key,
};

/// Upstream's time, and some more.
const LONG: Duration = Duration::from_secs(31);

fn service(idled: bool) -> WatchEvent {
    let port = ServicePort {
        name: None,
        protocol: Protocol::Tcp,
        port: 80,
        target: None,
        node_port: None,
    };
    let service = Service {
        uid: "u".into(),
        cluster_ips: ["172.16.0.1".parse().unwrap()].into(),
        ports: [port].into(),
        idled,
        // A value that is in the row: a test waits for a row that changes.
        affinity: (!idled).then_some(60),
        ..Service::default()
    };
    WatchEvent::Services(Seen::Applied((service_key(0), service)))
}

/// Whether a connection is an event, and whether it is refused.
async fn options(connection: &Connection) -> [bool; 2] {
    let mut query = Transaction::new();
    let rows = query.select("Load_Balancer", Where::all(), &["options"]);
    let outcome = connection.transact(query).await.unwrap();
    let options: BTreeMap<String, String> = outcome.rows(rows)[0].map("options");
    ["event", "reject"].map(|key| options[key] == "true")
}

#[tokio::test]
async fn a_service_that_is_idled_no_longer_refuses_connections_only_after_its_pods_had_time_to_start()
 {
    let northbound = Northbound::start();
    let connection = northbound.open().await;
    let mut controller =
        Running::start(northbound.endpoint(), ClusterConfig { empty_lb_events: true, ..config() });
    controller.observe(all_nodes([node(1)]));
    controller.observe(all_pods([]));
    controller.observe(WatchEvent::Services(Seen::All(Vec::new())));
    controller.observe(WatchEvent::Slices(Seen::All(Vec::new())));
    no_policies().into_iter().for_each(|list| controller.observe(list));
    controller.converged().await;
    let settled = controller.settled();
    controller.observe(service(true));
    controller.settles_after(settled).await;
    assert_eq!(options(&connection).await, [true, false]);
    // `kubectl describe` finds the event by the UID. A Service that is not there needs no pods.
    controller.observe(WatchEvent::Connection(service_key(1)));
    controller.observe(WatchEvent::Connection(service_key(0)));
    let told = async {
        loop {
            if let Report::NeedPods { service, uid } = controller.reports.recv().await.unwrap() {
                return (service, uid);
            }
        }
    };
    let told = tokio::time::timeout(deadline(), told).await.expect("the connection is told");
    assert_eq!(told, (service_key(0), "u".into()));
    let settled = controller.settled();
    controller.observe(service(false));
    controller.settles_after(settled).await;
    assert_eq!(options(&connection).await, [true, false]);
    let settled = controller.settled();
    tokio::time::pause();
    tokio::time::advance(LONG).await;
    tokio::time::resume();
    controller.settles_after(settled).await;
    assert_eq!(options(&connection).await, [false, true]);
}
