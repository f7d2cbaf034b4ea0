//! Random Services.

use std::net::IpAddr;

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{protocol, service_name};
use crate::world::{
    HEADLESS, Ingress, PROXY_NAME, Protocol, Service, ServicePort, ServiceType, TrafficPolicy,
    text_address,
};

/// Names of a Service's ports, unless its only port has none.
const PORT_NAMES: [&str; 3] = ["dns", "http", "metrics"];

/// A Service without the names and numbers that keep it apart from others.
#[derive(Debug, Clone)]
pub(super) struct Sketch {
    kind: ServiceType,
    families: Families,
    labels: Vec<&'static str>,
    created: u8,
    external_ip: Option<Outside>,
    /// With `ipMode: Proxy` or not, if it has an address of a load balancer.
    ingress: Option<(Outside, bool)>,
    /// Whether its ports have the numbers that those of others have.
    shares_numbers: bool,
    ports: Vec<(Protocol, Option<u16>)>,
    is_unnamed: bool,
    allocates_node_ports: bool,
    publish_not_ready_addresses: bool,
    internal: TrafficPolicy,
    external: TrafficPolicy,
    affinity: Option<u32>,
    traffic_distribution: Option<&'static str>,
}

/// An address that is not the Service's own.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outside {
    /// One that other Services have, too.
    Shared,
    /// One that load balancers give.
    Balancer,
    /// The address in the cluster that the Service with this index has, or would have.
    ClusterIp(u16),
    /// Those of nodes and pods; those of pods are of no pod.
    Node,
    Pod,
}

impl Outside {
    fn address(self, ipv4: bool) -> IpAddr {
        match (self, ipv4) {
            (Self::ClusterIp(index), _) => cluster_ip(index, ipv4),
            (Self::Shared, true) => text_address("203.0.113.1"),
            (Self::Shared, false) => text_address("2001:db8::1"),
            (Self::Balancer, true) => text_address("198.51.100.1"),
            (Self::Balancer, false) => text_address("2001:db8:1::1"),
            (Self::Node, true) => text_address("172.30.0.11"),
            (Self::Node, false) => text_address("fd00:172:30::11"),
            (Self::Pod, true) => text_address("10.244.1.200"),
            (Self::Pod, false) => text_address("fd00:10:244:1::c8"),
        }
    }
}

