//! Law 5 for Services: a change costs what it concerns, however many other Services there are.

use std::{path::PathBuf, time::Duration};

use contract::names::{ServiceKey, SliceKey};
use controller::{
    kinds::node::object::Node,
    problem::Family,
    rows::load_balancer::Protocol,
    watch_event::{Seen, WatchEvent},
};
use kubeapi::services::{
    Condition, Endpoint, Hints, Service, ServicePort, Slice, SlicePort, Traffic,
};
use ovsdb::Endpoint as Database;
use testkit::proxy::Proxy;

use crate::{
    cluster::{all_nodes, all_pods, config, node, node_name},
    cost::{computed, median},
    database::Northbound,
    policies::objects::no_policies,
    running::Running,
};

const NODES: u32 = 20;
const FEW: u32 = 100;
const MANY: u32 = 2_000;
/// Services with node ports, of both clusters: the last ones. They alone depend on nodes.
const NODE_PORTS: u32 = 5;
/// Events of each kind: an odd number, many enough for a median.
const EVENTS: u32 = 21;
/// Services of each kind that depends on nodes.
const OF_EACH: u32 = 250;
/// Ports of the Service with many.
const PORTS: u16 = 1000;

/// A cluster with many Services, of which some change.
struct Cluster {
    services: u32,
    controller: Running,
    proxy: Proxy,
    _northbound: Northbound,
}

/// What an event costs: keys that were compared, rows that were written, bytes that were sent to
/// the database, each on average, and the median of the CPU time.
#[derive(Debug)]
struct Cost {
    keys: f64,
    rows: f64,
    bytes: f64,
    time: Duration,
}

impl Cluster {
    async fn of(services: u32) -> Self {
        let all = (0..services).map(|number| (key(number), service(number, services, 0)));
        Self::with(all.collect(), (0..services).map(|number| slice(number, 0)).collect()).await
    }

    async fn with(all: Vec<(ServiceKey, Service)>, slices: Vec<(SliceKey, Slice)>) -> Self {
        let services = u32::try_from(all.len()).unwrap();
        let northbound = Northbound::start();
        let Database::Unix(socket) = northbound.endpoint() else { panic!("a unix socket") };
        let proxied = PathBuf::from(format!("{}.proxied", socket.display()));
        let proxy = Proxy::start(proxied.clone(), socket).unwrap();
        let mut controller = Running::start(Database::Unix(proxied), config());
        controller.observe(all_nodes((1..=NODES).map(node)));
        controller.observe(all_pods([]));
        controller.observe(WatchEvent::Services(Seen::All(all)));
        controller.observe(WatchEvent::Slices(Seen::All(slices)));
        no_policies().into_iter().for_each(|list| controller.observe(list));
        controller.converged().await;
        Self { services, controller, proxy, _northbound: northbound }
    }

    /// Waits until an event is over: it is of one key at least, and nothing is dirty any more.
    /// Returns the CPU time.
    async fn happen(&self, event: WatchEvent) -> Duration {
        let settled = self.controller.settled();
        let begun = computed();
        self.controller.observe(event);
        self.controller.settles_after(settled).await;
        computed() - begun
    }

    fn counted(&self) -> [f64; 3] {
        [
            self.controller.settled() as f64,
            self.controller.counted("ovnkube_controller_nb_rows_written_total"),
            self.proxy.requested() as f64,
        ]
    }
}

fn key(number: u32) -> ServiceKey {
    ServiceKey::new("shop", &format!("web-{number:06}")).unwrap()
}

fn service(number: u32, of: u32, generation: u32) -> Service {
    let node_port = (number >= of - NODE_PORTS).then(|| 30_000 + u16::try_from(number).unwrap());
    let [_, _, high, low] = number.to_be_bytes();
    Service {
        uid: format!("uid-{number}").into(),
        cluster_ips: [[172, 16, high, low].into()].into(),
        ports: [ServicePort { node_port, ..port(80) }].into(),
        affinity: (generation % 2 == 1).then_some(60),
        ..Service::default()
    }
}

fn port(port: u16) -> ServicePort {
    ServicePort {
        name: Some(format!("p{port}").into()),
        protocol: Protocol::Tcp,
        port,
        target: None,
        node_port: None,
    }
}

