//! The model against examples from Kubernetes' pages, so that it is not wrong in the same way as
//! the product.

use std::net::SocketAddr;

use super::*;
use crate::world::{Ingress, Pod};

/// Two nodes in two zones; on each a pod that answers at port 8080 for the Service `a/web` at
/// 10.96.0.10:80.
fn world() -> World {
    let pods: Vec<Pod> = [1, 2].map(|node| Pod { node, host: 3 }).into();
    let endpoints = pods.iter().map(Endpoint::of).collect();
    World {
        nodes: vec![Node { number: 1, zone: Some("east") }, Node { number: 2, zone: Some("west") }],
        pods,
        services: vec![Service::named("web", &["10.96.0.10"], vec![ServicePort::tcp(80)])],
        slices: vec![EndpointSlice::of("web", 8080, endpoints)],
    }
}

/// What a pod on the node with this number finds at the TCP port.
fn asked(world: &World, node: u8, to: &str) -> Answer {
    let to: SocketAddr = to.parse().unwrap();
    let node = world.nodes.iter().find(|known| known.number == node).unwrap().clone();
    let client =
        Client { pod: world.pods.iter().find(|pod| pod.node == node.number).cloned(), node };
    answer(world, &Probe { client, protocol: Protocol::Tcp, address: to.ip(), port: to.port() })
}

fn one_of(backends: &[&str]) -> Answer {
    Answer::OneOf(backends.iter().map(|backend| backend.parse().unwrap()).collect())
}

const BOTH: [&str; 2] = ["10.244.1.3:8080", "10.244.2.3:8080"];

#[test]
fn an_address_and_port_of_a_service_answer_with_its_endpoints_and_others_do_not() {
    let world = world();
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH));
    assert_eq!(asked(&world, 1, "10.96.0.10:81"), Answer::NoService);
    assert_eq!(asked(&world, 1, "10.96.0.11:80"), Answer::NoService);
}

#[test]
fn a_service_without_endpoints_refuses() {
    let world = World { slices: vec![], ..world() };
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), Answer::Refused);
}

#[test]
fn endpoints_that_are_not_ready_are_left_out_unless_the_service_publishes_them() {
    let mut world = world();
    world.slices[0].endpoints[0].ready = Some(false);
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH[1..]));
    world.services[0].publish_not_ready_addresses = true;
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH));
}

#[test]
fn terminating_endpoints_answer_only_while_no_other_is_ready() {
    let mut world = world();
    let ends = Endpoint {
        ready: Some(false),
        serving: Some(true),
        terminating: Some(true),
        ..Endpoint::default()
    };
    for endpoint in &mut world.slices[0].endpoints {
        *endpoint = Endpoint { address: endpoint.address.clone(), ..ends.clone() };
    }
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH));
    world.slices[0].endpoints[1].ready = Some(true);
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH[1..]));
}

#[test]
fn internal_traffic_stays_on_the_node_where_the_policy_says_so() {
    let mut world = world();
    world.services[0].internal_traffic_policy = TrafficPolicy::Local;
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH[..1]));
    world.slices[0].endpoints.remove(0);
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), Answer::Refused);
    assert_eq!(asked(&world, 2, "10.96.0.10:80"), one_of(&BOTH[1..]));
}

#[test]
fn external_addresses_answer_clients_inside_with_all_endpoints_whatever_the_policy() {
    let mut world = world();
    let service = &mut world.services[0];
    service.kind = ServiceType::LoadBalancer;
    service.external_ips = vec!["203.0.113.1".parse().unwrap()];
    let ingress = |ip: &str, is_proxy| Ingress { ip: ip.parse().unwrap(), is_proxy };
    service.ingress = vec![ingress("198.51.100.1", false), ingress("198.51.100.2", true)];
    service.external_traffic_policy = TrafficPolicy::Local;
    service.internal_traffic_policy = TrafficPolicy::Local;
    assert_eq!(asked(&world, 1, "203.0.113.1:80"), one_of(&BOTH));
    assert_eq!(asked(&world, 1, "198.51.100.1:80"), one_of(&BOTH));
    assert_eq!(asked(&world, 1, "198.51.100.2:80"), Answer::NoService);
}

