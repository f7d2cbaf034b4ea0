//! Services, EndpointSlices and ServiceCIDRs ([`kubeapi::services`]), each reduced to what a node keeps as
//! soon as it is read: every node reads those of the whole cluster.

use std::{fmt::Display, sync::Arc};

use ipnet::IpNet;
use kubeapi::{
    services,
    watch::{Presence, Watched},
};
use serde::Deserialize;

use super::reduced::{Endpoint, Service, ServiceKey, ServicePort, Slice, SlicePort};

pub(super) type ServiceObject = Reduced<services::ServiceObject>;
pub(super) type SliceObject = Reduced<services::SliceObject>;
pub(super) type RangeObject = Reduced<services::RangeObject>;

/// An object of which a node keeps less than it says.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Reduced<T>(T);

/// What an object says.
pub(super) trait Reduce {
    type To: Send;

    fn reduce(self) -> Self::To;
}

impl<K, V, T> Watched for Reduced<T>
where
    K: Display,
    V: Reduce,
    T: Watched<Key = K, Value = (K, V)>,
{
    type Key = ServiceKey;
    type Value = (ServiceKey, V::To);
    const PATH: &'static str = T::PATH;
    const KIND: &'static str = T::KIND;
    const PRESENCE: Presence = T::PRESENCE;

    fn version(&self) -> &str {
        self.0.version()
    }

    fn key(&self) -> Result<ServiceKey, String> {
        Ok(self.0.key()?.to_string().into())
    }

    fn value(self) -> Result<Self::Value, String> {
        let (key, value) = self.0.value()?;
        Ok((key.to_string().into(), value.reduce()))
    }
}

impl Reduce for services::Service {
    type To = Service;

    fn reduce(self) -> Service {
        let services::Service {
            cluster_ips,
            external_ips,
            ports,
            source_ranges,
            internal,
            external,
            publish_not_ready,
            health_check,
            ..
        } = self;
        let port = |port: services::ServicePort| ServicePort {
            name: name(port.name),
            protocol: port.protocol,
            port: port.port,
            node_port: port.node_port,
        };
        Service {
            cluster: cluster_ips.into_vec(),
            external: external_ips.into_vec(),
            source_ranges,
            ports: ports.into_iter().map(port).collect(),
            health_check,
            outside: external,
            inside: internal,
            publishes_unready: publish_not_ready,
        }
    }
}

impl Reduce for services::Slice {
    type To = Slice;

    fn reduce(self) -> Slice {
        let services::Slice { service, ports, endpoints, family: _, triggered: _, unusable: _ } = self;
        let port = |port: services::SlicePort| {
            // Without a number: every port.
            Some(SlicePort { name: name(port.name), protocol: port.protocol, port: port.port? })
        };
        let endpoint = |endpoint: services::Endpoint| {
            let services::Endpoint { address, condition, node, hints: _ } = endpoint;
            Endpoint { address, condition, node }
        };
        Slice {
            service: service.map(|service| service.as_str().into()),
            ports: ports.into_iter().filter_map(port).collect(),
            endpoints: endpoints.into_iter().map(endpoint).collect(),
        }
    }
}

/// Names are compared with each other: no name is an empty one.
fn name(name: Option<Arc<str>>) -> Box<str> {
    name.as_deref().unwrap_or_default().into()
}

impl Reduce for Box<[IpNet]> {
    type To = Vec<IpNet>;

    fn reduce(self) -> Vec<IpNet> {
        self.into_vec()
    }
}
