//! The network of one pod, from the annotation that the control plane wrote.
//!
//! Reads the annotation `k8s.ovn.org/pod-networks`, or else the older `ovn`, and writes both. Knows
//! nothing of where the annotation came from, of CNI or of Open vSwitch. Other programs and users
//! can write annotations, so they may be old, hand-edited or hostile. Everything is checked once,
//! here; a [`PodNetwork`] needs no second check.

mod write;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;
use serde::Deserialize;

use crate::{mac::Mac, names::Network};

/// The annotation: a JSON object from network names to their settings.
pub const POD_NETWORKS: &str = "k8s.ovn.org/pod-networks";
/// The annotation of clusters before 2020: the settings of the cluster's own network alone.
pub const LEGACY: &str = "ovn";
/// Annotation with the source of a pod: `api`, or a file on the node (kubernetes,
/// `pkg/kubelet/types`).
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Annotation with the kubelet's hash of a pod that comes from a file (a static pod). It serves as
/// UID on the node; the mirror pod in the API server has a UID of its own.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// Bytes that Kubernetes allows for all annotations of an object together (apimachinery,
/// `validation.TotalAnnotationSizeLimitB`).
const MAX_BYTES: usize = 256 * 1024;
/// The largest number of routes. Control planes write one for each subnet of cluster and services,
/// and a few more. Each route costs the plugin a netlink request, so a hostile annotation must not
/// set the number.
const MAX_ROUTES: usize = 256;

/// A pod's settings on one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNetwork {
    /// Of the interface inside the pod.
    pub mac: Mac,
    /// With the prefix length of the node's subnet. On the cluster's own network, at most one of
    /// each family. Empty only on networks without address management.
    pub addresses: Vec<IpNet>,
    /// At most one for each family of which the pod has an address.
    pub gateways: Vec<IpAddr>,
    /// Routes besides the default routes.
    pub routes: Vec<Route>,
    pub role: Role,
    /// The tunnel key of a layer-2 network; 0 if there is none.
    pub tunnel_id: u32,
    /// The only router whose advertisements a pod of a layer-2 network may accept.
    pub ipv6_link_local_gateway: Option<Ipv6Addr>,
}

/// A route inside the pod. The default route is a gateway, not a `Route`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub destination: IpNet,
    /// `None` for a destination on the link itself.
    pub next_hop: Option<IpAddr>,
}

/// The role of a network for a pod with several networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Carries the default route. Also the meaning of a missing role: older control planes write
    /// none.
    Primary,
    Secondary,
    /// Reachable only from the node, because another network is the primary one.
    InfrastructureLocked,
}