fn cluster_ip(index: u16, ipv4: bool) -> IpAddr {
    let number = 10 + index;
    text_address(&if ipv4 {
        format!("10.96.0.{number}")
    } else {
        format!("fd00:10:96::{number:x}")
    })
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Families {
    Ipv4,
    Ipv6,
    Ipv4First,
    Ipv6First,
    Headless,
}

pub(super) fn sketch() -> impl Strategy<Value = Sketch> {
    let kind = prop_oneof![
        4 => Just(ServiceType::ClusterIp),
        3 => Just(ServiceType::NodePort),
        3 => Just(ServiceType::LoadBalancer),
        1 => Just(ServiceType::ExternalName),
    ];
    let families = prop_oneof![
        4 => Just(Families::Ipv4),
        1 => Just(Families::Ipv6),
        3 => Just(Families::Ipv4First),
        1 => Just(Families::Ipv6First),
        1 => Just(Families::Headless),
    ];
    let labels =
        prop_oneof![12 => Just(vec![]), 1 => Just(vec![PROXY_NAME]), 1 => Just(vec![HEADLESS])];
    let ports = vec((protocol(), option::weighted(0.3, 8080..8083_u16)), 1..=3);
    let distribution = select(vec!["PreferClose", "PreferSameZone", "PreferSameNode"]);
    let rarely = || prop::bool::weighted(0.15);
    let external_ip = prop_oneof![
        6 => Just(Outside::Shared),
        2 => Just(Outside::Balancer),
        2 => (0..4_u16).prop_map(Outside::ClusterIp),
        1 => Just(Outside::Node),
        1 => Just(Outside::Pod),
    ];
    let ingress = prop_oneof![
        4 => Just(Outside::Balancer),
        2 => Just(Outside::Shared),
        1 => (0..4_u16).prop_map(Outside::ClusterIp),
    ];
    let outside = (option::of(external_ip), option::of((ingress, rarely())));
    let addresses = (kind, families, labels, 0..3_u8, outside);
    let numbers = (ports, any::<bool>(), prop::bool::weighted(0.85), any::<bool>());
    // The larger one is the longest that the API server accepts, and its default.
    let timeout = option::weighted(0.2, select(vec![5_u32, 10_800, 86_400]));
    let choice = (rarely(), policy(), policy(), timeout, option::weighted(0.3, distribution));
    (addresses, numbers, choice).prop_map(|(addresses, numbers, choice)| {
        let (kind, families, labels, created, (external_ip, ingress)) = addresses;
        let (ports, is_unnamed, allocates_node_ports, shares_numbers) = numbers;
        let (publish_not_ready_addresses, internal, external, affinity, traffic_distribution) =
            choice;
        Sketch {
            kind,
            families,
            labels,
            created,
            external_ip,
            ingress,
            shares_numbers,
            ports,
            is_unnamed,
            allocates_node_ports,
            publish_not_ready_addresses,
            internal,
            external,
            affinity,
            traffic_distribution,
        }
    })
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    prop_oneof![2 => Just(TrafficPolicy::Cluster), 1 => Just(TrafficPolicy::Local)]
}

impl Sketch {
    pub(super) fn service(self, index: u16) -> Service {
        let (namespace, name) = service_name(index.into());
        let is_alias = self.kind == ServiceType::ExternalName;
        let [v4, v6] = [true, false].map(|ipv4| cluster_ip(index, ipv4));
        let cluster_ips: Vec<IpAddr> = match self.families {
            _ if is_alias => vec![],
            Families::Headless => vec![],
            Families::Ipv4 => vec![v4],
            Families::Ipv6 => vec![v6],
            Families::Ipv4First => vec![v4, v6],
            Families::Ipv6First => vec![v6, v4],
        };
        // A headless Service has no node ports and no load balancer.
        let kind =
            if cluster_ips.is_empty() && !is_alias { ServiceType::ClusterIp } else { self.kind };
        let has_node_ports = match kind {
            ServiceType::NodePort => true,
            ServiceType::LoadBalancer => self.allocates_node_ports,
            ServiceType::ClusterIp | ServiceType::ExternalName => false,
        };
        let is_ipv4 = cluster_ips.first().is_none_or(IpAddr::is_ipv4);
        let is_unnamed = self.is_unnamed && self.ports.len() == 1;
        let first = self.ports[0].0;
        let ports = (0_u16..).zip(PORT_NAMES).zip(self.ports).map(
            |((at, name), (protocol, target_port))| {
                let number = match at {
                    // A port for two protocols, as DNS has.
                    0 => 53,
                    1 if protocol != first => 53,
                    1 => 80,
                    _ => 9100,
                };
                ServicePort {
                    name: (!is_unnamed).then_some(name),
                    protocol,
                    port: number + if self.shares_numbers { 0 } else { 100 * index },
                    target_port,
                    node_port: has_node_ports.then_some(30_000 + 10 * index + at),
                }
            },
        );
        let ingress = self.ingress.filter(|_| kind == ServiceType::LoadBalancer);
        Service {
            namespace,
            name,
            created: self.created,
            labels: self.labels,
            kind,
            ports: ports.collect(),
            external_ips: self
                .external_ip
                .map(|outside| outside.address(is_ipv4))
                .into_iter()
                .collect(),
            ingress: ingress
                .map(|(outside, is_proxy)| Ingress { ip: outside.address(is_ipv4), is_proxy })
                .into_iter()
                .collect(),
            cluster_ips,
            publish_not_ready_addresses: self.publish_not_ready_addresses,
            internal_traffic_policy: self.internal,
            external_traffic_policy: self.external,
            affinity: self.affinity,
            traffic_distribution: self.traffic_distribution,
        }
    }
}
