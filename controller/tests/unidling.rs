//! Connections to idled Services, on real databases: each event of an ovn-controller is reported
//! once, and its row goes.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use contract::names::ServiceKey;
use controller::{
    engine::{northbound, reconcile::Progress},
    unidling::{self, Unidling},
    watch_event::WatchEvent,
};
use kubeapi::election::Leadership;
use ovsdb::{Datum, Options, Row, Transaction, Uuid, Where};
use server::Server;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    time::timeout,
};

/// Far longer than two local databases take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Both databases, and what the controller is told of them.
struct World {
    northbound: Server,
    southbound: Server,
    observations: UnboundedReceiver<WatchEvent>,
    progress: watch::Sender<Progress>,
    /// As the controller's watches have it.
    _observed: UnboundedSender<WatchEvent>,
}

/// Of a controller that may write to the database.
fn own() -> Progress {
    Progress { loaded: true, ever_converged: true, ..Progress::default() }
}

impl World {
    async fn start(leadership: Leadership) -> Self {
        let northbound = Server::northbound().await;
        let southbound = Server::southbound().await;
        let (observed, observations) = unbounded_channel();
        let (progress, progressed) = watch::channel(own());
        let (client, events) = unidling::connect(southbound.endpoints(), Options::default());
        let unidling = Unidling {
            events,
            southbound: client,
            northbound: northbound::connect(northbound.endpoints(), Options::default()).0,
            leadership,
            progress: progressed,
            observations: observed.downgrade(),
        };
        tokio::spawn(unidling.run());
        Self { northbound, southbound, observations, progress, _observed: observed }
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
        let row =
            Row::new().with("event_type", "empty_lb_backends").with("event_info", Datum::map(info));
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

    /// The Service that the controller is told of next.
    async fn told(&mut self) -> ServiceKey {
        match timeout(PATIENCE, self.observations.recv()).await.expect("nothing is told").unwrap() {
            WatchEvent::Connection(service) => service,
            other => panic!("{other:?}"),
        }
    }
}

const OF_SERVICE: [(&str, &str); 2] =
    [("k8s.ovn.org/kind", "Service"), ("k8s.ovn.org/owner", "shop/cart")];

fn cart() -> ServiceKey {
    "shop/cart".parse().unwrap()
}

#[tokio::test]
async fn a_packet_to_an_idled_service_asks_for_its_pods_and_the_next_one_again() {
    let mut world = World::start(Leadership::always()).await;
    let load_balancer = world.load_balancer(OF_SERVICE).await.to_string();
    for _ in 0..2 {
        world.packet(&load_balancer).await;
        assert_eq!(world.told().await, cart());
        world.answered().await;
    }
}

/// An event whose Service went in the meantime would stay for ever, and ovn-controller would report
/// nothing more of its address.
#[tokio::test]
async fn events_of_nothing_that_is_there_go_without_a_report() {
    let mut world = World::start(Leadership::always()).await;
    let foreign =
        world.load_balancer([("k8s.ovn.org/kind", "x"), ("owner", "shop/cart")]).await.to_string();
    for load_balancer in ["00000000-0000-0000-0000-000000000001", "nonsense", &foreign] {
        world.packet(load_balancer).await;
    }
    world.answered().await;
    assert!(world.observations.try_recv().is_err());
}

#[tokio::test]
async fn events_wait_for_a_leader() {
    let (leadership, win) = Leadership::waiting();
    let mut world = World::start(leadership).await;
    let load_balancer = world.load_balancer(OF_SERVICE).await.to_string();
    world.packet(&load_balancer).await;
    win();
    assert_eq!(world.told().await, cart());
    world.answered().await;
}

/// They were deleted by whatever controller led, also by one that was given the databases of
/// another zone or cluster, and was blocked because of that.
#[tokio::test]
async fn events_of_another_zones_database_stay() {
    let mut world = World::start(Leadership::always()).await;
    let load_balancer = world.load_balancer(OF_SERVICE).await.to_string();
    let unknown = Progress { ever_converged: false, ..own() };
    let of_another = Progress { blocked: Some("the database is of zone-7".into()), ..own() };
    for progress in [of_another, unknown] {
        world.progress.send_replace(progress);
        world.packet(&load_balancer).await;
        // A row takes two round trips to be answered. These are more, on the same servers.
        for _ in 0..100 {
            assert_eq!(world.events().await, 1);
        }
        assert!(world.observations.try_recv().is_err());
        world.progress.send_replace(own());
        assert_eq!(world.told().await, cart(), "it waited");
        world.answered().await;
    }
}