/// Why an annotation cannot be used. All of these are permanent: the same text fails again.
#[derive(Debug, thiserror::Error)]
pub enum AnnotationError {
    #[error("{0} bytes, more than the {MAX_BYTES} that an object may carry")]
    TooLong(usize),
    #[error("not the JSON that is expected here")]
    Json(#[from] serde_json::Error),
    #[error("{field} {value:?} is not {expected}")]
    Value { field: &'static str, value: String, expected: &'static str },
    #[error("{0} and {1} contradict each other")]
    Conflict(&'static str, &'static str),
    #[error("no address")]
    NoAddress,
    #[error("two of one family in {field}: {first} and {second}")]
    SameFamily { field: &'static str, first: IpAddr, second: IpAddr },
    #[error("gateway {0} has no address of its family")]
    LoneGateway(IpAddr),
    #[error("address {0} cannot belong to a pod")]
    NotAHost(IpAddr),
    #[error("route to {0}: a default route belongs into gateway_ips")]
    DefaultRoute(IpNet),
    #[error("route to {0}: next hop {1} is of the other family")]
    MixedRoute(IpNet, IpAddr),
    #[error("{0} routes, more than {MAX_ROUTES}")]
    TooManyRoutes(usize),
}

impl PodNetwork {
    /// The settings of `network` in a pod's annotations; `None` until the control plane has written
    /// them.
    ///
    /// # Errors
    /// The annotation is too long, is not JSON of the expected shape, or has a value that cannot be
    /// used; the first problem is named. The same text fails again.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
        network: &Network,
    ) -> Result<Option<Self>, AnnotationError> {
        if let Some(text) = annotations.get(POD_NETWORKS) {
            return Self::parse(text, network);
        }
        match (annotations.get(LEGACY), network) {
            // The key is a short one, and other programs use it, too: an unreadable text is not
            // about this network.
            (Some(text), Network::Default) => Ok(Self::parse_legacy(text).ok()),
            _ => Ok(None),
        }
    }

    /// The settings of `network` in the text of `k8s.ovn.org/pod-networks`; `None` if the text has
    /// no entry for it.
    ///
    /// # Errors
    /// As for [`from_annotations`](Self::from_annotations). Entries of other networks must be JSON,
    /// but are not checked any further.
    pub fn parse(text: &str, network: &Network) -> Result<Option<Self>, AnnotationError> {
        check_length(text)?;
        let mut networks: BTreeMap<String, serde_json::Value> = serde_json::from_str(text)?;
        let Some(settings) = networks.remove(network.annotation_key()) else {
            return Ok(None);
        };
        let parsed: Self = serde_json::from_value::<PodNetworkJson>(settings)?.try_into()?;
        match network {
            Network::Default => parsed.of_cluster().map(Some),
            // Such a network may have several subnets of one family, and a pod an address in each.
            Network::Attachment { .. } => Ok(Some(parsed)),
        }
    }

    /// The settings in the older annotation: JSON, or (written before 2017-09) a dictionary as
    /// Python prints it.
    fn parse_legacy(text: &str) -> Result<Self, AnnotationError> {
        check_length(text)?;
        let wire: PodNetworkJson = serde_json::from_str(text).or_else(|error| {
            serde_json::from_str(&text.replace("u'", "'").replace('\'', "\"")).map_err(|_| error)
        })?;
        Self::try_from(wire)?.of_cluster()
    }

    /// Additional checks for the cluster's own network.
    fn of_cluster(self) -> Result<Self, AnnotationError> {
        if self.addresses.is_empty() {
            return Err(AnnotationError::NoAddress);
        }
        one_per_family(
            "ip_addresses",
            &self.addresses.iter().map(IpNet::addr).collect::<Vec<_>>(),
        )?;
        Ok(self)
    }
}

/// Whether the text of `k8s.ovn.org/pod-networks` has entries of other networks than this one.
/// False if it cannot be read.
pub fn names_others(text: &str, network: &Network) -> bool {
    check_length(text).is_ok()
        && serde_json::from_str::<BTreeMap<String, serde::de::IgnoredAny>>(text)
            .is_ok_and(|networks| networks.keys().any(|name| name != network.annotation_key()))
}

/// One network's settings as spelled in JSON. `ip_address` and `gateway_ip` are the older,
/// single-stack spelling.
#[derive(Deserialize)]
struct PodNetworkJson {
    mac_address: String,
    ip_addresses: Option<Vec<String>>,
    ip_address: Option<String>,
    gateway_ips: Option<Vec<String>>,
    gateway_ip: Option<String>,
    routes: Option<Vec<RouteJson>>,
    role: Option<String>,
    tunnel_id: Option<u32>,
    ipv6_lla_gateway_ip: Option<String>,
}

#[derive(Deserialize)]
struct RouteJson {
    dest: String,
    #[serde(rename = "nextHop", default)]
    next_hop: String,
}

impl TryFrom<PodNetworkJson> for PodNetwork {
    type Error = AnnotationError;

