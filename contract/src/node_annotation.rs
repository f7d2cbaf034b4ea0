//! What a node's annotations say: the contract between cluster manager, controller and node.
//!
//! Reads and spells values; knows nothing of who may write which, nor of the API. Nodes write some of these themselves, so they are as
//! hostile as a pod's: everything is checked here, once.
//!
//! | annotation | means | written by | read by |
//! |---|---|---|---|
//! | [`NODE_SUBNETS`] | addresses of the node's pods | cluster manager | controller, node |
//! | [`LEGACY_SUBNET`] | the same, in clusters of 2018 and 2019 | cluster manager | node |
//! | [`NODE_ID`] | a small number of its own | cluster manager | controller |
//! | [`NETWORK_IDS`] | the numbers of networks | cluster manager | controller |
//! | [`JOIN_ADDRESSES`], before [`JOIN_ADDRESS`] | the node's gateway router on the join switch | cluster manager | controller |
//! | [`TRANSIT_ADDRESSES`] | the node on the switch between zones | cluster manager | controller |
//! | [`CHASSIS_ID`] | OVN's name of the node | node | controller |
//! | [`PRIMARY_ADDRESSES`] | the addresses that other nodes reach it at | node | controller, cluster manager |
//! | [`HOST_CIDRS`] | all addresses of the host | node | controller |
//! | [`MANAGEMENT_MACS`], before [`MANAGEMENT_MAC`] | MAC of the management port | older nodes | controller, node |
//! | [`ZONE`] | whose database has its rows | node | everybody |

mod per_network;
mod value;

use std::{collections::BTreeMap, net::IpAddr, str::FromStr};

use ipnet::IpNet;

use crate::{annotation::AnnotationError, mac::Mac};
pub use per_network::PerNetwork;

pub const NODE_SUBNETS: &str = "k8s.ovn.org/node-subnets";
pub const LEGACY_SUBNET: &str = "ovn_host_subnet";
pub const NODE_ID: &str = "k8s.ovn.org/node-id";
pub const NETWORK_IDS: &str = "k8s.ovn.org/network-ids";
pub const JOIN_ADDRESSES: &str = "k8s.ovn.org/node-gateway-router-lrp-ifaddrs";
pub const JOIN_ADDRESS: &str = "k8s.ovn.org/node-gateway-router-lrp-ifaddr";
pub const TRANSIT_ADDRESSES: &str = "k8s.ovn.org/node-transit-switch-port-ifaddr";
pub const CHASSIS_ID: &str = "k8s.ovn.org/node-chassis-id";
pub const PRIMARY_ADDRESSES: &str = "k8s.ovn.org/node-primary-ifaddr";
pub const HOST_CIDRS: &str = "k8s.ovn.org/host-cidrs";
pub const MANAGEMENT_MACS: &str = "k8s.ovn.org/node-mgmt-port-mac-addresses";
pub const MANAGEMENT_MAC: &str = "k8s.ovn.org/node-mgmt-port-mac-address";
pub const ZONE: &str = "k8s.ovn.org/zone-name";

/// All that [`NodeAnnotations`] reads.
pub const ALL: [&str; 13] = [
    NODE_SUBNETS,
    LEGACY_SUBNET,
    NODE_ID,
    NETWORK_IDS,
    JOIN_ADDRESSES,
    JOIN_ADDRESS,
    TRANSIT_ADDRESSES,
    CHASSIS_ID,
    PRIMARY_ADDRESSES,
    HOST_CIDRS,
    MANAGEMENT_MACS,
    MANAGEMENT_MAC,
    ZONE,
];

/// The cluster's own network, among the networks of an annotation.
pub const DEFAULT_NETWORK: &str = "default";

/// More addresses than a host has.
const MAX_HOST_CIDRS: usize = 1024;

/// An annotation of a node cannot be used, and which.
#[derive(Debug, thiserror::Error)]
#[error("{annotation}")]
pub struct NodeAnnotationError {
    pub annotation: &'static str,
    pub source: AnnotationError,
}

/// A node's annotations, for reading what they say of the cluster's own network.
///
/// Each method gives what one annotation says, and nothing (`None`, no elements) as long as it is not there.
#[derive(Debug, Clone, Copy)]
pub struct NodeAnnotations<'a>(pub &'a BTreeMap<String, String>);

