//! Services and EndpointSlices of the API, reduced to the fields in use.
//!
//! A value that cannot be used is left out, and the first one is named: one bad port must not take away the
//! others.

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use contract::names::{ServiceKey, SliceKey};
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, api::ObjectMeta, core::NamespaceResourceScope};
use serde::Deserialize;

use super::metadata;
use crate::{
    rows::load_balancer::Protocol,
    store::service::{Condition, Endpoint, Hints, Service, ServicePort, Slice, SlicePort, Traffic},
    trouble::{Family, ServiceTrouble},
};

/// The annotation of a Service that has no endpoints because nobody used it.
pub(super) const IDLED_AT: &str = "k8s.ovn.org/idled-at";
/// The annotation of a slice with the time of the change that made it.
pub(super) const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The label of a slice with the Service's name.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The label of a Service, and of its slices, that no proxy serves.
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// The label of a Service that another proxy serves.
pub(super) const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// The headless address.
const NONE: &str = "None";
/// The timeout of an affinity without one, in seconds: the API's default.
const AFFINITY: u32 = 10_800;
/// Bytes of a value in a message.
const SHOWN: usize = 64;

/// A Service of the API. Its metadata are name, namespace, UID, resource version, timestamps and the
/// annotation of an idled one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ServiceObject {
    #[serde(deserialize_with = "metadata::of_service")]
    pub metadata: ObjectMeta,
    pub spec: ServiceSpec,
    pub status: ServiceStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    pub r#type: Option<String>,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Option<Vec<String>>,
    #[serde(rename = "externalIPs")]
    pub external_ips: Option<Vec<String>>,
    pub ports: Option<Vec<PortSpec>>,
    pub session_affinity: Option<String>,
    pub session_affinity_config: Option<AffinityConfig>,
    pub internal_traffic_policy: Option<String>,
    pub external_traffic_policy: Option<String>,
    pub publish_not_ready_addresses: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PortSpec {
    pub name: Option<String>,
    pub protocol: Option<String>,
    pub port: i64,
    pub target_port: Option<Target>,
    pub node_port: Option<i64>,
}

