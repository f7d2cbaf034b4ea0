//! Services, EndpointSlices and ServiceCIDRs: what the API says of them, for every program that
//! acts on them.
//!
//! ```text
//! JSON ─▶ ServiceObject, SliceObject, RangeObject ─▶ Service, Slice, ranges ─▶ Claims, Quotas
//!         services/wire.rs: the fields in use                                  which of it is served
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `wire` | the objects as the API spells them |
//! | `claims` | [`Claims`]: which of several Services serves an address and port |
//! | `cost` | [`Cost`]: what a Service costs, and how many of its ports are served |
//! | `quota` | [`Quotas`]: what the Services of a namespace may cost together |
//!
//! Knows what the API's fields mean; neither who may reach whom, nor how connections are balanced.
//! A value that cannot be used is left out, and the first one is named: one bad port must not take
//! away the others.

mod claims;
mod cost;
mod quota;
mod wire;

use std::{fmt, net::IpAddr, sync::Arc};

use contract::{limits::SERVICE_BACKENDS, names::ServiceKey, remainder::size_of_remainder};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

pub use claims::{AddressField, Claim, Claimant, Claims, Refusal};
pub use cost::{Cost, Priced, affinity_lots};
pub use quota::Quotas;
pub use wire::{NodeAddressesObject, RangeObject, ServiceObject, SliceObject};

/// The Service of the API servers: its endpoints are their addresses.
pub const API_SERVER: &str = "default/kubernetes";

/// A Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    pub uid: Arc<str>,
    /// Seconds since 1970.
    pub created: i64,
    /// Its addresses in the cluster, at most one of each family; none if it is headless or an
    /// `ExternalName`, if it is left to another proxy, or while they are not assigned.
    pub cluster_ips: Box<[IpAddr]>,
    /// `externalIPs`, sorted.
    pub external_ips: Box<[IpAddr]>,
    /// The load balancer's addresses (`status.loadBalancer.ingress`), sorted.
    pub ingress_ips: Box<[IpAddr]>,
    /// `loadBalancerSourceRanges`. None: clients of any address may connect.
    pub source_ranges: Option<Box<SourceRanges>>,
    pub ports: Box<[ServicePort]>,
    /// Seconds for which a client gets the same backend.
    pub affinity: Option<u32>,
    /// Which backends take connections to the addresses in the cluster.
    pub internal: Traffic,
    /// Which backends take connections to other addresses, and to ports of nodes.
    pub external: Traffic,
    pub publish_not_ready: bool,
    /// It has no backends because nobody used it; a connection is an event.
    pub idled: bool,
    /// Its owner asks when it is in force (`REPORT_APPLIED`).
    pub reports_applied: bool,
    /// `healthCheckNodePort`, where it has a meaning.
    pub health_check: Option<u16>,
    /// The first of its values that cannot be used.
    pub unusable: Option<Box<Unusable>>,
}

/// Clients that may connect to addresses of a load balancer. No other ones of the Service's
/// addresses, and no node port, are limited to them (Service API, `loadBalancerSourceRanges`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRanges {
    /// Those of `ingress_ips` that are limited.
    pub addresses: Box<[IpAddr]>,
    /// The networks of the clients. Without any, nobody may connect: each that was given is
    /// unusable.
    pub clients: Box<[IpNet]>,
    /// How many networks all others are, of both families: OVN has these. No more are counted than
    /// a Service may have.
    pub others: usize,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// None if it is empty.
    pub name: Option<Arc<str>>,
    pub protocol: Protocol,
    pub port: u16,
    /// `targetPort`, if it is a number. For endpoints of all ports.
    pub target: Option<u16>,
    pub node_port: Option<u16>,
}

/// Which backends may take a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Traffic {
    #[default]
    Cluster,
    /// Those of the node where the connection arrives.
    Local,
}