impl NodeAnnotations<'_> {
    /// At most one of each family, IPv4 or IPv6 first as they are written.
    ///
    /// # Errors
    /// The annotation has no JSON of the expected shape, a subnet without room for pods, or two of one family.
    pub fn subnets(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        if self.0.contains_key(NODE_SUBNETS) {
            return self.read(NODE_SUBNETS, |text| PerNetwork::parse(text)?.subnets(DEFAULT_NETWORK)).map(Option::unwrap_or_default);
        }
        self.read(LEGACY_SUBNET, value::subnet).map(|subnet| subnet.into_iter().collect())
    }

    /// The node's number.
    ///
    /// # Errors
    /// The annotation is no number of 16 bits.
    pub fn id(self) -> Result<Option<u16>, NodeAnnotationError> {
        self.read(NODE_ID, value::number)
    }

    /// The number of the cluster's own network; always 0 where upstream's programs write it.
    ///
    /// # Errors
    /// The annotation has no JSON of the expected shape, or an entry that is no number.
    pub fn network_id(self) -> Result<Option<u32>, NodeAnnotationError> {
        Ok(self.read(NETWORK_IDS, |text| PerNetwork::parse(text)?.number(DEFAULT_NETWORK))?.flatten())
    }

    /// With the prefix of the join subnet; at most one of each family, IPv4 first.
    ///
    /// # Errors
    /// The annotation has no JSON of the expected shape, or an address that is none.
    pub fn join_addresses(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        if self.0.contains_key(JOIN_ADDRESSES) {
            let read = self.read(JOIN_ADDRESSES, |text| PerNetwork::parse(text)?.interface_addresses(DEFAULT_NETWORK));
            return read.map(Option::unwrap_or_default);
        }
        self.read(JOIN_ADDRESS, value::interface_addresses).map(Option::unwrap_or_default)
    }

    /// With the prefix of the transit subnet; at most one of each family, IPv4 first.
    ///
    /// # Errors
    /// As for [`join_addresses`](Self::join_addresses).
    pub fn transit_addresses(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        self.read(TRANSIT_ADDRESSES, value::interface_addresses).map(Option::unwrap_or_default)
    }

    /// The name of the node in OVN.
    ///
    /// # Errors
    /// The annotation is empty, longer than a name, or has characters that no chassis has.
    pub fn chassis_id(self) -> Result<Option<String>, NodeAnnotationError> {
        self.read(CHASSIS_ID, |text| value::plain("chassis id", text))
    }

    /// With the prefix of the host's network; at most one of each family, IPv4 first.
    ///
    /// # Errors
    /// As for [`join_addresses`](Self::join_addresses).
    pub fn primary_addresses(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        self.read(PRIMARY_ADDRESSES, value::interface_addresses).map(Option::unwrap_or_default)
    }

    /// The addresses of the host, with their prefixes.
    ///
    /// # Errors
    /// The annotation is no list of addresses with prefixes, or a longer one than any host has.
    pub fn host_cidrs(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        self.read(HOST_CIDRS, value::host_cidrs).map(Option::unwrap_or_default)
    }

    /// The MAC address of the management port.
    ///
    /// # Errors
    /// The annotation has no JSON of the expected shape, or a MAC address that is none.
    pub fn management_mac(self) -> Result<Option<Mac>, NodeAnnotationError> {
        if self.0.contains_key(MANAGEMENT_MACS) {
            return Ok(self.read(MANAGEMENT_MACS, |text| PerNetwork::parse(text)?.mac(DEFAULT_NETWORK))?.flatten());
        }
        self.read(MANAGEMENT_MAC, value::mac)
    }

    /// The zone whose database has the node's rows.
    ///
    /// # Errors
    /// As for [`chassis_id`](Self::chassis_id).
    pub fn zone(self) -> Result<Option<String>, NodeAnnotationError> {
        self.read(ZONE, |text| value::plain("zone", text))
    }

    fn read<T>(
        self,
        annotation: &'static str,
        parse: impl FnOnce(&str) -> Result<T, AnnotationError>,
    ) -> Result<Option<T>, NodeAnnotationError> {
        let Some(text) = self.0.get(annotation) else { return Ok(None) };
        parse(text).map(Some).map_err(|source| NodeAnnotationError { annotation, source })
    }
}

/// The text of [`TRANSIT_ADDRESSES`], [`PRIMARY_ADDRESSES`] and [`JOIN_ADDRESS`]: the first address of each family with its prefix.
pub fn interface_addresses_text(addresses: &[IpNet]) -> String {
    value::interface_addresses_json(addresses).to_string()
}

/// The text of [`HOST_CIDRS`], in an order that does not depend on the order in which the host named them.
pub fn host_cidrs_text(addresses: &[IpNet]) -> String {
    let mut texts: Vec<String> = addresses.iter().map(IpNet::to_string).collect();
    texts.sort_unstable();
    texts.dedup();
    serde_json::Value::from(texts).to_string()
}

#[cfg(test)]
mod tests;