/// A port's number, or the name that each pod gives a number of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Target {
    Number(i64),
    Name(serde::de::IgnoredAny),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AffinityConfig {
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientIp {
    pub timeout_seconds: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceStatus {
    pub load_balancer: Option<LoadBalancerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    pub ingress: Option<Vec<Ingress>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ingress {
    pub ip: Option<String>,
    pub ip_mode: Option<String>,
}

/// An EndpointSlice of the API. Its metadata are name, namespace, resource version, timestamps, the label
/// with its Service and the annotation with the time of its change.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SliceObject {
    #[serde(deserialize_with = "metadata::of_slice")]
    pub metadata: ObjectMeta,
    pub address_type: Option<String>,
    pub endpoints: Option<Vec<EndpointSpec>>,
    pub ports: Option<Vec<SlicePortSpec>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSpec {
    pub addresses: Option<Vec<String>>,
    pub conditions: Option<Conditions>,
    pub node_name: Option<String>,
    pub hints: Option<HintsSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Conditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HintsSpec {
    pub for_zones: Option<Vec<Named>>,
    pub for_nodes: Option<Vec<Named>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Named {
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SlicePortSpec {
    pub name: Option<String>,
    pub protocol: Option<String>,
    pub port: Option<i64>,
}

impl ServiceObject {
    /// The Service that the object describes.
    pub fn into_service(self) -> Service {
        let ObjectMeta { uid, annotations, labels, .. } = self.metadata;
        let ServiceSpec {
            r#type,
            cluster_ip,
            cluster_ips,
            external_ips,
            ports,
            session_affinity,
            session_affinity_config,
            internal_traffic_policy,
            external_traffic_policy,
            publish_not_ready_addresses,
        } = self.spec;
        let mut trouble = None;
        // An `ExternalName` may have kept the addresses of its former type. Labels leave the Service to another
        // proxy, or to none.
        let has_addresses = r#type.as_deref() != Some("ExternalName") && labels.is_none();
        let inside = cluster_ips.unwrap_or_else(|| cluster_ip.into_iter().collect());
        let inside: Vec<&str> = inside
            .iter()
            .map(String::as_str)
            .filter(|address| has_addresses && !address.is_empty() && *address != NONE)
            .collect();
        let ingress = self.status.load_balancer.and_then(|status| status.ingress).unwrap_or_default();
        // With the mode `Proxy` the load balancer wants to see the connections itself (KEP-1860).
        let ingress = ingress.iter().filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
        let ingress = ingress.filter_map(|ingress| ingress.ip.as_deref()).filter(|ip| !ip.is_empty());
        let external_ips = external_ips.unwrap_or_default();
        let cluster_ips = addresses("clusterIPs", inside, &mut trouble);
        let mut outside =
            addresses("externalIPs", external_ips.iter().map(String::as_str), &mut trouble).into_vec();
        outside.extend(addresses("status.loadBalancer.ingress", ingress, &mut trouble));
        outside.sort_unstable();
        outside.dedup();
        let timeout = || {
            let configured = session_affinity_config.and_then(|config| config.client_ip?.timeout_seconds);
            configured.filter(|seconds| *seconds > 0).unwrap_or(AFFINITY)
        };
        let ports = ports.unwrap_or_default().into_iter().filter_map(|spec| port(spec, &mut trouble));
        Service {
            uid: uid.unwrap_or_default().into(),
            cluster_ips,
            external_ips: outside.into(),
            ports: ports.collect(),
            affinity: (session_affinity.as_deref() == Some("ClientIP")).then(timeout),
            internal: traffic(internal_traffic_policy),
            external: traffic(external_traffic_policy),
            publish_not_ready: publish_not_ready_addresses.unwrap_or_default(),
            idled: annotations.is_some_and(|annotations| annotations.contains_key(IDLED_AT)),
            trouble,
        }
    }
}

fn addresses<'a>(
    field: &'static str,
    texts: impl IntoIterator<Item = &'a str>,
    trouble: &mut Option<ServiceTrouble>,
) -> Box<[IpAddr]> {
    let parse = |text: &str| match text.parse::<IpAddr>() {
        Ok(address) => Some(address),
        Err(_) => {
            trouble.get_or_insert_with(|| ServiceTrouble::NoAddress { field, value: shown(text) });
            None
        }
    };
    texts.into_iter().filter_map(parse).collect()
}

fn port(spec: PortSpec, trouble: &mut Option<ServiceTrouble>) -> Option<ServicePort> {
    let PortSpec { name, protocol: word, port, target_port, node_port } = spec;
    let place = || "the Service";
    Some(ServicePort {
        name: name.filter(|name| !name.is_empty()).map(Into::into),
        protocol: protocol(word, place, trouble)?,
        port: number(port, place, trouble)?,
        target: match target_port {
            Some(Target::Number(0) | Target::Name(_)) | None => None,
            Some(Target::Number(port)) => number(port, place, trouble),
        },
        node_port: node_port.filter(|port| *port != 0).and_then(|port| number(port, place, trouble)),
    })
}

fn traffic(policy: Option<String>) -> Traffic {
    if policy.as_deref() == Some("Local") { Traffic::Local } else { Traffic::Cluster }
}

impl SliceObject {
    /// The slice that the object describes.
    pub fn into_slice(self, key: &SliceKey) -> Slice {
        let ObjectMeta { labels, annotations, .. } = self.metadata;
        let labels = labels.filter(|labels| !labels.contains_key(HEADLESS));
        let service = labels.and_then(|mut labels| labels.remove(SERVICE_NAME));
        let service = service.and_then(|name| ServiceKey::new(key.namespace(), &name).ok());
        let family = match self.address_type.as_deref() {
            Some("IPv4") => Some(Family::V4),
            Some("IPv6") => Some(Family::V6),
            // `FQDN`, which is deprecated and has never had a meaning for Services.
            _ => None,
        };
        let mut trouble = None;
        let place = || "an EndpointSlice";
        let ports = self.ports.unwrap_or_default().into_iter().filter_map(|spec| {
            let SlicePortSpec { name, protocol: word, port } = spec;
            Some(SlicePort {
                name: name.filter(|name| !name.is_empty()).map(Into::into),
                protocol: protocol(word, place, &mut trouble)?,
                port: match port {
                    Some(port) => Some(number(port, place, &mut trouble)?),
                    None => None,
                },
            })
        });
        let mut ports: Box<[SlicePort]> = ports.collect();
        ports.sort_by(|a, b| (a.protocol, &a.name).cmp(&(b.protocol, &b.name)));
        let endpoints = self.endpoints.unwrap_or_default().into_iter();
        let endpoints = endpoints.filter_map(|spec| endpoint(spec, family?, key, &mut trouble)).collect();
        let triggered = annotations.and_then(|mut annotations| annotations.remove(LAST_CHANGE));
        let triggered = triggered.and_then(|time| time.parse::<Timestamp>().ok());
        Slice {
            service,
            family,
            ports,
            endpoints,
            triggered: triggered.map(|time| time.as_microsecond()),
            trouble,
        }
    }
}

fn endpoint(
    spec: EndpointSpec,
    family: Family,
    slice: &SliceKey,
    trouble: &mut Option<ServiceTrouble>,
) -> Option<Endpoint> {
    let EndpointSpec { addresses, conditions, node_name, hints } = spec;
    // Further addresses are of the same endpoint; nobody uses them (EndpointSlice API, `addresses`).
    let text = addresses?.into_iter().next()?;
    let Some(address) = text.parse::<IpAddr>().ok().filter(|address| Family::of(address) == family) else {
        trouble.get_or_insert_with(|| ServiceTrouble::OtherFamily {
            slice: shown(&slice.to_string()),
            family,
            value: shown(&text),
        });
        return None;
    };
    let Conditions { ready, serving, terminating } = conditions.unwrap_or_default();
    // Unknown counts as ready, and as serving.
    let condition = match (ready.unwrap_or(true), serving.unwrap_or(true), terminating.unwrap_or(false)) {
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
fn protocol(
    word: Option<String>,
    place: impl Fn() -> &'static str,
    trouble: &mut Option<ServiceTrouble>,
) -> Option<Protocol> {
    let Some(word) = word.filter(|word| !word.is_empty()) else { return Some(Protocol::Tcp) };
    let found = Protocol::ALL.into_iter().find(|protocol| protocol.as_str() == word);
    if found.is_none() {
        trouble.get_or_insert_with(|| ServiceTrouble::OtherProtocol {
            place: place().into(),
            protocol: shown(&word),
        });
    }
    found
}

fn number(port: i64, place: impl Fn() -> &'static str, trouble: &mut Option<ServiceTrouble>) -> Option<u16> {
    let found = u16::try_from(port).ok().filter(|port| *port != 0);
    if found.is_none() {
        trouble.get_or_insert_with(|| ServiceTrouble::NoPort { place: place().into(), port });
    }
    found
}

fn shown(text: &str) -> Box<str> {
    text.chars().take(SHOWN).collect::<String>().into()
}

impl Resource for ServiceObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Service".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "services".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for SliceObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "EndpointSlice".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "discovery.k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "endpointslices".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