#[test]
fn node_ports_answer_at_the_addresses_of_the_node_in_the_families_of_the_service() {
    let mut world = world();
    world.services[0].kind = ServiceType::NodePort;
    world.services[0].ports[0].node_port = Some(30_000);
    assert_eq!(asked(&world, 1, "172.30.0.11:30000"), one_of(&BOTH));
    assert_eq!(asked(&world, 1, "[fd00:172:30::11]:30000"), Answer::NoService);
    assert_eq!(asked(&world, 1, "172.30.0.11:80"), Answer::NoService);
}

#[test]
fn each_slice_says_the_port_of_its_own_endpoints() {
    let mut world = world();
    let second = world.slices[0].endpoints.remove(1);
    world.slices.push(EndpointSlice::of("web", 9090, vec![second]));
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&["10.244.1.3:8080", "10.244.2.3:9090"]));
    // Without a number, the Service says it.
    world.slices[1].ports[0].port = None;
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&["10.244.1.3:8080", "10.244.2.3:80"]));
    world.services[0].ports[0].target_port = Some(7070);
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&["10.244.1.3:8080", "10.244.2.3:7070"]));
}

#[test]
fn hints_choose_only_if_every_ready_endpoint_has_one_and_one_is_for_the_client() {
    let mut world = world();
    let endpoints = &mut world.slices[0].endpoints;
    endpoints[0].for_zones = vec!["east"];
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH));
    world.slices[0].endpoints[1].for_zones = vec!["north"];
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH[..1]));
    assert_eq!(asked(&world, 2, "10.96.0.10:80"), one_of(&BOTH));
    for (endpoint, node) in world.slices[0].endpoints.iter_mut().zip(["node2", "node1"]) {
        endpoint.for_nodes = vec![node.to_owned()];
    }
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH[1..]));
}

#[test]
fn services_of_other_proxies_and_without_addresses_are_not_served() {
    let served = world();
    for label in [PROXY_NAME, HEADLESS] {
        let mut world = served.clone();
        world.services[0].labels = vec![label];
        assert_eq!(asked(&world, 1, "10.96.0.10:80"), Answer::NoService, "{label}");
    }
    let mut world = served;
    world.services[0].external_ips = vec!["203.0.113.1".parse().unwrap()];
    world.services[0].cluster_ips = vec![];
    assert_eq!(asked(&world, 1, "203.0.113.1:80"), Answer::NoService);
}

/// A Service whose pod answers at port 9090, and which wants the address.
fn rival(name: &str, created: u8, cluster_ip: &str) -> (Service, EndpointSlice) {
    let service =
        Service { created, ..Service::named(name, &[cluster_ip], vec![ServicePort::tcp(80)]) };
    (service, EndpointSlice::of(name, 9090, vec![Endpoint::of(&Pod { node: 1, host: 3 })]))
}

#[test]
fn of_services_with_the_same_address_the_one_that_has_it_by_the_api_server_answers_then_the_oldest()
{
    let mut world = world();
    let (mut thief, slice) = rival("a", 0, "10.96.0.66");
    thief.external_ips = vec!["10.96.0.10".parse().unwrap(), "203.0.113.1".parse().unwrap()];
    world.services.push(thief);
    world.slices.push(slice);
    world.services[0].created = 1;
    world.services[0].external_ips = vec!["203.0.113.1".parse().unwrap()];
    assert_eq!(asked(&world, 1, "10.96.0.10:80"), one_of(&BOTH));
    assert_eq!(asked(&world, 1, "203.0.113.1:80"), one_of(&["10.244.1.3:9090"]));
    world.services[0].ingress =
        vec![Ingress { ip: "203.0.113.1".parse().unwrap(), is_proxy: false }];
    assert_eq!(asked(&world, 1, "203.0.113.1:80"), one_of(&BOTH));
}

#[test]
fn external_ips_of_the_cluster_itself_answer_nothing() {
    let mut world = world();
    let own = ["10.96.0.99", "10.244.2.77", "172.30.0.11", "100.64.0.2"];
    world.services[0].external_ips = own.iter().map(|text| text.parse().unwrap()).collect();
    for own in own {
        assert_eq!(asked(&world, 2, &format!("{own}:80")), Answer::NoService, "{own}");
    }
}
