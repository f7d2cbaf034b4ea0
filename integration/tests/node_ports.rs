//! Node ports while backends, the node's server and its rules come and go, and that nothing of them stays on a
//! node that is cleaned up.

#[path = "support/api.rs"]
mod api;
#[path = "support/managed.rs"]
mod managed;
#[path = "support/site.rs"]
mod site;

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use integration::{
    Lab, eventually, executable,
    traffic::{Echo, End, Flow},
    world::Machine,
};
use oracle::world::{
    self as model, AddressType, Endpoint, EndpointPort, EndpointSlice, Protocol, Service, ServicePort,
    ServiceType, TrafficPolicy,
};

use site::{Gateway, KEPT, Says, Site, blueprint};

const CLIENT: End<'_> = End::World(Machine::Client);
/// Often enough that a connection that ends is noticed.
const OFTEN: Duration = Duration::from_millis(200);
/// Where the backend of the lasting connection listens, and the node port that leads to it.
const TARGET: u16 = 9000;
const NODE_PORT: u16 = 31_900;
const CLUSTER_IP: &str = "10.96.0.12";
const PORT_NAME: &str = "echo";

/// Tells of the Service `lasting` with one port and no endpoints yet.
fn announce(site: &Site<'_>, protocol: Protocol, external_traffic_policy: TrafficPolicy) {
    let port = ServicePort {
        name: Some(PORT_NAME),
        protocol,
        port: TARGET,
        target_port: Some(TARGET),
        node_port: Some(NODE_PORT),
    };
    let service = Service {
        kind: ServiceType::NodePort,
        external_traffic_policy,
        ..Service::named("lasting", &[CLUSTER_IP], vec![port])
    };
    let world = model::World { services: vec![service], ..model::World::default() };
    world.manifests().services.into_iter().for_each(|object| site.api.put(object));
}

/// Tells of the Service's backends, each with a port of its own: so each has a slice. None empties a slice.
fn serve(site: &Site<'_>, protocol: Protocol, backends: [(model::Pod, Option<u16>); 2]) {
    let slices = backends.map(|(pod, port)| EndpointSlice {
        name: format!("lasting-{}", pod.node),
        address_type: AddressType::Ipv4,
        ports: vec![EndpointPort {
            name: Some(PORT_NAME),
            protocol: Some(protocol),
            port: port.or(Some(TARGET)),
        }],
        endpoints: port.map(|_| Endpoint::of(&pod)).into_iter().collect(),
        ..EndpointSlice::of("lasting", 1, Vec::new())
    });
    let world = model::World { slices: slices.into(), ..model::World::default() };
    world.manifests().slices.into_iter().for_each(|object| site.api.put(object));
}

/// A UDP Service whose backend is on the first node, and then another one on the second.
struct Moving<'l> {
    site: Site<'l>,
    /// Where the backends listen.
    ports: [u16; 2],
    /// The backends.
    first: Option<Echo>,
    _second: Echo,
}

impl<'l> Moving<'l> {
    /// The first backend answers the clients: one outside at a node port of the second node, and that node itself.
    fn start(lab: &'l Lab) -> Result<Self> {
        let site = Site::start(lab, Gateway::None)?;
        announce(&site, Protocol::Udp, TrafficPolicy::Cluster);
        let [here, there] =
            [&site.here, &site.there].map(|pod| lab.echo(&End::Pod(pod), Site::of_pod(pod)[0]));
        let (first, second) = (here?, there?);
        let ports = [&first, &second].map(|echo| echo.address.port());
        let moving = Self { site, ports, first: Some(first), _second: second };
        moving.serve(0);
        eventually("the first backend answers", site::SOON, || {
            let flows = moving.flows()?;
            lab.nodes[1].shell("sleep 0.2")?;
            for flow in flows {
                let echoes = flow.stop()?;
                ensure!(echoes.received > 0, "{echoes:?}");
            }
            Ok(())
        })?;
        Ok(moving)
    }

    /// Tells of that one of the backends, and of no other.
    fn serve(&self, which: usize) {
        let backends = [0, 1].map(|number: usize| {
            let port = (number == which).then(|| self.ports[number]);
            (model::Pod { node: u8::try_from(number + 1).expect("1 or 2"), host: 3 }, port)
        });
        serve(&self.site, Protocol::Udp, backends);
    }

