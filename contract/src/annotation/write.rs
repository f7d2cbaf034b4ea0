//! A pod's network as annotation text, spelled as the Go control plane spells it. Does not read.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{AnnotationError, IpNet, PodNetwork, Route, check_length};
use crate::names::Network;

/// One network's settings, in the order of upstream's text.
#[derive(Serialize)]
struct Settings {
    ip_addresses: Vec<String>,
    mac_address: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gateway_ips: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteText>,
    /// The older spelling, for programs that know only one address family.
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_ip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6_lla_gateway_ip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel_id: Option<u32>,
    role: &'static str,
}

#[derive(Serialize)]
struct RouteText {
    dest: String,
    #[serde(rename = "nextHop")]
    next_hop: String,
}

#[derive(Serialize)]
struct Legacy {
    gateway_ip: String,
    ip_address: String,
    mac_address: String,
}

/// An entry of the annotation.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry {
    Written(Box<Settings>),
    /// The entry of another network, unchanged.
    Kept(Value),
}

impl PodNetwork {
    /// The text of `k8s.ovn.org/pod-networks` with these settings of `network`, and with the other
    /// networks' entries of `present`, the current text.
    ///
    /// # Errors
    /// The text in `present` is too long or is not a JSON object. Text that cannot be read is not
    /// overwritten.
    pub fn write(
        &self,
        network: &Network,
        present: Option<&str>,
    ) -> Result<String, AnnotationError> {
        // Sorted by network, as Go's `encoding/json` writes a map: both control planes write the
        // same text.
        let others: BTreeMap<String, Value> = match present {
            None => BTreeMap::new(),
            Some(text) => {
                check_length(text)?;
                serde_json::from_str(text)?
            }
        };
        let mut entries: BTreeMap<String, Entry> =
            others.into_iter().map(|(name, settings)| (name, Entry::Kept(settings))).collect();
        entries
            .insert(network.annotation_key().to_owned(), Entry::Written(Box::new(self.settings())));
        Ok(serde_json::to_string(&entries)?)
    }

    /// The text of `ovn`, which holds one address family: IPv4 if the pod has it. `None` without an
    /// address or a gateway.
    pub fn write_legacy(&self) -> Option<String> {
        let address =
            self.addresses.iter().find(|net| net.addr().is_ipv4()).or(self.addresses.first())?;
        let gateway =
            self.gateways.iter().find(|gateway| gateway.is_ipv4() == address.addr().is_ipv4())?;
        let legacy = Legacy {
            gateway_ip: gateway.to_string(),
            ip_address: address.to_string(),
            mac_address: self.mac.to_string(),
        };
        serde_json::to_string(&legacy).ok()
    }

    fn settings(&self) -> Settings {
        let Self { mac, addresses, gateways, routes, role, tunnel_id, ipv6_link_local_gateway } =
            self;
        let (ip_address, gateway_ip) = match (&addresses[..], &gateways[..]) {
            ([address], [gateway]) => (Some(address.to_string()), Some(gateway.to_string())),
            ([address], _) => (Some(address.to_string()), None),
            _ => (None, None),
        };
        Settings {
            ip_addresses: addresses.iter().map(IpNet::to_string).collect(),
            mac_address: mac.to_string(),
            gateway_ips: gateways.iter().map(ToString::to_string).collect(),
            routes: routes.iter().map(RouteText::from).collect(),
            ip_address,
            gateway_ip,
            ipv6_lla_gateway_ip: ipv6_link_local_gateway.map(|gateway| gateway.to_string()),
            tunnel_id: Some(*tunnel_id).filter(|id| *id != 0),
            role: role.as_str(),
        }
    }
}

impl From<&Route> for RouteText {
    fn from(Route { destination, next_hop }: &Route) -> Self {
        Self {
            dest: destination.to_string(),
            next_hop: next_hop.map(|hop| hop.to_string()).unwrap_or_default(),
        }
    }
}
