//! The objects as the API spells them, reduced to the fields in use while they are parsed. Any
//! field may be missing or `null`.

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc};

use contract::{
    applied_annotation::{self, REPORT_APPLIED},
    names::{ServiceKey, SliceKey},
    node_annotation::NodeAnnotations,
};
use ipnet::IpNet;
use k8s_openapi::jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::{
    Condition, Endpoint, Family, Hints, Protocol, Service, ServicePort, Slice, SlicePort,
    SourceRanges, Traffic, Unusable,
};
use crate::{address, watch::Presence, watched};

/// The headless address.
const NONE: &str = "None";
/// The timeout of an affinity without one, in seconds: the API's default.
const AFFINITY: u32 = 10_800;
/// Bytes of a value in a message.
const SHOWN: usize = 64;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<String>,
    labels: Option<Labels>,
    annotations: Option<Annotations>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Labels {
    /// Of a slice: the name of its Service.
    #[serde(rename = "kubernetes.io/service-name")]
    service: Option<String>,
    /// Of a Service and its slices: no proxy serves it.
    #[serde(rename = "service.kubernetes.io/headless")]
    headless: Option<IgnoredAny>,
    /// Of a Service: the proxy that serves it.
    #[serde(rename = "service.kubernetes.io/service-proxy-name")]
    proxy: Option<IgnoredAny>,
}

/// The end of the annotation of a Service that has no endpoints because nobody used it. Each
/// program that idles Services has its own domain before it, such as `idling.alpha.openshift.io`.
const IDLED: &str = "/idled-at";
/// The annotation of a slice with the time of the change that made it.
const CHANGED: &str = "endpoints.kubernetes.io/last-change-trigger-time";

#[derive(Debug, Clone, Default)]
struct Annotations {
    idled: bool,
    reports_applied: bool,
    changed: Option<String>,
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Annotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let mut found = Annotations::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == CHANGED {
                        found.changed = map.next_value()?;
                    } else if name == REPORT_APPLIED {
                        let value = map.next_value::<Option<String>>()?;
                        found.reports_applied = applied_annotation::asks(value.as_deref());
                    } else {
                        let is_there = map.next_value::<Option<IgnoredAny>>()?.is_some();
                        found.idled |= is_there && name.ends_with(IDLED);
                    }
                }
                Ok(found)
            }
        }

        deserializer.deserialize_map(Map)
    }
}

impl Metadata {
    fn service(&self) -> Result<ServiceKey, String> {
        let Self { namespace, name, .. } = self;
        ServiceKey::new(
            namespace.as_deref().unwrap_or_default(),
            name.as_deref().unwrap_or_default(),
        )
        .map_err(|error| error.to_string())
    }

    fn slice(&self) -> Result<SliceKey, String> {
        let Self { namespace, name, .. } = self;
        SliceKey::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
            .map_err(|error| error.to_string())
    }

    fn name(&self) -> Result<Arc<str>, String> {
        Ok(self.name.as_deref().filter(|name| !name.is_empty()).ok_or("it has no name")?.into())
    }
}

