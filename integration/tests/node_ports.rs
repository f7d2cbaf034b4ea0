//! Node ports while the node's server is gone or new, and that nothing of them stays on a node that is cleaned up.

#[path = "support/api.rs"]
mod api;
#[path = "support/managed.rs"]
mod managed;
#[path = "support/site.rs"]
mod site;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use integration::{eventually, executable, traffic::End, world::Machine};
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

/// Tells of a Service with `externalTrafficPolicy: Local` whose only backend is the site's, in IPv4.
fn serve_lasting_connections(site: &Site<'_>) {
    let port = ServicePort {
        name: Some("echo"),
        protocol: Protocol::Tcp,
        port: TARGET,
        target_port: Some(TARGET),
        node_port: Some(NODE_PORT),
    };
    let backend = model::Pod { node: 2, host: 3 };
    let world = model::World {
        nodes: Vec::new(),
        pods: Vec::new(),
        services: vec![Service {
            kind: ServiceType::NodePort,
            external_traffic_policy: TrafficPolicy::Local,
            ..Service::named("lasting", &["10.96.0.12"], vec![port])
        }],
        slices: vec![EndpointSlice {
            name: "lasting-v4".to_owned(),
            address_type: AddressType::Ipv4,
            ports: vec![EndpointPort {
                name: Some("echo"),
                protocol: Some(Protocol::Tcp),
                port: Some(TARGET),
            }],
            endpoints: vec![Endpoint::of(&backend)],
            ..EndpointSlice::of("lasting", 1, Vec::new())
        }],
    };
    let objects = world.manifests();
    [objects.services, objects.slices].concat().into_iter().for_each(|object| site.api.put(object));
}

#[test]
fn restarts_end_no_connection_and_keep_clients_addresses_and_a_clean_node_serves_nothing() {
    blueprint().test(|lab| {
        let node = &lab.nodes[1];
        let (world, client) = (lab.world(), lab.world().addresses(Machine::Client));
        let site = Site::start(lab, Gateway::None)?;
        serve_lasting_connections(&site);
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
