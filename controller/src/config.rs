//! What the options say about the cluster. Knows nothing of where they came from.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

/// Settings that all nodes of a cluster share. Lists hold at most one network of each family unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The zone whose northbound database this controller writes; nodes of other zones get transit rows only.
    pub zone: Zone,
    /// Addresses of pods, several of a family if need be, in the order in which they are used up.
    pub cluster_subnets: Vec<ClusterSubnet>,
    /// Addresses of services.
    pub service_cidrs: Vec<IpNet>,
    /// Addresses between the cluster's router and the nodes' gateway routers.
    pub join_subnets: Vec<IpNet>,
    /// Addresses between zones.
    pub transit_subnets: Vec<IpNet>,
    /// The address that OVN gives to a pod that talks to itself by a service: base of the masquerade subnet + 5.
    pub hairpin_addresses: Vec<IpAddr>,
    /// `requested-chassis` on pods' ports; off with `--disable-requestedchassis`.
    pub requested_chassis: bool,
    /// The annotation `ovn` of 2018 beside `k8s.ovn.org/pod-networks`, for programs that read only that.
    pub legacy_annotations: bool,
    /// Lines of the ACLs' log a second, for each chassis.
    pub acl_logging_rate_limit: u32,
}

/// Upstream's defaults, with pods that have IPv4 addresses: what the options mean that nobody gives.
impl Default for ClusterConfig {
    fn default() -> Self {
        let net = |[a, b, c, d]: [u8; 4], length| Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length).into();
        Self {
            zone: Zone::default(),
            cluster_subnets: vec![ClusterSubnet { cidr: net([10, 128, 0, 0], 14), host_length: 23 }],
            service_cidrs: vec![net([172, 16, 1, 0], 24)],
            join_subnets: vec![net([100, 64, 0, 0], 16)],
            transit_subnets: vec![net([100, 88, 0, 0], 16)],
            hairpin_addresses: vec![Ipv4Addr::new(169, 254, 169, 5).into()],
            requested_chassis: true,
            legacy_annotations: false,
            acl_logging_rate_limit: 20,
        }
    }
}

impl ClusterConfig {
    /// Whether the address is OVN's or the cluster's own, and never a pod's.
    pub fn is_infrastructure(&self, address: IpAddr) -> bool {
        let ranges = [&self.join_subnets, &self.transit_subnets, &self.service_cidrs];
        let in_range = ranges.into_iter().flatten().any(|range| range.contains(&address));
        // Upstream's masquerade subnets are link-local where they are IPv4; the hairpin address is one of theirs.
        let masquerade = |hairpin: &IpAddr| {
            let length = if hairpin.is_ipv4() { 29 } else { 125 };
            IpNet::new(*hairpin, length).is_ok_and(|range| range.contains(&address))
        };
        let special = match address.to_canonical() {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        in_range
            || special
            || address.is_loopback()
            || address.is_multicast()
            || address.is_unspecified()
            || self.hairpin_addresses.iter().any(masquerade)
    }
}

/// A range that nodes get their subnets from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterSubnet {
    pub cidr: IpNet,
    /// Prefix length of a node's part of it.
    pub host_length: u8,
}

/// Nodes that share one pair of OVN databases. `global` is the name where the cluster has one pair only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zone(pub String);

impl Default for Zone {
    fn default() -> Self {
        Self("global".to_owned())
    }
}
