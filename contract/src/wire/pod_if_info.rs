//! `PodIFInfo`: a pod's settings for the plugin, in upstream's encoding (addresses and masks as
//! Go's `net` package writes them).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::base64_bytes;
use crate::{
    annotation::{PodNetwork, Route},
    bandwidth::Bandwidth,
    mtu::Mtu,
    names::Network,
};

/// One interface of one pod, ready to be configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PodIfInfoJson", into = "PodIfInfoJson")]
pub struct PodInterface {
    pub network: Network,
    pub addressing: PodNetwork,
    /// MTU of the link.
    pub mtu: Mtu,
    /// MTU of the default routes, if it differs from the link's.
    pub routable_mtu: Option<Mtu>,
    pub bandwidth: Bandwidth,
    /// UID of the pod; empty if the server does not know it.
    pub pod_uid: String,
    /// The plugin must not configure addresses and routes (for a virtual machine that migrates, for
    /// example).
    pub skip_ip_config: bool,
}

/// Why an answer of the server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PodInterfaceError {
    #[error("{field} {value} is not {expected}")]
    Value { field: &'static str, value: String, expected: &'static str },
    #[error("a pod behind a data processing unit is not supported")]
    Dpu,
    #[error(transparent)]
    Annotation(#[from] crate::annotation::AnnotationError),
}

/// The answer as spelled in JSON. `nadName` is the older name of `nadKey`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct PodIfInfoJson {
    #[serde(rename = "IPs")]
    ips: Option<Vec<GoNet>>,
    #[serde(rename = "MAC", with = "base64_bytes")]
    mac: Vec<u8>,
    #[serde(rename = "Gateways")]
    gateways: Option<Vec<String>>,
    #[serde(rename = "GatewayIPv6LLA", skip_serializing_if = "Option::is_none")]
    gateway_ipv6_lla: Option<String>,
    #[serde(rename = "Routes")]
    routes: Option<Vec<GoRoute>>,
    #[serde(rename = "TunnelID")]
    tunnel_id: u32,
    #[serde(rename = "Role")]
    role: String,
    mtu: u64,
    #[serde(rename = "routable-mtu")]
    routable_mtu: u64,
    ingress: i64,
    egress: i64,
    #[serde(rename = "is-dpu-host-mode")]
    is_dpu_host_mode: bool,
    #[serde(rename = "skip-ip-config")]
    skip_ip_config: bool,
    #[serde(rename = "pod-uid")]
    pod_uid: String,
    #[serde(rename = "vf-netdev-name")]
    vf_netdev_name: String,
    #[serde(rename = "enable-udp-aggregation")]
    enable_udp_aggregation: bool,
    #[serde(rename = "netName")]
    net_name: String,
    #[serde(rename = "nadName")]
    nad_name: String,
    #[serde(rename = "nadKey")]
    nad_key: String,
}

/// Go's `net.IPNet`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoNet {
    #[serde(rename = "IP")]
    ip: String,
    #[serde(with = "base64_bytes")]
    mask: Vec<u8>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoRoute {
    dest: GoNet,
    #[serde(default)]
    next_hop: Option<String>,
}

impl TryFrom<PodIfInfoJson> for PodInterface {
    type Error = PodInterfaceError;

    fn try_from(wire: PodIfInfoJson) -> Result<Self, PodInterfaceError> {
        let PodIfInfoJson {
            ips,
            mac,
            gateways,
            gateway_ipv6_lla,
            routes,
            tunnel_id,
            role,
            mtu,
            routable_mtu,
            ingress,
            egress,
            is_dpu_host_mode,
            skip_ip_config,
            pod_uid,
            vf_netdev_name: _, // devices passed to pods are refused before a server is asked
            enable_udp_aggregation: _, // an optimisation of upstream's that nothing depends on
            net_name,
            nad_name,
            nad_key,
        } = wire;

        if is_dpu_host_mode {
            return Err(PodInterfaceError::Dpu);
        }
        let network =
            Network::of_key(if nad_key.is_empty() { nad_name } else { nad_key }, net_name);
        let octets: [u8; 6] =
            mac.as_slice().try_into().map_err(|_| bad("MAC", &mac, "six octets"))?;
        Ok(Self {
            network,
            addressing: PodNetwork {
                mac: octets.try_into().map_err(|_| bad("MAC", &octets, "a unicast MAC address"))?,
                addresses: ips
                    .unwrap_or_default()
                    .into_iter()
                    .map(IpNet::try_from)
                    .collect::<Result<_, _>>()?,
                gateways: gateways
                    .unwrap_or_default()
                    .iter()
                    .map(|ip| parse_ip("Gateways", ip))
                    .collect::<Result<_, _>>()?,
                routes: routes
                    .unwrap_or_default()
                    .into_iter()
                    .map(Route::try_from)
                    .collect::<Result<_, _>>()?,
                role: role.parse()?,
                tunnel_id,
                ipv6_link_local_gateway: match gateway_ipv6_lla.as_deref() {
                    None | Some("") => None,
                    Some(text) => Some(
                        text.parse::<Ipv6Addr>()
                            .map_err(|_| bad("GatewayIPv6LLA", &text, "an IPv6 address"))?,
                    ),
                },
            },
            mtu: match mtu {
                0 => Mtu::DEFAULT,
                bytes => bytes.try_into().map_err(|_| bad("mtu", &bytes, "an MTU"))?,
            },
            routable_mtu: match routable_mtu {
                0 => None,
                bytes => Some(bytes.try_into().map_err(|_| bad("routable-mtu", &bytes, "an MTU"))?),
            },
            // Upstream sends 0 or -1 for no limit.
            bandwidth: Bandwidth {
                ingress: u64::try_from(ingress).ok().filter(|rate| *rate > 0),
                egress: u64::try_from(egress).ok().filter(|rate| *rate > 0),
            },
            pod_uid,
            skip_ip_config,
        })
    }
}

