//! A cluster as far as a client of its Services can tell. Names and meanings are the API
//! reference's; fields that change nothing for a client are left out.

use std::net::IpAddr;

pub use verdict::Protocol;

/// Everything that decides who answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    pub services: Vec<Service>,
    pub slices: Vec<EndpointSlice>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Names and addresses derive from it. At least 1.
    pub number: u8,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<&'static str>,
}

/// A pod that the cluster's network gives an address. Its names and addresses are those of the
/// lab's pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// The number of its node.
    pub node: u8,
    /// Its host number in the node's subnets, at least [`FIRST_POD`].
    pub host: u8,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    pub namespace: &'static str,
    pub name: String,
    /// `creationTimestamp`, in seconds after an arbitrary time.
    pub created: u8,
    pub labels: Vec<&'static str>,
    pub kind: ServiceType,
    /// `clusterIPs`. Empty: `None`, a headless Service.
    pub cluster_ips: Vec<IpAddr>,
    /// `externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress`.
    pub ingress: Vec<Ingress>,
    pub ports: Vec<ServicePort>,
    pub publish_not_ready_addresses: bool,
    pub internal_traffic_policy: TrafficPolicy,
    pub external_traffic_policy: TrafficPolicy,
    /// `sessionAffinity: ClientIP` with this timeout in seconds. It decides which of the backends
    /// answers the same client again, not which ones may.
    pub affinity: Option<u32>,
    pub traffic_distribution: Option<&'static str>,
}

/// `spec.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceType {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingress {
    pub ip: IpAddr,
    /// `ipMode: Proxy`: the load balancer outside delivers to node ports or pods.
    pub is_proxy: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ServicePort {
    pub name: Option<&'static str>,
    pub protocol: Protocol,
    pub port: u16,
    pub target_port: Option<u16>,
    pub node_port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficPolicy {
    Cluster,
    Local,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EndpointSlice {
    pub namespace: &'static str,
    pub name: String,
    /// Label `kubernetes.io/service-name`.
    pub service: Option<String>,
    pub labels: Vec<&'static str>,
    pub address_type: AddressType,
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressType {
    Ipv4,
    Ipv6,
    Fqdn,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EndpointPort {
    pub name: Option<&'static str>,
    /// TCP if it is not set.
    pub protocol: Option<Protocol>,
    /// All ports if it is not set.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Endpoint {
    /// The first of `addresses`; text, because it may be of another family than the slice's, or
    /// none at all.
    pub address: String,
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
    pub node_name: Option<String>,
    /// `hints.forZones`.
    pub for_zones: Vec<&'static str>,
    /// `hints.forNodes`.
    pub for_nodes: Vec<String>,
}

/// The lowest host number of a pod; the router and the management port have those below.
pub const FIRST_POD: u8 = 3;

/// The label of a Service that another proxy than the cluster's serves.
pub const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// The label that the control plane gives to the endpoints of a headless Service.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// The ranges of Services' addresses.
pub const SERVICE_RANGES: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];
/// The ranges of pods' addresses, and those that OVN-Kubernetes uses by itself between its routers,
/// between zones, and between a host and its gateway (upstream's defaults).
pub const CLUSTER_RANGES: [&str; 8] = [
    "10.244.0.0/16",
    "fd00:10:244::/48",
    "100.64.0.0/16",
    "fd98::/64",
    "100.88.0.0/16",
    "fd97::/64",
    "169.254.169.0/29",
    "fd69::/125",
];

impl World {
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name() == name)
    }
}

impl Node {
    pub fn name(&self) -> String {
        node_name(self.number)
    }

    /// The value of its label `role`.
    pub fn role(&self) -> &'static str {
        if self.number.is_multiple_of(2) { "inner" } else { "edge" }
    }

    /// The host's own addresses, one of each family.
    pub fn addresses(&self) -> [IpAddr; 2] {
        [
            text_address(&format!("172.30.0.{}", 10 + self.number)),
            text_address(&format!("fd00:172:30::{}", 10 + self.number)),
        ]
    }

    /// The subnets of its pods.
    pub fn subnets(&self) -> [String; 2] {
        [format!("10.244.{}.0/24", self.number), format!("fd00:10:244:{}::/64", self.number)]
    }

    /// An address in the subnet of that family.
    pub fn subnet_address(&self, host: u8, ipv6: bool) -> IpAddr {
        text_address(&if ipv6 {
            format!("fd00:10:244:{}::{host:x}", self.number)
        } else {
            format!("10.244.{}.{host}", self.number)
        })
    }
}

pub fn node_name(number: u8) -> String {
    format!("node{number}")
}

impl Pod {
    pub const NAMESPACE: &str = "lab";

    pub fn name(&self) -> String {
        format!("{}-pod{}", node_name(self.node), self.host)
    }

    /// One of each family.
    pub fn addresses(&self) -> [IpAddr; 2] {
        let node = Node { number: self.node, zone: None };
        [false, true].map(|ipv6| node.subnet_address(self.host, ipv6))
    }
}

impl Service {
    pub fn uid(&self) -> String {
        format!("uid-of-{}-{}", self.namespace, self.name)
    }

    /// A Service of type `ClusterIP` with these ports, for named tests.
    pub fn named(name: &str, cluster_ips: &[&str], ports: Vec<ServicePort>) -> Self {
        Self {
            namespace: "a",
            name: name.to_owned(),
            created: 0,
            labels: Vec::new(),
            kind: ServiceType::ClusterIp,
            cluster_ips: cluster_ips.iter().map(|ip| text_address(ip)).collect(),
            external_ips: Vec::new(),
            ingress: Vec::new(),
            ports,
            publish_not_ready_addresses: false,
            internal_traffic_policy: TrafficPolicy::Cluster,
            external_traffic_policy: TrafficPolicy::Cluster,
            affinity: None,
            traffic_distribution: None,
        }
    }
}

impl ServicePort {
    pub fn tcp(port: u16) -> Self {
        Self { name: None, protocol: Protocol::Tcp, port, target_port: None, node_port: None }
    }
}

impl EndpointSlice {
    /// An IPv4 slice of the Service `a/service` with one unnamed TCP port, for named tests.
    pub fn of(service: &str, port: u16, endpoints: Vec<Endpoint>) -> Self {
        Self {
            namespace: "a",
            name: format!("{service}-{port}"),
            service: Some(service.to_owned()),
            labels: Vec::new(),
            address_type: AddressType::Ipv4,
            ports: vec![EndpointPort { name: None, protocol: None, port: Some(port) }],
            endpoints,
        }
    }
}

impl Endpoint {
    /// A ready endpoint of the pod, for named tests.
    pub fn of(pod: &Pod) -> Self {
        Self {
            address: pod.addresses()[0].to_string(),
            node_name: Some(node_name(pod.node)),
            ..Self::default()
        }
    }
}

/// An address of this package's own making.
pub(crate) fn text_address(text: &str) -> IpAddr {
    text.parse().expect("it is written as an address")
}
