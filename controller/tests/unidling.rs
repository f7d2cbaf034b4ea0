//! Connections to idled Services, on real databases: each event of an ovn-controller is reported once, and
//! its row goes.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use contract::names::ServiceKey;
use controller::{
    northbound,
    reconcile::Report,
    unidling::{self, Unidling},
};
use kubeapi::election::Leadership;
use ovsdb::{Datum, Options, Row, Transaction, Uuid, Where};
use server::Server;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

/// Far longer than two local databases take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Both databases, and the reports that come of them.
struct World {
    northbound: Server,
    southbound: Server,
    reports: UnboundedReceiver<Report>,
}

impl World {
    async fn start(leadership: Leadership) -> Self {
        let northbound = Server::northbound().await;
        let southbound = Server::southbound().await;
        let (reports, reported) = unbounded_channel();
        let (client, events) = unidling::connect(southbound.endpoints(), Options::default());
        let unidling = Unidling {
            events,
            southbound: client,
            northbound: northbound::connect(northbound.endpoints(), Options::default()).0,
            leadership,
            reports,
        };
        tokio::spawn(unidling.run());
        Self { northbound, southbound, reports: reported }
    }

    /// A load balancer with these `external_ids`.
    async fn load_balancer(&self, ids: [(&'static str, &str); 2]) -> Uuid {
        let mut transaction = Transaction::new();
        let row = Row::new().with("name", "x").with("external_ids", Datum::map(ids));
        let row = transaction.insert("Load_Balancer", row);
        self.northbound.connection.transact(transaction).await.unwrap().uuid(&row)
    }

    /// What ovn-controller writes for a packet to a load balancer without backends.
    async fn packet(&self, load_balancer: &str) {
        let info = [("load_balancer", load_balancer), ("protocol", "tcp"), ("vip", "10.96.0.9:80")];
        let row = Row::new().with("event_type", "empty_lb_backends").with("event_info", Datum::map(info));
        let mut transaction = Transaction::new();
        transaction.insert("Controller_Event", row);
        self.southbound.connection.transact(transaction).await.unwrap();
    }

    async fn events(&self) -> usize {
        let mut query = Transaction::new();
        let rows = query.select("Controller_Event", Where::all(), &["event_type"]);
        self.southbound.connection.transact(query).await.unwrap().rows(rows).len()
    }

    /// Waits until no event is left.
    async fn answered(&self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.events().await > 0 {
            assert!(tokio::time::Instant::now() < deadline, "the event is still there");
            tokio::task::yield_now().await;
        }
    }

    async fn report(&mut self) -> Report {
        timeout(PATIENCE, self.reports.recv()).await.expect("no report").unwrap()
    }
}

const OF_SERVICE: [(&str, &str); 2] = [("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", "shop/cart")];

fn cart() -> ServiceKey {
    "shop/cart".parse().unwrap()
}

#[tokio::test]
async fn a_packet_to_an_idled_service_asks_for_its_pods_and_the_next_one_again() {
    let mut world = World::start(Leadership::always()).await;
    let load_balancer = world.load_balancer(OF_SERVICE).await.to_string();
    for _ in 0..2 {
        world.packet(&load_balancer).await;
        let report = world.report().await;
        assert!(matches!(&report, Report::NeedPods(service) if *service == cart()), "{report:?}");
        world.answered().await;
    }
}

/// An event whose Service went in the meantime would stay for ever, and ovn-controller would report nothing
/// more of its address.
#[tokio::test]
async fn events_of_nothing_that_is_there_go_without_a_report() {
    let mut world = World::start(Leadership::always()).await;
    let foreign = world.load_balancer([("k8s.ovn.org/kind", "x"), ("owner", "shop/cart")]).await.to_string();
    for load_balancer in ["00000000-0000-0000-0000-000000000001", "nonsense", &foreign] {
        world.packet(load_balancer).await;
    }
    world.answered().await;
    assert!(world.reports.try_recv().is_err());
}

#[tokio::test]
async fn events_wait_for_a_leader() {
    let (leadership, win) = Leadership::waiting();
    let mut world = World::start(leadership).await;
    let load_balancer = world.load_balancer(OF_SERVICE).await.to_string();
    world.packet(&load_balancer).await;
    win();
    let report = world.report().await;
    assert!(matches!(&report, Report::NeedPods(service) if *service == cart()), "{report:?}");
    world.answered().await;
}