/// The slice with five endpoints; one of them differs by generation.
fn slice(number: u32, generation: u32) -> (SliceKey, Slice) {
    let endpoint = |place: u32| {
        let node = 1 + (number + place) % NODES;
        let host = if place == 0 { 200 + generation } else { 10 + place };
        Endpoint {
            address: format!("10.0.{node}.{host}").parse().unwrap(),
            condition: Condition::Ready,
            node: Some(node_name(node)),
            hints: None,
        }
    };
    let slice = Slice {
        service: Some(key(number)),
        family: Some(Family::V4),
        endpoints_count: 5,
        ports: [SlicePort { name: Some("p80".into()), protocol: Protocol::Tcp, port: Some(8080) }]
            .into(),
        endpoints: (0..5).map(endpoint).collect(),
        triggered: None,
        unusable: None,
    };
    (SliceKey::new("shop", &format!("web-{number:06}-x7k2p")).unwrap(), slice)
}

/// One endpoint of a Service is another one.
fn of_slice(_: &Cluster, number: u32) -> WatchEvent {
    WatchEvent::Slices(Seen::Applied(slice(number, number % 50)))
}

/// A field of a Service is another one.
fn of_service(cluster: &Cluster, number: u32) -> WatchEvent {
    WatchEvent::Services(Seen::Applied((key(0), service(0, cluster.services, number))))
}

/// A node has another chassis, which no Service depends on.
fn of_node_alone(_: &Cluster, number: u32) -> WatchEvent {
    let node = Node { chassis: Some(format!("another-{number}")), ..node(1) };
    WatchEvent::Nodes(Seen::Applied(node))
}

/// A node has another address, at which node ports are.
fn of_node_ports(_: &Cluster, number: u32) -> WatchEvent {
    let address = std::net::IpAddr::from([192, 168, 77, u8::try_from(number).unwrap()]);
    WatchEvent::Nodes(Seen::Applied(Node { host_addresses: vec![address], ..node(2) }))
}

/// The clusters take turns, to be slowed down alike by a busy machine.
async fn costs<const CLUSTERS: usize>(
    mut clusters: [&mut Cluster; CLUSTERS],
    event: impl Fn(&Cluster, u32) -> WatchEvent,
) -> [Cost; CLUSTERS] {
    let mut took = [const { Vec::new() }; CLUSTERS];
    let before = clusters.each_ref().map(|cluster| cluster.counted());
    for number in 1..=EVENTS {
        for (cluster, took) in clusters.iter_mut().zip(&mut took) {
            let event = event(cluster, number);
            took.push(cluster.happen(event).await);
        }
    }
    let mut each = clusters.iter().zip(before).zip(took).map(|((cluster, before), took)| {
        let now = cluster.counted();
        let [keys, rows, bytes] =
            [0, 1, 2].map(|place| (now[place] - before[place]) / f64::from(EVENTS));
        Cost { keys, rows, bytes, time: median(took) }
    });
    std::array::from_fn(|_| each.next().expect("one of each cluster"))
}

/// Checks that an event costs no more than this, and the same in both clusters.
async fn compare(
    what: &str,
    clusters: [&mut Cluster; 2],
    event: impl Fn(&Cluster, u32) -> WatchEvent,
    most: [f64; 3],
) {
    let [few, many] = costs(clusters, event).await;
    eprintln!("{what}: {few:?}\n{what}: {many:?}");
    for cost in [&few, &many] {
        let [keys, rows, bytes] = most;
        assert!(cost.keys <= keys && cost.rows <= rows && cost.bytes <= bytes, "{what}: {cost:?}");
    }
    // Caches are cold more often among many.
    assert!(many.time < few.time * 2 + Duration::from_micros(200), "{what}: {few:?} {many:?}");
}

#[tokio::test]
async fn law_5_a_change_of_a_service_costs_the_same_among_a_hundred_and_among_thousands() {
    let (mut few, mut many) = (Cluster::of(FEW).await, Cluster::of(MANY).await);
    let ports = f64::from(NODE_PORTS);
    compare("an EndpointSlice", [&mut few, &mut many], of_slice, [1.0, 1.0, 700.0]).await;
    // Each second change gives it an affinity, whose list of backends has 256 lots.
    compare("a Service", [&mut few, &mut many], of_service, [1.0, 1.0, 3000.0]).await;
    compare("a node's chassis", [&mut few, &mut many], of_node_alone, [1.0, 3.0, 2000.0]).await;
    let of_address = [1.0 + ports, ports, 700.0 * ports];
    compare("a node's address", [&mut few, &mut many], of_node_ports, of_address).await;
}