impl From<PodInterface> for PodIfInfoJson {
    fn from(pod: PodInterface) -> Self {
        let PodInterface {
            network,
            addressing,
            mtu,
            routable_mtu,
            bandwidth,
            pod_uid,
            skip_ip_config,
        } = pod;
        let PodNetwork {
            mac,
            addresses,
            gateways,
            routes,
            role,
            tunnel_id,
            ipv6_link_local_gateway,
        } = addressing;
        let rate =
            |limit: Option<u64>| limit.and_then(|rate| i64::try_from(rate).ok()).unwrap_or(0);
        let nad = network.annotation_key().to_owned();
        Self {
            ips: Some(addresses.into_iter().map(GoNet::from).collect()),
            mac: mac.octets().to_vec(),
            gateways: Some(gateways.iter().map(IpAddr::to_string).collect()),
            gateway_ipv6_lla: ipv6_link_local_gateway.map(|ip| ip.to_string()),
            routes: Some(routes.into_iter().map(GoRoute::from).collect()),
            tunnel_id,
            role: role.as_str().to_owned(),
            mtu: mtu.bytes().into(),
            routable_mtu: routable_mtu.map_or(0, |mtu| mtu.bytes().into()),
            ingress: rate(bandwidth.ingress),
            egress: rate(bandwidth.egress),
            is_dpu_host_mode: false,
            skip_ip_config,
            pod_uid,
            vf_netdev_name: String::new(),
            enable_udp_aggregation: false,
            net_name: match network {
                Network::Default => "default".to_owned(),
                Network::Attachment { name, .. } => name,
            },
            // Both spellings: which one upstream's plugin reads depends on its version.
            nad_name: nad.clone(),
            nad_key: nad,
        }
    }
}

impl TryFrom<GoNet> for IpNet {
    type Error = PodInterfaceError;

    fn try_from(GoNet { ip, mask }: GoNet) -> Result<Self, PodInterfaceError> {
        let address = parse_ip("IP", &ip)?;
        // Go's `net.IPMask`: four octets for IPv4, sixteen for IPv6.
        let mask_ip = match (address, mask.as_slice()) {
            (IpAddr::V4(_), [a, b, c, d]) => IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)),
            (IpAddr::V6(_), octets) => IpAddr::V6(
                <[u8; 16]>::try_from(octets).map_err(|_| bad("Mask", &mask, "16 octets"))?.into(),
            ),
            (IpAddr::V4(_), _) => return Err(bad("Mask", &mask, "four octets")),
        };
        IpNet::with_netmask(address, mask_ip).map_err(|_| bad("Mask", &mask, "a netmask"))
    }
}

impl From<IpNet> for GoNet {
    fn from(net: IpNet) -> Self {
        let mask = match net.netmask() {
            IpAddr::V4(mask) => mask.octets().to_vec(),
            IpAddr::V6(mask) => mask.octets().to_vec(),
        };
        Self { ip: net.addr().to_string(), mask }
    }
}

impl TryFrom<GoRoute> for Route {
    type Error = PodInterfaceError;

    fn try_from(GoRoute { dest, next_hop }: GoRoute) -> Result<Self, PodInterfaceError> {
        let next_hop = next_hop
            .filter(|hop| !hop.is_empty())
            .map(|hop| parse_ip("NextHop", &hop))
            .transpose()?;
        Ok(Self { destination: dest.try_into()?, next_hop })
    }
}

impl From<Route> for GoRoute {
    fn from(Route { destination, next_hop }: Route) -> Self {
        Self {
            dest: destination.into(),
            next_hop: Some(next_hop.map(|hop| hop.to_string()).unwrap_or_default()),
        }
    }
}

fn parse_ip(field: &'static str, text: &str) -> Result<IpAddr, PodInterfaceError> {
    text.parse().map_err(|_| bad(field, &text, "an IP address"))
}

fn bad(
    field: &'static str,
    value: &impl std::fmt::Debug,
    expected: &'static str,
) -> PodInterfaceError {
    PodInterfaceError::Value { field, value: format!("{value:.64?}"), expected }
}