/// An EndpointSlice of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// None if it belongs to no Service.
    pub service: Option<ServiceKey>,
    pub family: Option<Family>,
    /// Sorted by protocol and name.
    pub ports: Box<[SlicePort]>,
    pub endpoints: Box<[Endpoint]>,
    /// Number of endpoints, also of a reader that keeps some of them only.
    pub endpoints_count: usize,
    /// When the change happened that made this slice, in microseconds since 1970.
    pub triggered: Option<i64>,
    /// The first of its values that cannot be used.
    pub unusable: Option<Box<Unusable>>,
}

/// A port of all endpoints of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// None if it is empty.
    pub name: Option<Arc<str>>,
    pub protocol: Protocol,
    /// None: all ports.
    pub port: Option<u16>,
}

/// An endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub address: IpAddr,
    pub condition: Condition,
    /// The name of its node.
    pub node: Option<Arc<str>>,
    /// Where it should be used; none without hints.
    pub hints: Option<Box<Hints>>,
}

/// Whether an endpoint takes connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Ready,
    /// It terminates, and still serves: it is used if no endpoint is ready.
    Serving,
    Neither,
}

/// Those of the endpoints of a Service's port that get connections (kube-proxy's
/// `CategorizeEndpoints`): the ready ones; if there are none, those that terminate and still serve.
pub fn chosen<E, I>(endpoints: I, condition: impl Fn(&E) -> Condition) -> impl Iterator<Item = E>
where
    I: Iterator<Item = E> + Clone,
{
    let has_ready = endpoints.clone().any(|endpoint| condition(&endpoint) == Condition::Ready);
    let wanted = if has_ready { Condition::Ready } else { Condition::Serving };
    endpoints.filter(move |endpoint| condition(endpoint) == wanted)
}

impl Traffic {
    /// Whether connections that arrive at `here` may get an endpoint that is on `node`. One that
    /// does not name its node is on none.
    pub fn admits(self, node: Option<&str>, here: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Local => node == Some(here),
        }
    }
}

/// Where a connection begins, as topology hints name places.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub node: &'a str,
    /// None: the node has no zone, or it is not known.
    pub zone: Option<&'a str>,
}

/// Which endpoints are near enough for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nearness {
    /// Those with a hint for its node.
    Node,
    /// Those with a hint for its zone.
    Zone,
    Any,
}

impl Place<'_> {
    /// What the hints of the ready endpoints say of a connection from here (kube-proxy's rule):
    /// those for the node count, or those for its zone, if every endpoint has such hints and one of
    /// them is for it.
    pub fn nearness<'h>(self, ready: impl Iterator<Item = Option<&'h Hints>> + Clone) -> Nearness {
        let all_have =
            |list: fn(&Hints) -> bool| ready.clone().all(|hints| hints.is_some_and(list));
        let has = |nearness| ready.clone().any(|hints| self.admits(nearness, hints));
        if all_have(|hints| !hints.nodes.is_empty()) && has(Nearness::Node) {
            Nearness::Node
        } else if all_have(|hints| !hints.zones.is_empty()) && has(Nearness::Zone) {
            Nearness::Zone
        } else {
            Nearness::Any
        }
    }

    /// Whether a connection from here may get an endpoint with these hints.
    pub fn admits(self, nearness: Nearness, hints: Option<&Hints>) -> bool {
        let Self { node, zone } = self;
        match nearness {
            Nearness::Node => hints.is_some_and(|hints| hints.nodes.iter().any(|of| **of == *node)),
            Nearness::Zone => hints.is_some_and(|hints| {
                hints.zones.iter().any(|of| zone.is_some_and(|own| **of == *own))
            }),
            Nearness::Any => true,
        }
    }
}

/// The topology hints of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    pub zones: Box<[Arc<str>]>,
    /// Names of nodes.
    pub nodes: Box<[Arc<str>]>,
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// The family of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

/// A value of a Service or a slice that cannot be used. The rest of the object is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("its {field} has {value:?}, which is no address; it is left out")]
    NoAddress { field: &'static str, value: Box<str> },
    #[error("its {field} has {value:?}, which is no network; it is left out")]
    NoNetwork { field: &'static str, value: Box<str> },
    #[error(
        "its EndpointSlice {slice} has the address {value:?}, which is not of its type {family}; it is left \
         out"
    )]
    OtherFamily { slice: Box<str>, family: Family, value: Box<str> },
    #[error("{place} has the port {port}, which is none; it is left out")]
    NoPort { place: &'static str, port: i64 },
    #[error(
        "{place} has the protocol {protocol:?}, which cannot be balanced; the port is left out"
    )]
    OtherProtocol { place: &'static str, protocol: Box<str> },
}

