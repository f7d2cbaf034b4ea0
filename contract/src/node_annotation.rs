//! A node's annotations: the contract between cluster manager, controller and node.
//!
//! Reads and writes values; knows nothing of the API, nor of which program may write which value.
//! Nodes write some of these themselves, so they are as hostile as a pod's. Everything is checked
//! once, here.
//!
//! | annotation | meaning | written by | read by |
//! |---|---|---|---|
//! | [`NODE_SUBNETS`] | subnets of the node's pods | cluster manager | controller, node |
//! | [`LEGACY_SUBNET`] | the same, in clusters of 2018 and 2019 | cluster manager | as above |
//! | [`NODE_ID`] | the node's number | cluster manager | controller |
//! | [`JOIN_ADDRESSES`], [`JOIN_ADDRESS`] | gateway router on join switch | cluster manager | controller |
//! | [`TRANSIT_ADDRESSES`] | the node on the switch between zones | cluster manager | controller |
//! | [`CHASSIS_ID`] | the node's name in OVN | node | controller |
//! | [`ENCAP_IPS`] | addresses of its tunnels | node | controllers of other zones |
//! | [`PRIMARY_ADDRESSES`] | addresses for other nodes | node | controller, nodes |
//! | [`HOST_CIDRS`] | all addresses of the host | node | controller |
//! | [`GATEWAY_CONFIG`] | the node's gateway: its mode, its place in the physical network, and whether ports lead to services | node | controller |
//! | [`GATEWAY_MTU_SUPPORT`] | whether OVN may answer packets that are too large | node | controller |
//! | [`MANAGEMENT_MACS`], [`MANAGEMENT_MAC`] | MAC of management port | older nodes | controller, node |
//! | [`ROUTER_MAC`] | MAC of the subnet's router, of 2018 | take-over | controller, node |
//! | [`FORWARDED_SOURCE`] | whether the host has a source of its own for what it forwards to pods | node | controller |
//! | [`ZONE`] | the zone whose database has the node's rows | node | all |
//! | [`NEXT_ZONE`] | the zone that the node is about to move to | node | controller |
//! | [`WANTED_ZONE`] | the zone where the node should be | administrator | node |
//! | [`ZONE_CHOICES`] | the zones that it may move to, and what each lacks | node | administrator |
//!
//! Where a row has two names, the second one is the older spelling, for the cluster's own network
//! alone.

mod gateway;
mod per_network;
mod value;

use std::{collections::BTreeMap, net::IpAddr, str::FromStr};

use ipnet::IpNet;

use crate::{annotation::AnnotationError, mac::Mac};
pub use gateway::{Gateway, GatewayEntry};
pub use per_network::PerNetwork;

