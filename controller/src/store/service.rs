//! The fields of Service and EndpointSlice objects that the store keeps.

use std::{net::IpAddr, sync::Arc};

use contract::names::ServiceKey;

use crate::{
    key::NodeName,
    rows::load_balancer::Protocol,
    trouble::{Family, ServiceTrouble},
};

/// A Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    pub uid: Arc<str>,
    /// Its addresses in the cluster, at most one of each family; none if it is headless or an `ExternalName`,
    /// or while they are not assigned.
    pub cluster_ips: Box<[IpAddr]>,
    /// `externalIPs`, and the load balancer's addresses.
    pub external_ips: Box<[IpAddr]>,
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
    /// The first of its values that cannot be used.
    pub trouble: Option<ServiceTrouble>,
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
    /// When the change happened that made this slice, in microseconds since 1970.
    pub triggered: Option<i64>,
    /// The first of its values that cannot be used.
    pub trouble: Option<ServiceTrouble>,
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
    pub node: Option<NodeName>,
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

/// The topology hints of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    pub zones: Box<[Arc<str>]>,
    pub nodes: Box<[NodeName]>,
}

impl Slice {
    /// The ports of this slice's endpoints that serve the Service's port.
    ///
    /// Names and protocols have to be equal. A Service's only port may have no name: as with upstream, each
    /// port of its protocol serves it then, whatever its name.
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
