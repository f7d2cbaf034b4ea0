//! Addresses of Services whose connections the host's kernel translates. Pure.
//!
//! | address | of connections | why OVN cannot |
//! |---|---|---|
//! | node port, at any address of the host | from outside, and from the host | they are for the host |
//! | `externalIPs`, load balancer's | from outside, and from the host | they do not come from a pod |
//! | the cluster's, with endpoints on hosts | from the host | its answer would seem to come from the host itself |
//!
//! A connection goes to the cluster's address of the Service, and OVN chooses the endpoint: with
//! affinity, hints, and a refusal if there is none. Where an endpoint is a host, the kernel
//! chooses, by the same hints.
//!
//! Under `externalTrafficPolicy: Local` a connection from outside goes to a masquerade address that
//! has the node port in OVN, with the endpoints of this node alone, and keeps the client's address.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;
use kubeapi::services::{Condition, Hints, Place, Protocol, Service, ServicePort, Traffic, chosen};

/// An address and port that the kernel translates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Destination {
    /// `None`: all addresses of the host that are of the family of `cluster`.
    pub(crate) address: Option<IpAddr>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    /// The cluster's address of the Service.
    pub(crate) cluster: IpAddr,
    /// Where connections go, one of these at random.
    pub(crate) targets: Vec<SocketAddr>,
    /// Where those from outside go instead, with the client's address. Without any they are
    /// refused.
    pub(crate) local: Option<Vec<SocketAddr>>,
    /// Those of `targets` that are hosts.
    pub(crate) hosts: Vec<SocketAddr>,
    /// The networks of the clients that may connect, none within another. `None`: those of any.
    pub(crate) clients: Option<Vec<IpNet>>,
}

/// An endpoint of a Service's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate<'a> {
    pub(super) address: SocketAddr,
    pub(super) condition: Condition,
    pub(super) is_local: bool,
    /// Outside of the overlay.
    pub(super) is_host: bool,
    pub(super) hints: Option<&'a Hints>,
}

/// Targets of one destination. Of more than these each node has some others: together they reach
/// all.
const MOST_TARGETS: usize = 64;

/// What of a node the destinations depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfNode<'a> {
    pub(super) place: Place<'a>,
    /// The masquerade addresses for local traffic, IPv4 and IPv6.
    pub(super) local_traffic: [IpAddr; 2],
}

/// The destinations of a port, which is served at these addresses outside of the cluster.
pub(super) fn of_port(
    node: OfNode<'_>,
    service: &Service,
    port: &ServicePort,
    outside_addresses: &[IpAddr],
    candidates: &[Candidate<'_>],
) -> Vec<Destination> {
    let place = node.place;
    let mut all = Vec::new();
    for cluster in &service.cluster_ips {
        let is_same = |address: &IpAddr| address.is_ipv4() == cluster.is_ipv4();
        let of_family = || candidates.iter().filter(|candidate| is_same(&candidate.address.ip()));
        let add = |all: &mut Vec<Destination>,
                   address: Option<IpAddr>,
                   port: u16,
                   choice: &Choice,
                   local| {
            let (targets, hosts) = (choice.targets.clone(), choice.hosts.clone());
            let (protocol, cluster) = (choice.protocol, *cluster);
            let clients = service.source_ranges.as_ref().and_then(|ranges| ranges.of(address?));
            let clients = clients.map(Iterator::collect);
            all.push(Destination {
                address,
                protocol,
                port,
                cluster,
                targets,
                local,
                hosts,
                clients,
            });
        };
        let ready = of_family().filter(|candidate| candidate.condition == Condition::Ready);
        let nearness = place.nearness(ready.map(|candidate| candidate.hints));
        // A policy that is local goes by the node alone.
        let is_near = |candidate: &&Candidate<'_>| place.admits(nearness, candidate.hints);
        let is_inside = |candidate: &&Candidate<'_>| match service.internal {
            Traffic::Cluster => is_near(candidate),
            Traffic::Local => candidate.is_local,
        };
        let inside = Choice::new(node, port.protocol, of_family().filter(is_inside));
        if !inside.hosts.is_empty() {
            add(&mut all, Some(*cluster), port.port, &inside, None);
        }
        let mut outside = Choice::new(node, port.protocol, of_family().filter(is_near));
        // `internalTrafficPolicy: Local` is about the cluster's address alone, where OVN has the
        // endpoints of the node only: then the kernel chooses among all of them. Without any, OVN
        // refuses.
        let by_ovn = service.internal == Traffic::Cluster || outside.targets.is_empty();
        if outside.hosts.is_empty() && by_ovn {
            outside.targets = vec![SocketAddr::new(*cluster, port.port)];
        }
        let local = (service.external == Traffic::Local).then(|| {
            let local = Choice::new(
                node,
                port.protocol,
                of_family().filter(|candidate| candidate.is_local),
            );
            let by_ovn = of_family_of(&service.cluster_ips, node.local_traffic).find(is_same);
            match (port.node_port, by_ovn) {
                (Some(node_port), Some(by_ovn)) if local.hosts.is_empty() => {
                    vec![SocketAddr::new(by_ovn, node_port)]
                }
                _ => local.targets,
            }
        });
        if let Some(node_port) = port.node_port {
            add(&mut all, None, node_port, &outside, local.clone());
        }
        for address in outside_addresses.iter().filter(|address| is_same(address)) {
            add(&mut all, Some(*address), port.port, &outside, local.clone());
        }
    }
    all
}