    /// A client that never pauses, which keeps an entry of connection tracking alive for ever, of each kind.
    fn flows(&self) -> Result<[Flow; 2]> {
        let lab = self.site.lab;
        let node = &lab.nodes[1];
        let outside = lab.flow_to(&CLIENT, SocketAddr::new(lab.world().of_node(node)[0], NODE_PORT))?;
        Ok([outside, lab.flow_to(&End::Node(node), SocketAddr::new(CLUSTER_IP.parse()?, TARGET))?])
    }
}

#[test]
fn udp_clients_are_served_by_another_backend_when_their_own_is_gone() {
    blueprint().test(|lab| {
        let mut moving = Moving::start(lab)?;
        let flows = moving.flows()?;
        lab.nodes[1].shell("sleep 1")?;
        moving.first = None;
        moving.serve(1);
        lab.nodes[1].shell("sleep 4")?;
        for flow in flows {
            let echoes = flow.stop()?;
            let silent = echoes.silence();
            ensure!(silent < Duration::from_secs(1), "silent for {silent:?}: {echoes:?}");
            println!("silent for {silent:?}");
        }
        Ok(())
    });
}

/// A server sees changes, and it was not there for this one.
#[test]
fn udp_clients_find_the_backend_that_replaced_theirs_while_the_node_had_no_server() {
    blueprint().test(|lab| {
        let node = &lab.nodes[1];
        let mut moving = Moving::start(lab)?;
        let flows = moving.flows()?;
        node.shell("sleep 1")?;
        node.server.kill()?;
        moving.first = None;
        let without = Instant::now();
        moving.serve(1);
        node.shell("sleep 1")?;
        node.start_server()?;
        managed::ready(node)?;
        let without = without.elapsed();
        node.shell("sleep 4")?;
        for flow in flows {
            let echoes = flow.stop()?;
            let silent = echoes.silence();
            ensure!(
                silent < without + Duration::from_secs(1),
                "silent for {silent:?}, without a server for {without:?}: {echoes:?}"
            );
            println!("silent for {silent:?}, without a server for {without:?}");
        }
        Ok(())
    });
}

#[test]
fn restarts_end_no_connection_removed_rules_come_back_and_a_clean_node_serves_nothing() {
    blueprint().test(|lab| {
        let node = &lab.nodes[1];
        let (world, client) = (lab.world(), lab.world().addresses(Machine::Client));
        let site = Site::start(lab, Gateway::None)?;
        announce(&site, Protocol::Tcp, TrafficPolicy::Local);
        let [first, second] = [1, 2].map(|node| model::Pod { node, host: 3 });
        serve(&site, Protocol::Tcp, [(first, None), (second, Some(TARGET))]);
        let ports: Vec<(SocketAddr, IpAddr)> = world
            .of_node(node)
            .into_iter()
            .map(|ip| SocketAddr::new(ip, KEPT.node_port(Says::Client)))
            .zip(client.iter().copied())
            .collect();
        let keeps_clients = |when: &str| site.answers(when, &CLIENT, &ports);
        keeps_clients("node ports keep the client's address")?;

        let backend = Site::of_pod(&site.there)[0];
        let _echo = lab.tcp_echo(&End::Pod(&site.there), SocketAddr::new(backend, TARGET))?;
        let to = SocketAddr::new(world.of_node(node)[0], NODE_PORT);
        let connection = eventually("a connection begins", site::SOON, || lab.drip(&CLIENT, to, OFTEN))?;
        let peers = || node.run_in_pod(&site.there, ["ss", "-Htn", "state", "established"]);
        let seen = peers()?;
        ensure!(seen.contains(&client[0].to_string()), "the backend sees another client: {seen}");

        node.server.kill()?;
        keeps_clients("node ports answer without a server")?;
        node.start_server()?;
        managed::ready(node)?;
        keeps_clients("node ports answer after the restart")?;
        let kept = connection.stop().context("the connection that lasted")?;
        ensure!(kept.slowest < 10_000, "{kept:?}");

        // What is under way then may end: the kernel translates nothing until the rules are back.
        node.run(["nft", "flush", "ruleset"])?;
        keeps_clients("node ports answer after another program removed all rules of the node")?;

        node.server.stop()?;
        let ovnkube = executable::under_test(executable::SERVER)?;
        let clean = || node.run([ovnkube.as_os_str(), "--cleanup-node".as_ref(), node.name.as_ref()]);
        let said = clean()?;
        ensure!(said.contains("removed the nftables table inet ovn-kubernetes"), "{said}");
        let said = clean()?;
        ensure!(said.contains("there is no nftables table"), "{said}");
        // It was the rules that led there.
        site.nothing_answers(&CLIENT, &ports.iter().map(|(to, _)| *to).collect::<Vec<_>>())
    });
}