/// `{"default":["10.128.0.0/23"]}`
pub const NODE_SUBNETS: &str = "k8s.ovn.org/node-subnets";
/// `10.128.0.0/23`
pub const LEGACY_SUBNET: &str = "ovn_host_subnet";
/// `2`
pub const NODE_ID: &str = "k8s.ovn.org/node-id";
/// `{"default":{"ipv4":"100.64.0.2/16"}}`
pub const JOIN_ADDRESSES: &str = "k8s.ovn.org/node-gateway-router-lrp-ifaddrs";
/// `{"ipv4":"100.64.0.2/16"}`
pub const JOIN_ADDRESS: &str = "k8s.ovn.org/node-gateway-router-lrp-ifaddr";
/// `{"ipv4":"100.88.0.2/16"}`
pub const TRANSIT_ADDRESSES: &str = "k8s.ovn.org/node-transit-switch-port-ifaddr";
/// `2d4b1b6e-2f0a-4a39-9a0f-0a6b4e7c1f01`
pub const CHASSIS_ID: &str = "k8s.ovn.org/node-chassis-id";
/// `["192.0.2.7"]`
pub const ENCAP_IPS: &str = "k8s.ovn.org/node-encap-ips";
/// `{"ipv4":"192.0.2.7/24"}`
pub const PRIMARY_ADDRESSES: &str = "k8s.ovn.org/node-primary-ifaddr";
/// `["192.0.2.7/24"]`
pub const HOST_CIDRS: &str = "k8s.ovn.org/host-cidrs";
/// `{"default":{"mode":"shared","node-port-enable":"true"}}`
pub const GATEWAY_CONFIG: &str = "k8s.ovn.org/l3-gateway-config";
/// `false`; any other value, or none, means `true`
pub const GATEWAY_MTU_SUPPORT: &str = "k8s.ovn.org/gateway-mtu-support";
/// `{"default":"96:8f:e8:25:a2:e5"}`
pub const MANAGEMENT_MACS: &str = "k8s.ovn.org/node-mgmt-port-mac-addresses";
/// `96:8f:e8:25:a2:e5`
pub const MANAGEMENT_MAC: &str = "k8s.ovn.org/node-mgmt-port-mac-address";
/// `00:00:00:4b:7a:19`; none: it derives from the address
pub const ROUTER_MAC: &str = "k8s.ovn.org/node-router-mac";
/// `join`; any other value, or none, means that the host gives it the management port's address
pub const FORWARDED_SOURCE: &str = "k8s.ovn.org/node-forwarded-source";
/// `global`
pub const ZONE: &str = "k8s.ovn.org/zone-name";
/// `node1`; the zone's database has the node's rows, too, and its ovn-controller reads them once
/// [`ZONE`] says the same
pub const NEXT_ZONE: &str = "k8s.ovn.org/zone-next";
/// `node1`; one of [`ZONE_CHOICES`], any other value means nothing. A server must not write it
pub const WANTED_ZONE: &str = "k8s.ovn.org/zone-wanted";
/// `{"global":"","node1":"unix:/run/ovn/zone/ovnsb_db.sock: No such file or directory"}`; an empty
/// text: the node may move there
pub const ZONE_CHOICES: &str = "k8s.ovn.org/zone-choices";

/// All annotations of the table above.
pub const ALL: [&str; 20] = [
    NODE_SUBNETS,
    LEGACY_SUBNET,
    NODE_ID,
    JOIN_ADDRESSES,
    JOIN_ADDRESS,
    TRANSIT_ADDRESSES,
    CHASSIS_ID,
    ENCAP_IPS,
    PRIMARY_ADDRESSES,
    HOST_CIDRS,
    GATEWAY_CONFIG,
    GATEWAY_MTU_SUPPORT,
    MANAGEMENT_MACS,
    MANAGEMENT_MAC,
    ROUTER_MAC,
    FORWARDED_SOURCE,
    ZONE,
    NEXT_ZONE,
    WANTED_ZONE,
    ZONE_CHOICES,
];

/// The value of [`FORWARDED_SOURCE`] for an address of the join subnet
/// ([`crate::ovn::forwarded_source`]).
pub const OF_JOIN_SUBNET: &str = "join";

/// The key of the cluster's own network in annotations that hold one entry for each network.
pub const DEFAULT_NETWORK: &str = "default";

/// The largest number of addresses of tunnels: a NIC of its own for each of them would fill a host.
const MAX_ENCAP_IPS: usize = 64;

/// The largest number of addresses of a host. It bounds the work for a hostile annotation.
const MAX_HOST_CIDRS: usize = 1024;

/// How packets of a node's pods leave the overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayMode {
    /// They do not.
    Disabled,
    /// Through the node's gateway router, and a bridge that has the node's NIC as uplink.
    Shared,
    /// Through the management port and the routes of the host.
    Local,
}

impl GatewayMode {
    /// The mode as the annotation spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "",
            Self::Shared => "shared",
            Self::Local => "local",
        }
    }
}

/// An annotation of a node that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{annotation}")]
pub struct NodeAnnotationError {
    pub annotation: &'static str,
    pub source: AnnotationError,
}

/// What [`GATEWAY_CONFIG`] says. A value that is missing or cannot be read is `None`.
#[derive(Debug, Default)]
pub struct GatewayConfig {
    /// Whether ports of the node lead to services.
    pub node_ports: Option<bool>,
    /// None if no program has set a gateway up.
    pub mode: Option<GatewayMode>,
    /// Its place in the physical network; none if it is disabled.
    pub place: Option<Gateway>,
    /// The first value that cannot be read.
    pub unreadable: Option<NodeAnnotationError>,
}

