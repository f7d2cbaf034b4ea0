//! What a node keeps of Services and EndpointSlices: it reads those of the whole cluster. Knows no rule.

use std::{net::IpAddr, sync::Arc};

use kubeapi::services::{Condition, Protocol, SourceRanges, Traffic};

/// `namespace/name` of a Service or a slice; the name of a range.
pub(crate) type ServiceKey = Arc<str>;

/// A Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) cluster: Vec<IpAddr>,
    /// `externalIPs`, and the addresses of load balancers.
    pub(crate) external: Vec<IpAddr>,
    /// Of which clients some of these take connections.
    pub(crate) source_ranges: Option<Box<SourceRanges>>,
    pub(crate) ports: Vec<ServicePort>,
    /// `healthCheckNodePort`, where it has a meaning.
    pub(crate) health_check: Option<u16>,
    /// `externalTrafficPolicy`
    pub(crate) outside: Traffic,
    /// `internalTrafficPolicy`
    pub(crate) inside: Traffic,
    /// `publishNotReadyAddresses`
    pub(crate) publishes_unready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServicePort {
    pub(crate) name: Box<str>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
}

/// An EndpointSlice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) service: Option<ServiceKey>,
    pub(crate) ports: Vec<SlicePort>,
    pub(crate) endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlicePort {
    pub(crate) name: Box<str>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: IpAddr,
    pub(crate) condition: Condition,
    pub(crate) node: Option<Arc<str>>,
}

impl Service {
    /// The condition of an endpoint of this Service.
    pub(crate) fn condition(&self, endpoint: &Endpoint) -> Condition {
        if self.publishes_unready { Condition::Ready } else { endpoint.condition }
    }
}