/// A Service that depends on nodes: on where its endpoints are, on a zone, on addresses, or by an
/// endpoint that is a host.
fn per_node(number: u32) -> ((ServiceKey, Service), (SliceKey, Slice)) {
    // The last ones have node ports, here of none.
    let mut of_nodes = service(number, u32::MAX, 0);
    let (slice_key, mut of_slice) = slice(number, 0);
    match number % 4 {
        0 => of_nodes.internal = Traffic::Local,
        1 => {
            let hints = Hints { zones: ["east".into()].into(), nodes: [].into() };
            of_slice
                .endpoints
                .iter_mut()
                .for_each(|endpoint| endpoint.hints = Some(Box::new(hints.clone())));
        }
        2 => of_nodes.ports[0].node_port = Some(30_000 + u16::try_from(number).unwrap()),
        _ => of_slice.endpoints[0].address = crate::cluster::host(1),
    }
    ((key(number), of_nodes), (slice_key, of_slice))
}

/// What a node must cost among a thousand Services that depend on nodes. While it has no subnet,
/// nothing. When it gets one, each Service: its switch has the Service's load balancer from then
/// on. Another address, the Services with node ports: each has one at that address. Another zone,
/// those with hints for zones. Another chassis, none.
#[tokio::test]
async fn law_5_a_node_costs_the_services_whose_load_balancers_it_changes() {
    let of_all = 4 * OF_EACH;
    let (mut services, mut slices): (Vec<_>, Vec<_>) = (0..of_all).map(per_node).unzip();
    // Not one of them: a change of it is one key and one row, and ends each measurement.
    services.push((key(of_all), service(of_all, u32::MAX, 0)));
    slices.push(slice(of_all, 0));
    let cluster = Cluster::with(services, slices).await;
    let all = f64::from(of_all);
    let each = f64::from(OF_EACH);
    let name = node_name(NODES + 1);
    let joined = node(NODES + 1);
    let addresses = vec!["192.168.99.9".parse().unwrap()];
    let moved = Node { host_addresses: addresses, ..joined.clone() };
    let in_zone = Node { topology_zone: Some("east".into()), ..moved.clone() };
    let chassis = Node { chassis: Some("another".to_owned()), ..in_zone.clone() };
    let applied = |node| WatchEvent::Nodes(Seen::Applied(node));
    // The node's own key counts where its rows follow from the change, and that of its gateway when
    // it goes. The second limit is rows: those of a node, and for a Service its own load balancer
    // or the link to one.
    let events = [
        ("a new node", applied(Node::named(&name)), 1.0, 0.0),
        ("its subnet", applied(joined), all + 1.0, all + 20.0),
        ("its address", applied(moved), each, each),
        ("its zone", applied(in_zone), each, 2.0 * each),
        ("its chassis", applied(chassis), 1.0, 3.0),
        ("it goes", WatchEvent::Nodes(Seen::Deleted(name)), all + 2.0, 2.0 * each + 20.0),
    ];
    for (generation, (what, event, keys, rows)) in (1..).zip(events) {
        let [keys_before, rows_before, _] = cluster.counted();
        cluster.controller.observe(event);
        cluster.happen(WatchEvent::Slices(Seen::Applied(slice(of_all, generation)))).await;
        let [keys_after, rows_after, _] = cluster.counted();
        let (compared, written) = (keys_after - keys_before - 1.0, rows_after - rows_before - 1.0);
        eprintln!("{what}: {compared} keys, {written} rows");
        assert!(compared == keys && written <= rows, "{what}: {compared} keys, {written} rows");
    }
}

/// One entry of a large map is one mutation, not the map.
#[tokio::test]
async fn one_more_port_of_a_service_with_a_thousand_costs_one_entry() {
    let mut cluster = Cluster::of(FEW).await;
    let with = |ports: u16| {
        let service = Service {
            ports: (0..ports).map(|number| port(1000 + number)).collect(),
            ..service(0, FEW, 0)
        };
        WatchEvent::Services(Seen::Applied((key(0), service)))
    };
    cluster.controller.observe(with(PORTS));
    cluster.controller.reaches("work", |progress| !progress.converged).await;
    cluster.controller.converged().await;
    let [cost] =
        costs([&mut cluster], |_, number| with(PORTS + u16::try_from(number).unwrap())).await;
    eprintln!("{cost:?}");
    assert!(cost.rows <= 1.0 && cost.bytes < 700.0, "{cost:?}");
}