/// Those of `addresses` that are of a family of a Service's addresses.
pub(super) fn of_family_of(
    cluster: &[IpAddr],
    addresses: [IpAddr; 2],
) -> impl Iterator<Item = IpAddr> {
    addresses
        .into_iter()
        .filter(|address| cluster.iter().any(|own| own.is_ipv4() == address.is_ipv4()))
}

/// Whether an endpoint is outside of the overlay.
struct IsHost(bool);

/// The endpoints that get connections.
struct Choice {
    protocol: Protocol,
    targets: Vec<SocketAddr>,
    hosts: Vec<SocketAddr>,
}

impl Choice {
    fn new<'a>(
        node: OfNode<'_>,
        protocol: Protocol,
        candidates: impl Iterator<Item = &'a Candidate<'a>> + Clone,
    ) -> Self {
        // An endpoint may be in two slices while these are rearranged.
        let chosen = chosen(candidates, |candidate| candidate.condition);
        let mut all: BTreeMap<SocketAddr, IsHost> = BTreeMap::new();
        for candidate in chosen {
            all.insert(candidate.address, IsHost(candidate.is_host));
        }
        if all.len() > MOST_TARGETS {
            // Hosts first: OVN cannot reach them for this host. The same ones for as long as they
            // are there.
            let hasher = BuildHasherDefault::<DefaultHasher>::default();
            let lot = |address: &SocketAddr| hasher.hash_one((node.place.node, address));
            let mut drawn: Vec<(SocketAddr, IsHost)> = all.into_iter().collect();
            drawn.sort_by_cached_key(|(address, is_host)| (!is_host.0, lot(address), *address));
            drawn.truncate(MOST_TARGETS);
            all = drawn.into_iter().collect();
        }
        let hosts =
            all.iter().filter(|(_, is_host)| is_host.0).map(|(address, _)| *address).collect();
        Self { protocol, targets: all.into_keys().collect(), hosts }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kubeapi::services::SourceRanges;

    use super::*;

    const LOCAL_TRAFFIC: [&str; 2] = ["169.254.169.3", "fd69::3"];

    /// A Service with node port 30080 for its port 80.
    fn service(cluster: &[&str]) -> Service {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Service { cluster_ips: parse(cluster), ..Service::default() }
    }

    fn candidate(address: &str, is_local: bool, is_host: bool) -> Candidate<'static> {
        let (address, condition) = (address.parse().unwrap(), Condition::Ready);
        Candidate { address, condition, is_local, is_host, hints: None }
    }

    fn node(name: &str) -> OfNode<'_> {
        OfNode {
            place: Place { node: name, zone: Some("a") },
            local_traffic: LOCAL_TRAFFIC.map(|text| text.parse().unwrap()),
        }
    }

    /// The 64 lowest addresses had all connections of all nodes.
    #[test]
    fn of_many_endpoints_on_hosts_each_node_has_others() {
        let service = service(&["10.96.0.7"]);
        let port = ServicePort {
            name: None,
            protocol: Protocol::Tcp,
            port: 80,
            target: None,
            node_port: None,
        };
        let all: Vec<Candidate<'_>> = (0..500)
            .map(|n| candidate(&format!("192.0.{}.{}:80", n / 250, n % 250), false, true))
            .collect();
        let targets = |name: &str, all: &[Candidate<'_>]| {
            of_port(node(name), &service, &port, &[], all).remove(0).targets
        };
        let mut reached = BTreeMap::new();
        for number in 0..100 {
            let of_node = targets(&format!("node{number}"), &all);
            assert_eq!(of_node.len(), MOST_TARGETS);
            of_node.into_iter().for_each(|target| *reached.entry(target).or_insert(0) += 1);
        }
        assert_eq!(reached.len(), 500);
        assert!(reached.values().all(|times| *times < 40), "{reached:?}");
        // One more changes nothing but that it may be one of them.
        let (before, after) = (targets("n1", &all[1..]), targets("n1", &all));
        assert!(after.iter().filter(|target| !before.contains(target)).count() <= 1);
        // A pod does not take the place of a host.
        let pods = (0..500)
            .map(|n| candidate(&format!("10.244.{}.{}:80", n / 250, n % 250), false, false));
        let mixed: Vec<Candidate<'_>> = pods.chain([all[7]]).collect();
        assert!(targets("n1", &mixed).contains(&all[7].address));
    }

    /// Each destination as `address port -> targets / local targets`.
    fn texts(
        service: &Service,
        node_port: Option<u16>,
        candidates: &[Candidate<'_>],
    ) -> Vec<String> {
        let port =
            ServicePort { name: None, protocol: Protocol::Tcp, port: 80, target: None, node_port };
        let outside: Vec<IpAddr> = service.outside().collect();
        let join = |targets: &[SocketAddr]| {
            targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        of_port(node("n1"), service, &port, &outside, candidates)
            .into_iter()
            .map(|Destination { address, port, targets, local, .. }| {
                let address = address.map_or("*".to_owned(), |address| address.to_string());
                let local = local.map(|local| format!(" / {}", join(&local))).unwrap_or_default();
                format!("{address} {port} -> {}{local}", join(&targets))
            })
            .collect()
    }

    #[test]
    fn a_node_port_leads_to_the_cluster_address_of_each_family() {
        let mut service = service(&["10.96.0.7", "fd00:10:96::7"]);
        service.external_ips = ["198.51.100.7".parse().unwrap()].into();
        assert_eq!(
            texts(&service, Some(30080), &[candidate("10.244.2.5:8080", false, false)]),
            [
                "* 30080 -> 10.96.0.7:80",
                "198.51.100.7 80 -> 10.96.0.7:80",
                "* 30080 -> [fd00:10:96::7]:80"
            ]
        );
    }

    #[test]
    fn under_a_local_policy_what_comes_from_outside_goes_to_endpoints_of_the_node() {
        let mut service = service(&["10.96.0.7"]);
        service.external = Traffic::Local;
        service.external_ips = ["198.51.100.7".parse().unwrap()].into();
        let here =
            [candidate("10.244.1.5:8080", true, false), candidate("10.244.2.5:8080", false, false)];
        assert_eq!(
            texts(&service, Some(30080), &here),
            [
                "* 30080 -> 10.96.0.7:80 / 169.254.169.3:30080",
                "198.51.100.7 80 -> 10.96.0.7:80 / 169.254.169.3:30080"
            ]
        );
        // Without a node port OVN has no address for it.
        assert_eq!(
            texts(&service, None, &here),
            ["198.51.100.7 80 -> 10.96.0.7:80 / 10.244.1.5:8080"]
        );
        assert_eq!(texts(&service, None, &here[1..]), ["198.51.100.7 80 -> 10.96.0.7:80 / "]);
    }

    /// The field is about the cluster's address alone: the node port was refused on nodes without
    /// an endpoint.
    #[test]
    fn an_internal_policy_takes_no_endpoint_from_what_comes_from_outside() {
        let mut service = service(&["10.96.0.7"]);
        service.internal = Traffic::Local;
        service.external_ips = ["198.51.100.7".parse().unwrap()].into();
        let there = [
            candidate("10.244.2.5:8080", false, false),
            candidate("10.244.3.5:8080", false, false),
        ];
        assert_eq!(
            texts(&service, Some(30080), &there),
            [
                "* 30080 -> 10.244.2.5:8080,10.244.3.5:8080",
                "198.51.100.7 80 -> 10.244.2.5:8080,10.244.3.5:8080"
            ]
        );
        // OVN refuses.
        let none = ["* 30080 -> 10.96.0.7:80", "198.51.100.7 80 -> 10.96.0.7:80"];
        assert_eq!(texts(&service, Some(30080), &[]), none);
    }

    #[test]
    fn only_addresses_of_a_load_balancer_are_limited_to_clients_of_the_own_family() {
        let mut service = service(&["10.96.0.7", "fd00:10:96::7"]);
        service.external_ips = ["198.51.100.7".parse().unwrap()].into();
        service.ingress_ips =
            ["198.51.100.8", "2001:db8::8"].map(|text| text.parse().unwrap()).into();
        service.source_ranges = Some(Box::new(SourceRanges::new(
            service.ingress_ips.clone(),
            ["192.0.2.0/24", "203.0.113.7/32"].map(|text| text.parse().unwrap()).into(),
        )));
        let port = ServicePort {
            name: None,
            protocol: Protocol::Tcp,
            port: 80,
            target: None,
            node_port: Some(30080),
        };
        let outside =
            ["198.51.100.7", "198.51.100.8", "2001:db8::8"].map(|text| text.parse().unwrap());
        let found =
            of_port(node("n1"), &service, &port, &outside, &[]).into_iter().map(|destination| {
                let clients =
                    destination.clients.map(|all| all.iter().map(ToString::to_string).collect());
                (destination.address.map(|address| address.to_string()), clients)
            });
        let found: Vec<(Option<String>, Option<Vec<String>>)> = found.collect();
        let some = |address: &str, clients: Option<&[&str]>| {
            let clients = clients.map(|all| all.iter().map(ToString::to_string).collect());
            (Some(address.to_owned()), clients)
        };
        let expected = [
            (None, None),
            some("198.51.100.7", None),
            some("198.51.100.8", Some(&["192.0.2.0/24", "203.0.113.7/32"])),
            (None, None),
            some("2001:db8::8", Some(&[])),
        ];
        assert_eq!(found, expected);
    }

    /// The kernel took any of the hosts, whatever their zones.
    #[test]
    fn the_kernel_chooses_among_hosts_by_their_topology_hints() {
        let mut service = service(&["10.96.0.7"]);
        let hints = |zones: &[&str], nodes: &[&str]| {
            let names = |all: &[&str]| all.iter().map(|name| Arc::from(*name)).collect();
            Hints { zones: names(zones), nodes: names(nodes) }
        };
        let (of_a, of_b) = (hints(&["a"], &[]), hints(&["b"], &[]));
        let (of_n1, of_n2) = (hints(&["a"], &["n1"]), hints(&["a"], &["n2"]));
        let at =
            |address: &'static str, hints| Candidate { hints, ..candidate(address, false, true) };
        let both = |one, other| [at("192.0.2.8:80", one), at("192.0.2.9:80", other)];
        let zones = both(Some(&of_a), Some(&of_b));
        let near = ["10.96.0.7 80 -> 192.0.2.8:80", "* 30080 -> 192.0.2.8:80"];
        assert_eq!(texts(&service, Some(30080), &zones), near);
        let any = "192.0.2.8:80,192.0.2.9:80";
        let any = [format!("10.96.0.7 80 -> {any}"), format!("* 30080 -> {any}")];
        assert_eq!(texts(&service, Some(30080), &both(Some(&of_a), None)), any, "one has no hint");
        assert_eq!(
            texts(&service, Some(30080), &both(Some(&of_b), Some(&of_b))),
            any,
            "none is for here"
        );
        let nodes = both(Some(&of_n1), Some(&of_n2));
        assert_eq!(texts(&service, Some(30080), &nodes), near, "a hint for the node is nearer");
        // Near pods are OVN's, which knows their hints.
        let mixed =
            [Candidate { hints: Some(&of_a), ..candidate("10.244.1.5:80", true, false) }, zones[1]];
        assert_eq!(texts(&service, Some(30080), &mixed), ["* 30080 -> 10.96.0.7:80"]);
        // A policy that is local is about the node.
        service.internal = Traffic::Local;
        let local = [Candidate { is_local: true, ..zones[1] }];
        assert_eq!(texts(&service, None, &local), ["10.96.0.7 80 -> 192.0.2.9:80"]);
    }

    #[test]
    fn where_an_endpoint_is_a_host_the_kernel_chooses() {
        let service = service(&["10.96.0.7"]);
        let mut endpoints =
            [candidate("192.0.2.8:8080", false, true), candidate("10.244.1.5:8080", true, false)];
        let both = "10.244.1.5:8080,192.0.2.8:8080";
        assert_eq!(
            texts(&service, Some(30080), &endpoints),
            [format!("10.96.0.7 80 -> {both}"), format!("* 30080 -> {both}")]
        );
        let mut local = service.clone();
        (local.external, local.internal) = (Traffic::Local, Traffic::Local);
        assert_eq!(
            texts(&local, Some(30080), &endpoints),
            [format!("* 30080 -> {both} / 169.254.169.3:30080")]
        );
        endpoints[0].is_local = true;
        assert_eq!(
            texts(&local, Some(30080), &endpoints),
            [format!("10.96.0.7 80 -> {both}"), format!("* 30080 -> {both} / {both}")]
        );
        // One that is not ready gets connections only if no other one is.
        endpoints[0].condition = Condition::Serving;
        assert_eq!(texts(&service, Some(30080), &endpoints), ["* 30080 -> 10.96.0.7:80"]);
    }
}
