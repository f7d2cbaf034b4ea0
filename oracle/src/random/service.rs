//! Random Services.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{protocol, service_name};
use crate::world::{
    HEADLESS, Ingress, PROXY_NAME, Protocol, Service, ServicePort, ServiceType, TrafficPolicy, text_address,
};

/// Names of a Service's ports, unless its only port has none.
const PORT_NAMES: [&str; 3] = ["dns", "http", "metrics"];

/// A Service without the names and numbers that keep it apart from others.
#[derive(Debug, Clone)]
pub(super) struct Sketch {
    kind: ServiceType,
    families: Families,
    labels: Vec<&'static str>,
    has_external_ip: bool,
    /// `ipMode: Proxy` or not, if it has an address of a load balancer.
    ingress: Option<bool>,
    ports: Vec<(Protocol, Option<u16>)>,
    is_unnamed: bool,
    allocates_node_ports: bool,
    publish_not_ready_addresses: bool,
    internal: TrafficPolicy,
    external: TrafficPolicy,
    affinity: Option<u32>,
    traffic_distribution: Option<&'static str>,
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
    let labels = prop_oneof![12 => Just(vec![]), 1 => Just(vec![PROXY_NAME]), 1 => Just(vec![HEADLESS])];
    let ports = vec((protocol(), option::weighted(0.3, 8080..8083_u16)), 1..=3);
    let distribution = select(vec!["PreferClose", "PreferSameZone", "PreferSameNode"]);
    let rarely = || prop::bool::weighted(0.15);
    let addresses = (kind, families, labels, any::<bool>(), option::of(rarely()));
    let numbers = (ports, any::<bool>(), prop::bool::weighted(0.85));
    // The larger one is the longest that the API server accepts, and its default.
    let timeout = option::weighted(0.2, select(vec![5_u32, 10_800, 86_400]));
    let choice = (rarely(), policy(), policy(), timeout, option::weighted(0.3, distribution));
    (addresses, numbers, choice).prop_map(|(addresses, numbers, choice)| {
        let (kind, families, labels, has_external_ip, ingress) = addresses;
        let (ports, is_unnamed, allocates_node_ports) = numbers;
        let (publish_not_ready_addresses, internal, external, affinity, traffic_distribution) = choice;
        Sketch {
            kind,
            families,
            labels,
            has_external_ip,
            ingress,
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
        let (v4, v6) = (format!("10.96.0.{}", 10 + index), format!("fd00:10:96::{:x}", 10 + index));
        let cluster_ips: Vec<String> = match self.families {
            _ if is_alias => vec![],
            Families::Headless => vec![],
            Families::Ipv4 => vec![v4],
            Families::Ipv6 => vec![v6],
            Families::Ipv4First => vec![v4, v6],
            Families::Ipv6First => vec![v6, v4],
        };
        // A headless Service has no node ports and no load balancer.
        let kind = if cluster_ips.is_empty() && !is_alias { ServiceType::ClusterIp } else { self.kind };
        let has_node_ports = match kind {
            ServiceType::NodePort => true,
            ServiceType::LoadBalancer => self.allocates_node_ports,
            ServiceType::ClusterIp | ServiceType::ExternalName => false,
        };
        // All Services share one external address of a family, so that their port numbers differ.
        let is_ipv4 = cluster_ips.first().is_none_or(|first| !first.contains(':'));
        let outside = |v4: &str, v6: &str| text_address(if is_ipv4 { v4 } else { v6 });
        let is_unnamed = self.is_unnamed && self.ports.len() == 1;
        let first = self.ports[0].0;
        let ports = (0_u16..).zip(PORT_NAMES).zip(self.ports).map(|((at, name), (protocol, target_port))| {
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
                port: number + 100 * index,
                target_port,
                node_port: has_node_ports.then_some(30_000 + 10 * index + at),
            }
        });
        let ingress = self.ingress.filter(|_| kind == ServiceType::LoadBalancer);
        Service {
            namespace,
            name,
            labels: self.labels,
            kind,
            ports: ports.collect(),
            external_ips: self
                .has_external_ip
                .then(|| outside("203.0.113.1", "2001:db8::1"))
                .into_iter()
                .collect(),
            ingress: ingress
                .map(|is_proxy| Ingress { ip: outside("198.51.100.1", "2001:db8:1::1"), is_proxy })
                .into_iter()
                .collect(),
            cluster_ips: cluster_ips.iter().map(|ip| text_address(ip)).collect(),
            publish_not_ready_addresses: self.publish_not_ready_addresses,
            internal_traffic_policy: self.internal,
            external_traffic_policy: self.external,
            affinity: self.affinity,
            traffic_distribution: self.traffic_distribution,
        }
    }
}
