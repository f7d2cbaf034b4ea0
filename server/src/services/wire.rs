//! Services, EndpointSlices and ServiceCIDRs as the API server spells them, reduced to the fields in use while they
//! are parsed: every node reads those of the whole cluster.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use kubeapi::watch::Watched;
use serde::{Deserialize, Deserializer};

use super::known::{Endpoint, Protocol, Service, ServiceKey, ServicePort, Slice, SlicePort};

/// Fields may be `null`.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    resource_version: String,
    #[serde(deserialize_with = "or_default")]
    labels: SliceLabels,
}

/// The label of a slice that is read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SliceLabels {
    #[serde(rename = "kubernetes.io/service-name")]
    service: Option<String>,
}

impl Metadata {
    fn key(&self) -> Result<ServiceKey, String> {
        if self.name.is_empty() {
            Err("it has no name".to_owned())
        } else {
            Ok(key(&self.namespace, &self.name))
        }
    }
}

fn key(namespace: &str, name: &str) -> ServiceKey {
    Arc::from(format!("{namespace}/{name}"))
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceObject {
    metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    spec: ServiceSpec,
    #[serde(deserialize_with = "or_default")]
    status: ServiceStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceSpec {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs", deserialize_with = "or_default")]
    external_ips: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<PortObject>,
    health_check_node_port: u16,
    external_traffic_policy: String,
    internal_traffic_policy: String,
    publish_not_ready_addresses: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PortObject {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    protocol: String,
    #[serde(deserialize_with = "or_default")]
    port: u16,
    #[serde(deserialize_with = "or_default")]
    node_port: u16,
}

impl PortObject {
    fn protocol(&self) -> Option<Protocol> {
        match self.protocol.as_str() {
            "" | "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "SCTP" => Some(Protocol::Sctp),
            // One of a later release of Kubernetes.
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceStatus {
    #[serde(deserialize_with = "or_default")]
    load_balancer: LoadBalancerStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct LoadBalancerStatus {
    #[serde(deserialize_with = "or_default")]
    ingress: Vec<Ingress>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Ingress {
    ip: String,
}

fn addresses<'a>(texts: impl IntoIterator<Item = &'a String>) -> impl Iterator<Item = IpAddr> {
    // `None` of a headless Service, and what an API server should not have let in, are no addresses.
    texts.into_iter().filter_map(|text| text.parse().ok())
}

impl Watched for ServiceObject {
    type Key = ServiceKey;
    type Value = (ServiceKey, Service);
    const PATH: &'static str = "/api/v1/services";
    const KIND: &'static str = "services";

    fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn key(&self) -> Result<ServiceKey, String> {
        self.metadata.key()
    }

    fn value(self) -> Result<Self::Value, String> {
        let key = self.metadata.key()?;
        let ServiceSpec { kind, cluster_ip, cluster_ips, external_ips, ports, .. } = &self.spec;
        // A name elsewhere, which the cluster's DNS knows.
        if kind == "ExternalName" {
            return Ok((key, Service::default()));
        }
        let first = if cluster_ips.is_empty() { std::slice::from_ref(cluster_ip) } else { cluster_ips };
        let ingress = self.status.load_balancer.ingress.iter().map(|ingress| &ingress.ip);
        let is_local = self.spec.external_traffic_policy == "Local" && kind == "LoadBalancer";
        let ports = ports.iter().filter_map(|port| {
            Some(ServicePort {
                name: port.name.as_str().into(),
                protocol: port.protocol()?,
                port: port.port,
                node_port: Some(port.node_port).filter(|port| *port != 0),
            })
        });
        Ok((
            key,
            Service {
                cluster: addresses(first).collect(),
                external: addresses(external_ips.iter().chain(ingress)).collect(),
                ports: ports.collect(),
                health_check: Some(self.spec.health_check_node_port).filter(|port| *port != 0 && is_local),
                is_internally_local: self.spec.internal_traffic_policy == "Local",
                publishes_unready: self.spec.publish_not_ready_addresses,
            },
        ))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SliceObject {
    metadata: Metadata,
    address_type: String,
    #[serde(deserialize_with = "or_default")]
    endpoints: Vec<EndpointObject>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<PortObject>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EndpointObject {
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    conditions: ConditionsObject,
    node_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ConditionsObject {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

impl Watched for SliceObject {
    type Key = ServiceKey;
    type Value = (ServiceKey, Slice);
    const PATH: &'static str = "/apis/discovery.k8s.io/v1/endpointslices";
    const KIND: &'static str = "endpointslices";

    fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn key(&self) -> Result<ServiceKey, String> {
        self.metadata.key()
    }

    fn value(self) -> Result<Self::Value, String> {
        let name = self.metadata.key()?;
        let service = self.metadata.labels.service.as_deref().filter(|service| !service.is_empty());
        let ports = self.ports.iter().filter_map(|port| {
            Some(SlicePort {
                name: port.name.as_str().into(),
                protocol: port.protocol()?,
                // Without a number: every port. A load balancer cannot have such an endpoint.
                port: Some(port.port).filter(|port| *port != 0)?,
            })
        });
        let ports = ports.collect();
        let is_v4 = self.address_type == "IPv4";
        let endpoint = |object: EndpointObject| {
            // The other addresses have no meaning (EndpointSlice of the API reference).
            let address: IpAddr = object.addresses.first()?.parse().ok()?;
            let ready = object.conditions.ready.unwrap_or(true);
            Some(Endpoint {
                address: Some(address).filter(|address| address.is_ipv4() == is_v4)?,
                is_ready: ready,
                is_serving: object.conditions.serving.unwrap_or(ready),
                is_terminating: object.conditions.terminating.unwrap_or_default(),
                node: object.node_name.map(Arc::from),
            })
        };
        // Names of hosts are not for load balancers.
        let objects = if self.address_type == "FQDN" { Vec::new() } else { self.endpoints };
        let slice = Slice {
            service: service.map(|service| key(&self.metadata.namespace, service)),
            ports,
            endpoints: objects.into_iter().filter_map(endpoint).collect(),
        };
        Ok((name, slice))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RangeObject {
    metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    spec: RangeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RangeSpec {
    #[serde(deserialize_with = "or_default")]
    cidrs: Vec<String>,
}

impl Watched for RangeObject {
    type Key = ServiceKey;
    type Value = (ServiceKey, Vec<IpNet>);
    const PATH: &'static str = "/apis/networking.k8s.io/v1/servicecidrs";
    const KIND: &'static str = "servicecidrs";

    fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn key(&self) -> Result<ServiceKey, String> {
        self.metadata.key()
    }

    fn value(self) -> Result<Self::Value, String> {
        let nets = self.spec.cidrs.iter().filter_map(|text| text.parse::<IpNet>().ok());
        // A range of all addresses would take every packet of this host.
        let nets = nets.filter(|net| net.prefix_len() > 0).map(|net| net.trunc());
        Ok((self.metadata.key()?, nets.collect()))
    }
}