/// A node's annotations, to read the values of the cluster's own network.
///
/// Each method returns the value of one annotation; `None`, or an empty list, if there is none.
#[derive(Debug, Clone, Copy)]
pub struct NodeAnnotations<'a>(pub &'a BTreeMap<String, String>);

impl NodeAnnotations<'_> {
    /// The subnets of the node's pods. At most one of each family, in the order of the annotation.
    ///
    /// # Errors
    /// The annotation is not JSON of the expected shape, a subnet has no room for pods, or two
    /// subnets are of one family.
    pub fn subnets(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        if self.0.contains_key(NODE_SUBNETS) {
            return self
                .read(NODE_SUBNETS, |text| PerNetwork::parse(text)?.subnets(DEFAULT_NETWORK))
                .map(Option::unwrap_or_default);
        }
        self.read(LEGACY_SUBNET, value::subnet).map(|subnet| subnet.into_iter().collect())
    }

    /// The node's number.
    ///
    /// # Errors
    /// The annotation is not a 16-bit number.
    pub fn id(self) -> Result<Option<u16>, NodeAnnotationError> {
        self.read(NODE_ID, value::number)
    }

    /// The addresses of the node's gateway router, with the prefix length of the join subnet. At
    /// most one of each family, IPv4 first.
    ///
    /// # Errors
    /// The annotation is not JSON of the expected shape, or an address is not valid.
    pub fn join_addresses(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        if self.0.contains_key(JOIN_ADDRESSES) {
            let read = self.read(JOIN_ADDRESSES, |text| {
                PerNetwork::parse(text)?.interface_addresses(DEFAULT_NETWORK)
            });
            return read.map(Option::unwrap_or_default);
        }
        self.read(JOIN_ADDRESS, value::interface_addresses).map(Option::unwrap_or_default)
    }

    /// The node's addresses on the transit switch, with the prefix length of its subnet. At most
    /// one of each family, IPv4 first.
    ///
    /// # Errors
    /// As for [`join_addresses`](Self::join_addresses).
    pub fn transit_addresses(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        self.read(TRANSIT_ADDRESSES, value::interface_addresses).map(Option::unwrap_or_default)
    }

    /// The node's chassis name in OVN.
    ///
    /// # Errors
    /// The annotation is empty, has more than 253 bytes, or has characters that no chassis name
    /// has.
    pub fn chassis_id(self) -> Result<Option<String>, NodeAnnotationError> {
        self.read(CHASSIS_ID, |text| value::plain("chassis id", text))
    }

    /// The addresses that the node's tunnels may have.
    ///
    /// # Errors
    /// The annotation is not a list of addresses, or has more than 64 of them.
    pub fn encap_ips(self) -> Result<Vec<IpAddr>, NodeAnnotationError> {
        self.read(ENCAP_IPS, value::encap_ips).map(Option::unwrap_or_default)
    }

    /// All addresses of the host, with their prefix lengths.
    ///
    /// # Errors
    /// The annotation is not a list of addresses with prefix lengths, or has more than 1024 of
    /// them.
    pub fn host_cidrs(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        self.read(HOST_CIDRS, value::host_cidrs).map(Option::unwrap_or_default)
    }

    /// The addresses at which other nodes know it, with their prefix lengths. At most one of each
    /// family, IPv4 first.
    ///
    /// # Errors
    /// As for [`join_addresses`](Self::join_addresses).
    pub fn primary_addresses(self) -> Result<Vec<IpNet>, NodeAnnotationError> {
        self.read(PRIMARY_ADDRESSES, value::interface_addresses).map(Option::unwrap_or_default)
    }

    /// The address of the tunnels of a node that does not say which these are: before 2025,
    /// upstream's nodes had one, their first primary address. None if it is no address of one
    /// machine.
    pub fn primary_tunnel_address(self) -> Option<IpAddr> {
        let first = self.primary_addresses().ok()?.first()?.addr();
        Some(first).filter(|address| value::is_of_one_machine(*address))
    }

    /// The addresses at which others know the node: its primary ones, and those of its gateway. Not
    /// in these are addresses that move from node to node. What cannot be read is left out.
    pub fn own_addresses(self) -> Vec<IpAddr> {
        let primary = self.primary_addresses().unwrap_or_default();
        let gateway = self.gateway().place.map(|place| place.addresses).unwrap_or_default();
        let mut addresses: Vec<IpAddr> = primary.iter().chain(&gateway).map(IpNet::addr).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// The MAC address of the management port.
    ///
    /// # Errors
    /// The annotation is not JSON of the expected shape, or the MAC address is not valid.
    pub fn management_mac(self) -> Result<Option<Mac>, NodeAnnotationError> {
        if self.0.contains_key(MANAGEMENT_MACS) {
            return Ok(self
                .read(MANAGEMENT_MACS, |text| PerNetwork::parse(text)?.mac(DEFAULT_NETWORK))?
                .flatten());
        }
        self.read(MANAGEMENT_MAC, value::mac)
    }

    /// The MAC address of the cluster router's port in the node's subnet, where it does not derive
    /// from the address: pods of a cluster of 2018 have learned another one.
    ///
    /// # Errors
    /// The MAC address is not valid.
    pub fn router_mac(self) -> Result<Option<Mac>, NodeAnnotationError> {
        self.read(ROUTER_MAC, value::mac)
    }

    /// The node's gateway, with what cannot be read left out and named.
    pub fn gateway(self) -> GatewayConfig {
        let mut config = GatewayConfig::default();
        let read = self.read(GATEWAY_CONFIG, |text| {
            let entries = PerNetwork::parse(text)?;
            // Each value by itself: the mode matters even where the rest cannot be read.
            let (ports, mode) =
                (entries.node_ports(DEFAULT_NETWORK), entries.gateway_mode(DEFAULT_NETWORK));
            config.mode = *mode.as_ref().unwrap_or(&None);
            config.node_ports = *ports.as_ref().unwrap_or(&None);
            let place = entries.gateway(DEFAULT_NETWORK, config.mode);
            config.place = place.as_ref().ok().cloned().flatten();
            ports.and(mode).and(place).map(drop)
        });
        config.unreadable = read.err();
        config
    }

    /// Whether OVN may answer packets that are too large for the overlay.
    pub fn gateway_mtu_support(self) -> bool {
        self.0.get(GATEWAY_MTU_SUPPORT).is_none_or(|text| text != "false")
    }

    /// Whether the host has a source of its own for what it forwards to pods.
    pub fn forwarded_source(self) -> bool {
        self.0.get(FORWARDED_SOURCE).is_some_and(|text| text == OF_JOIN_SUBNET)
    }

    /// The zone whose database has the node's rows.
    ///
    /// # Errors
    /// As for [`chassis_id`](Self::chassis_id).
    pub fn zone(self) -> Result<Option<String>, NodeAnnotationError> {
        self.read(ZONE, |text| value::plain("zone", text))
    }

    /// The zone that the node is about to move to.
    ///
    /// # Errors
    /// As for [`chassis_id`](Self::chassis_id).
    pub fn next_zone(self) -> Result<Option<String>, NodeAnnotationError> {
        self.read(NEXT_ZONE, |text| value::plain("zone", text))
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

/// The text of [`TRANSIT_ADDRESSES`], [`PRIMARY_ADDRESSES`] and [`JOIN_ADDRESS`]: the first address
/// of each family, with its prefix length.
pub fn interface_addresses_text(addresses: &[IpNet]) -> String {
    value::interface_addresses_json(addresses).to_string()
}

/// The text of [`ENCAP_IPS`]. The order does not depend on that of `addresses`.
pub fn encap_ips_text(addresses: &[IpAddr]) -> String {
    let mut texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    texts.sort_unstable();
    texts.dedup();
    serde_json::Value::from(texts).to_string()
}

/// The text of [`HOST_CIDRS`]. The order does not depend on that of `addresses`.
pub fn host_cidrs_text(addresses: &[IpNet]) -> String {
    let mut texts: Vec<String> = addresses.iter().map(IpNet::to_string).collect();
    // Sorted, or each start of the node would change the annotation and wake up its readers.
    texts.sort_unstable();
    texts.dedup();
    serde_json::Value::from(texts).to_string()
}

#[cfg(test)]
mod tests;