impl Service {
    /// Its addresses, each once: under the field that comes first.
    pub fn addresses(&self) -> impl Iterator<Item = (AddressField, IpAddr)> + Clone {
        let Self { cluster_ips, ingress_ips, external_ips, .. } = self;
        let inside = cluster_ips.iter().map(|address| (AddressField::ClusterIps, *address));
        let ingress = ingress_ips.iter().filter(|address| !cluster_ips.contains(address));
        let ingress = ingress.map(|address| (AddressField::LoadBalancer, *address));
        let is_new = |address: &&IpAddr| {
            !cluster_ips.contains(address) && ingress_ips.binary_search(address).is_err()
        };
        let external = external_ips.iter().filter(is_new);
        inside.chain(ingress).chain(external.map(|address| (AddressField::ExternalIps, *address)))
    }

    /// Its addresses outside of the cluster, each once.
    pub fn outside(&self) -> impl Iterator<Item = IpAddr> + Clone {
        let all = self.addresses().filter(|(field, _)| *field != AddressField::ClusterIps);
        all.map(|(_, address)| address)
    }
}

impl SourceRanges {
    pub fn new(addresses: Box<[IpAddr]>, clients: Box<[IpNet]>) -> Self {
        let mut ranges = Self { addresses, clients, others: 0 };
        let of_family = |family| {
            let is_same = |address: &&IpAddr| Family::of(address) == family;
            let clients: Vec<IpNet> = ranges.of(*ranges.addresses.iter().find(is_same)?)?.collect();
            Some(size_of_remainder(family.everything(), &clients, SERVICE_BACKENDS.most))
        };
        ranges.others = Family::ALL.into_iter().filter_map(of_family).sum();
        ranges
    }

    /// The networks of the clients that may connect to `address`. None: it is not limited.
    pub fn of(&self, address: IpAddr) -> Option<impl Iterator<Item = IpNet>> {
        let is_same = move |client: &IpNet| client.addr().is_ipv4() == address.is_ipv4();
        self.addresses.contains(&address).then(|| self.clients.iter().copied().filter(is_same))
    }
}

impl Slice {
    /// The ports of this slice's endpoints that serve the Service's port.
    ///
    /// Names and protocols have to be equal. A Service's only port may have no name: as with
    /// upstream, each port of its protocol serves it then, whatever its name.
    pub fn targets(&self, of: &ServicePort) -> impl Iterator<Item = u16> {
        let place = |port: &SlicePort| match &of.name {
            Some(name) => (port.protocol, port.name.as_ref()).cmp(&(of.protocol, Some(name))),
            None => port.protocol.cmp(&of.protocol),
        };
        // A Service may have thousands of ports, and its slices as many.
        let first = self.ports.partition_point(|port| place(port).is_lt());
        let serving = self.ports[first..].iter().take_while(move |port| place(port).is_eq());
        serving.map(|port| port.port.or(of.target).unwrap_or(of.port))
    }
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Family {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The network that has all its addresses.
    pub fn everything(self) -> IpNet {
        match self {
            Self::V4 => Ipv4Net::default().into(),
            Self::V6 => Ipv6Net::default().into(),
        }
    }

    /// The family of `address`, as it is written: an IPv4-mapped IPv6 address is IPv6.
    pub fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl Unusable {
    /// One word for an event's `reason` and a metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoAddress { .. } => "NoAddress",
            Self::NoNetwork { .. } => "NoNetwork",
            Self::OtherFamily { .. } => "AddressOfOtherFamily",
            Self::NoPort { .. } => "NoPort",
            Self::OtherProtocol { .. } => "UnknownProtocol",
        }
    }
}

#[cfg(test)]
mod tests;