/// A Service of the API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ServiceObject {
    metadata: Metadata,
    spec: Option<ServiceSpec>,
    status: Option<ServiceStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceSpec {
    r#type: Option<String>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Option<Vec<String>>,
    #[serde(rename = "externalIPs")]
    external_ips: Option<Vec<String>>,
    load_balancer_source_ranges: Option<Vec<String>>,
    ports: Option<Vec<PortSpec>>,
    session_affinity: Option<String>,
    session_affinity_config: Option<AffinityConfig>,
    internal_traffic_policy: Option<String>,
    external_traffic_policy: Option<String>,
    publish_not_ready_addresses: Option<bool>,
    health_check_node_port: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PortSpec {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<i64>,
    target_port: Option<Target>,
    node_port: Option<i64>,
}

/// A port's number, or the name that each pod gives a number of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Target {
    Number(i64),
    Name(IgnoredAny),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: Option<ClientIp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientIp {
    timeout_seconds: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceStatus {
    load_balancer: Option<LoadBalancerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct LoadBalancerStatus {
    ingress: Option<Vec<Ingress>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ingress {
    ip: Option<String>,
    ip_mode: Option<String>,
}

/// An EndpointSlice of the API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SliceObject {
    metadata: Metadata,
    address_type: Option<String>,
    endpoints: Option<Vec<EndpointSpec>>,
    ports: Option<Vec<SlicePortSpec>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EndpointSpec {
    addresses: Option<Vec<String>>,
    conditions: Option<Conditions>,
    node_name: Option<String>,
    hints: Option<HintsSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HintsSpec {
    for_zones: Option<Vec<Named>>,
    for_nodes: Option<Vec<Named>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlicePortSpec {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<i64>,
}

/// A Node of the API, of which only metadata are read.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeAddressesObject {
    metadata: NodeMetadata,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeMetadata {
    name: Option<String>,
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

impl NodeMetadata {
    fn name(&self) -> Result<Arc<str>, String> {
        Ok(self.name.as_deref().filter(|name| !name.is_empty()).ok_or("it has no name")?.into())
    }
}

/// A ServiceCIDR of the API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RangeObject {
    metadata: Metadata,
    spec: Option<RangeSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct RangeSpec {
    cidrs: Option<Vec<String>>,
}

watched! {
    ServiceObject, "services" at "/api/v1/services",
        ServiceKey = Metadata::service, (ServiceKey, Service) = ServiceObject::service;
    SliceObject, "endpointslices" at "/apis/discovery.k8s.io/v1/endpointslices",
        SliceKey = Metadata::slice, (SliceKey, Slice) = SliceObject::slice;
    RangeObject, "servicecidrs" at "/apis/networking.k8s.io/v1/servicecidrs",
        Arc<str> = Metadata::name, (Arc<str>, Box<[IpNet]>) = RangeObject::ranges, Presence::Newer;
    NodeAddressesObject, "nodes" at "/api/v1/nodes",
        Arc<str> = NodeMetadata::name, (Arc<str>, Box<[IpAddr]>) = NodeAddressesObject::addresses;
}

impl ServiceObject {
    fn service(self) -> Result<(ServiceKey, Service), String> {
        let key = self.metadata.service()?;
        let Metadata { uid, creation_timestamp, labels, annotations, .. } = self.metadata;
        let created = creation_timestamp.and_then(|time| time.parse::<Timestamp>().ok());
        let ServiceSpec {
            r#type,
            cluster_ip,
            cluster_ips,
            external_ips,
            load_balancer_source_ranges,
            ports,
            session_affinity,
            session_affinity_config,
            internal_traffic_policy,
            external_traffic_policy,
            publish_not_ready_addresses,
            health_check_node_port,
        } = self.spec.unwrap_or_default();
        let mut unusable = None;
        let labels = labels.unwrap_or_default();
        let annotations = annotations.unwrap_or_default();
        // An `ExternalName` may have kept the addresses of its former type. Labels leave the
        // Service to another proxy, or to none.
        let has_addresses = r#type.as_deref() != Some("ExternalName")
            && labels.headless.is_none()
            && labels.proxy.is_none();
        let inside = cluster_ips.unwrap_or_else(|| cluster_ip.into_iter().collect());
        let inside = inside
            .iter()
            .map(String::as_str)
            .filter(|address| !address.is_empty() && *address != NONE);
        let inside: Vec<&str> = inside.filter(|_| has_addresses).collect();
        let ingress =
            self.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
        // With the mode `Proxy` the load balancer wants to see the connections itself (KEP-1860).
        let ingress = ingress.iter().filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
        let ingress =
            ingress.filter_map(|ingress| ingress.ip.as_deref()).filter(|ip| !ip.is_empty());
        let ingress = ingress.filter(|_| has_addresses);
        let external_ips = external_ips.filter(|_| has_addresses).unwrap_or_default();
        let cluster_ips = addresses("clusterIPs", inside, &mut unusable);
        let external_ips = sorted(addresses(
            "externalIPs",
            external_ips.iter().map(String::as_str),
            &mut unusable,
        ));
        let ingress_ips = sorted(addresses("status.loadBalancer.ingress", ingress, &mut unusable));
        let is_limited = |address: &IpAddr| external_ips.binary_search(address).is_err();
        let limited: Box<[IpAddr]> = ingress_ips.iter().copied().filter(is_limited).collect();
        let clients =
            load_balancer_source_ranges.filter(|ranges| !(ranges.is_empty() || limited.is_empty()));
        let source_ranges = clients
            .map(|texts| Box::new(SourceRanges::new(limited, networks(&texts, &mut unusable))));
        let timeout = || {
            let configured =
                session_affinity_config.and_then(|config| config.client_ip?.timeout_seconds);
            configured.filter(|seconds| *seconds > 0).unwrap_or(AFFINITY)
        };
        let external = traffic(external_traffic_policy);
        let checks_health = external == Traffic::Local && r#type.as_deref() == Some("LoadBalancer");
        let health_check = health_check_node_port.filter(|port| *port != 0 && checks_health);
        let ports =
            ports.unwrap_or_default().into_iter().filter_map(|spec| port(spec, &mut unusable));
        let service = Service {
            uid: uid.unwrap_or_default().into(),
            created: created.map_or(0, Timestamp::as_second),
            cluster_ips,
            external_ips,
            ingress_ips,
            source_ranges,
            ports: ports.collect(),
            affinity: (session_affinity.as_deref() == Some("ClientIP")).then(timeout),
            internal: traffic(internal_traffic_policy),
            external,
            publish_not_ready: publish_not_ready_addresses.unwrap_or_default(),
            idled: annotations.idled,
            reports_applied: annotations.reports_applied,
            health_check: health_check.and_then(|port| number(port, OF_SERVICE, &mut unusable)),
            unusable,
        };
        Ok((key, service))
    }
}

const OF_SERVICE: &str = "the Service";
const OF_SLICE: &str = "an EndpointSlice";

/// The first value that cannot be used.
type First = Option<Box<Unusable>>;

fn note(first: &mut First, unusable: impl FnOnce() -> Unusable) {
    first.get_or_insert_with(|| Box::new(unusable()));
}

fn addresses<'a>(
    field: &'static str,
    texts: impl IntoIterator<Item = &'a str>,
    first: &mut First,
) -> Box<[IpAddr]> {
    let parse = |text: &str| {
        let address = address::parse(text);
        if address.is_none() {
            note(first, || Unusable::NoAddress { field, value: shown(text) });
        }
        address
    };
    texts.into_iter().filter_map(parse).collect()
}

fn sorted(addresses: Box<[IpAddr]>) -> Box<[IpAddr]> {
    let mut addresses = addresses.into_vec();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into()
}

/// The networks of clients. Those that are in each other, or next to each other, are one.
fn networks(texts: &[String], first: &mut First) -> Box<[IpNet]> {
    let parse = |text: &String| {
        // The API trims them (`ServiceSpec`, validation).
        let network = address::parse_net(text.trim());
        if network.is_none() {
            note(first, || Unusable::NoNetwork {
                field: "loadBalancerSourceRanges",
                value: shown(text),
            });
        }
        network.map(|network| network.trunc())
    };
    IpNet::aggregate(&texts.iter().filter_map(parse).collect()).into()
}

fn port(spec: PortSpec, first: &mut First) -> Option<ServicePort> {
    let PortSpec { name, protocol: word, port, target_port, node_port } = spec;
    Some(ServicePort {
        name: name.filter(|name| !name.is_empty()).map(Into::into),
        protocol: protocol(word, OF_SERVICE, first)?,
        port: number(port.unwrap_or_default(), OF_SERVICE, first)?,
        target: match target_port {
            Some(Target::Number(0) | Target::Name(_)) | None => None,
            Some(Target::Number(port)) => number(port, OF_SERVICE, first),
        },
        node_port: node_port
            .filter(|port| *port != 0)
            .and_then(|port| number(port, OF_SERVICE, first)),
    })
}

fn traffic(policy: Option<String>) -> Traffic {
    if policy.as_deref() == Some("Local") { Traffic::Local } else { Traffic::Cluster }
}

impl SliceObject {
    fn slice(self) -> Result<(SliceKey, Slice), String> {
        let key = self.metadata.slice()?;
        let Metadata { labels, annotations, .. } = self.metadata;
        let labels = labels.filter(|labels| labels.headless.is_none());
        let service =
            labels.and_then(|labels| ServiceKey::new(key.namespace(), &labels.service?).ok());
        let family = match self.address_type.as_deref() {
            Some("IPv4") => Some(Family::V4),
            Some("IPv6") => Some(Family::V6),
            // `FQDN`, which is deprecated and has never had a meaning for Services.
            _ => None,
        };
        let mut unusable = None;
        let ports = self.ports.unwrap_or_default().into_iter().filter_map(|spec| {
            let SlicePortSpec { name, protocol: word, port } = spec;
            Some(SlicePort {
                name: name.filter(|name| !name.is_empty()).map(Into::into),
                protocol: protocol(word, OF_SLICE, &mut unusable)?,
                port: match port {
                    Some(port) => Some(number(port, OF_SLICE, &mut unusable)?),
                    None => None,
                },
            })
        });
        let mut ports: Box<[SlicePort]> = ports.collect();
        ports.sort_by(|a, b| (a.protocol, &a.name).cmp(&(b.protocol, &b.name)));
        let endpoints = self.endpoints.unwrap_or_default().into_iter();
        let endpoints: Box<[Endpoint]> =
            endpoints.filter_map(|spec| endpoint(spec, family?, &key, &mut unusable)).collect();
        let endpoints_count = endpoints.len();
        let triggered =
            annotations.and_then(|annotations| annotations.changed?.parse::<Timestamp>().ok());
        let triggered = triggered.map(|time| time.as_microsecond());
        Ok((key, Slice { service, family, ports, endpoints, endpoints_count, triggered, unusable }))
    }
}

fn endpoint(
    spec: EndpointSpec,
    family: Family,
    slice: &SliceKey,
    first: &mut First,
) -> Option<Endpoint> {
    let EndpointSpec { addresses, conditions, node_name, hints } = spec;
    // Further addresses are of the same endpoint; nobody uses them (EndpointSlice API,
    // `addresses`).
    let text = addresses?.into_iter().next()?;
    let Some(address) = address::parse(&text).filter(|address| Family::of(address) == family)
    else {
        note(first, || Unusable::OtherFamily {
            slice: shown(&slice.to_string()),
            family,
            value: shown(&text),
        });
        return None;
    };
    let Conditions { ready, serving, terminating } = conditions.unwrap_or_default();
    // Unknown counts as ready, and as serving.
    let condition =
        match (ready.unwrap_or(true), serving.unwrap_or(true), terminating.unwrap_or(false)) {
            (true, ..) => Condition::Ready,
            (false, true, true) => Condition::Serving,
            (false, ..) => Condition::Neither,
        };
    let HintsSpec { for_zones, for_nodes } = hints.unwrap_or_default();
    let names = |named: Option<Vec<Named>>| -> Box<[Arc<str>]> {
        named.unwrap_or_default().into_iter().map(|named| named.name.into()).collect()
    };
    let hints = Hints { zones: names(for_zones), nodes: names(for_nodes) };
    Some(Endpoint {
        address,
        condition,
        node: node_name.filter(|name| !name.is_empty()).map(Into::into),
        hints: (hints != Hints::default()).then(|| Box::new(hints)),
    })
}

/// The protocol; TCP if none is named.
fn protocol(word: Option<String>, place: &'static str, first: &mut First) -> Option<Protocol> {
    let Some(word) = word.filter(|word| !word.is_empty()) else { return Some(Protocol::Tcp) };
    let found = Protocol::ALL.into_iter().find(|protocol| protocol.as_str() == word);
    if found.is_none() {
        note(first, || Unusable::OtherProtocol { place, protocol: shown(&word) });
    }
    found
}

fn number(port: i64, place: &'static str, first: &mut First) -> Option<u16> {
    let found = u16::try_from(port).ok().filter(|port| *port != 0);
    if found.is_none() {
        note(first, || Unusable::NoPort { place, port });
    }
    found
}

fn shown(text: &str) -> Box<str> {
    text.chars().take(SHOWN).collect::<String>().into()
}

impl RangeObject {
    fn ranges(self) -> Result<(Arc<str>, Box<[IpNet]>), String> {
        let texts = self.spec.and_then(|spec| spec.cidrs).unwrap_or_default();
        let nets = texts.iter().filter_map(|text| address::parse_net(text));
        // A range of all addresses would take every packet.
        let nets = nets.filter(|net| net.prefix_len() > 0).map(|net| net.trunc());
        Ok((self.metadata.name()?, nets.collect()))
    }
}

impl NodeAddressesObject {
    /// The addresses at which others know the node.
    fn addresses(self) -> Result<(Arc<str>, Box<[IpAddr]>), String> {
        let annotations = self.metadata.annotations.as_ref();
        let own = annotations.map(|annotations| NodeAnnotations(annotations).own_addresses());
        Ok((self.metadata.name()?, own.unwrap_or_default().into()))
    }
}