    fn try_from(wire: PodNetworkJson) -> Result<Self, AnnotationError> {
        // Complete on purpose: a new field has to be handled here before this compiles.
        let PodNetworkJson {
            mac_address,
            ip_addresses,
            ip_address,
            gateway_ips,
            gateway_ip,
            routes,
            role,
            tunnel_id,
            ipv6_lla_gateway_ip,
        } = wire;

        let addresses: Vec<IpNet> = list_or_single(
            ("ip_addresses", ip_addresses),
            ("ip_address", ip_address),
            "an address with its prefix length",
        )?;
        let gateways: Vec<IpAddr> = list_or_single(
            ("gateway_ips", gateway_ips),
            ("gateway_ip", gateway_ip),
            "an IP address",
        )?;
        let hosts: Vec<IpAddr> = addresses.iter().map(IpNet::addr).collect();
        // Each gateway becomes a default route, and a pod gets one of each family.
        one_per_family("gateway_ips", &gateways)?;
        if let Some(not_a_host) =
            hosts.iter().find(|ip| ip.is_unspecified() || ip.is_loopback() || ip.is_multicast())
        {
            return Err(AnnotationError::NotAHost(*not_a_host));
        }
        if let Some(lone) = gateways
            .iter()
            .find(|gateway| !hosts.iter().any(|host| host.is_ipv4() == gateway.is_ipv4()))
        {
            return Err(AnnotationError::LoneGateway(*lone));
        }
        let routes = routes.unwrap_or_default();
        if routes.len() > MAX_ROUTES {
            return Err(AnnotationError::TooManyRoutes(routes.len()));
        }

        Ok(Self {
            mac: value("mac_address", &mac_address, "a unicast MAC address")?,
            addresses,
            gateways,
            routes: routes.into_iter().map(Route::try_from).collect::<Result<_, _>>()?,
            role: role.as_deref().unwrap_or_default().parse()?,
            tunnel_id: tunnel_id.unwrap_or_default(),
            ipv6_link_local_gateway: ipv6_lla_gateway_ip
                .filter(|text| !text.is_empty())
                .map(|text| value("ipv6_lla_gateway_ip", &text, "an IPv6 address"))
                .transpose()?,
        })
    }
}

impl TryFrom<RouteJson> for Route {
    type Error = AnnotationError;

    fn try_from(RouteJson { dest, next_hop }: RouteJson) -> Result<Self, AnnotationError> {
        let destination: IpNet = value("dest", &dest, "a subnet")?;
        // A default route here would bypass the check that the gateway has an address of its
        // family.
        if destination.prefix_len() == 0 {
            return Err(AnnotationError::DefaultRoute(destination));
        }
        let next_hop = match next_hop.as_str() {
            "" => None,
            text => Some(value::<IpAddr>("nextHop", text, "an IP address")?),
        };
        match next_hop {
            Some(hop) if hop.is_ipv4() != destination.addr().is_ipv4() => {
                Err(AnnotationError::MixedRoute(destination, hop))
            }
            _ => Ok(Self { destination, next_hop }),
        }
    }
}

impl Role {
    /// The spelling in annotations and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
            Self::InfrastructureLocked => "infrastructure-locked",
        }
    }
}

impl FromStr for Role {
    type Err = AnnotationError;

    fn from_str(text: &str) -> Result<Self, AnnotationError> {
        match text {
            "" | "primary" => Ok(Self::Primary),
            "secondary" => Ok(Self::Secondary),
            "infrastructure-locked" => Ok(Self::InfrastructureLocked),
            other => Err(AnnotationError::Value {
                field: "role",
                value: shorten(other),
                expected: "a role of a network",
            }),
        }
    }
}

pub(crate) fn check_length(text: &str) -> Result<(), AnnotationError> {
    if text.len() > MAX_BYTES { Err(AnnotationError::TooLong(text.len())) } else { Ok(()) }
}

pub(crate) fn value<T: FromStr>(
    field: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<T, AnnotationError> {
    text.parse().map_err(|_| AnnotationError::Value { field, value: shorten(text), expected })
}

/// The first 64 characters of a refused value, enough to recognise it.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The list, or the single value of the older spelling. If both are present, they must agree.
pub(crate) fn list_or_single<T: FromStr + PartialEq>(
    (list_name, list): (&'static str, Option<Vec<String>>),
    (single_name, single): (&'static str, Option<String>),
    expected: &'static str,
) -> Result<Vec<T>, AnnotationError> {
    let list: Vec<T> = list
        .unwrap_or_default()
        .iter()
        .map(|text| value(list_name, text, expected))
        .collect::<Result<_, _>>()?;
    let single = single
        .filter(|text| !text.is_empty())
        .map(|text| value(single_name, &text, expected))
        .transpose()?;
    match (list.first(), single) {
        (None, single) => Ok(single.into_iter().collect()),
        (Some(first), Some(single)) if *first != single => {
            Err(AnnotationError::Conflict(single_name, list_name))
        }
        (Some(_), _) => Ok(list),
    }
}

pub(crate) fn one_per_family(field: &'static str, list: &[IpAddr]) -> Result<(), AnnotationError> {
    for (index, first) in list.iter().enumerate() {
        if let Some(second) = list[index + 1..].iter().find(|ip| ip.is_ipv4() == first.is_ipv4()) {
            return Err(AnnotationError::SameFamily { field, first: *first, second: *second });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
