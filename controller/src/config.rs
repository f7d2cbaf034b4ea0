//! Settings of the cluster, as the options give them. Does not know where the options came from.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

/// Settings that all nodes of a cluster share. Lists hold at most one network of each family unless they say
/// otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The zone whose northbound database this controller writes; nodes of other zones get transit rows only.
    pub zone: Zone,
    /// Address ranges of pods: one or more per family, used up in this order.
    pub cluster_subnets: Vec<ClusterSubnet>,
    /// Address ranges of services.
    pub service_cidrs: Vec<IpNet>,
    /// Address ranges between the cluster router and the nodes' gateway routers.
    pub join_subnets: Vec<IpNet>,
    /// Address ranges between zones.
    pub transit_subnets: Vec<IpNet>,
    /// The source addresses that OVN gives to a pod that reaches itself through a service, one per family:
    /// base of the masquerade subnet + 5.
    pub hairpin_addresses: Vec<IpAddr>,
    /// Whether pods' ports get `requested-chassis`; off with `--disable-requestedchassis`.
    pub requested_chassis: bool,
    /// Whether pods get the annotation `ovn` of 2018 beside `k8s.ovn.org/pod-networks`, for programs that
    /// read only the older one.
    pub legacy_annotations: bool,
    /// ACL log lines per second, on each chassis.
    pub acl_logging_rate_limit: u32,
}

/// Upstream's defaults, for a cluster with IPv4 pods.
impl Default for ClusterConfig {
    fn default() -> Self {
        let net =
            |[a, b, c, d]: [u8; 4], length| Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length).into();
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
    /// Whether the address belongs to OVN or to the cluster itself, so that no pod may have it.
    pub fn is_infrastructure(&self, address: IpAddr) -> bool {
        let ranges = [&self.join_subnets, &self.transit_subnets, &self.service_cidrs];
        let in_range = ranges.into_iter().flatten().any(|range| range.contains(&address));
        // The hairpin address is in the masquerade subnet, by upstream's default a /29 (IPv4, link-local) or
        // a /125.
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

/// A range from which nodes get their subnets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterSubnet {
    pub cidr: IpNet,
    /// Prefix length of one node's subnet, in bits.
    pub host_length: u8,
}

/// The name of a set of nodes that share one pair of OVN databases (northbound and southbound). It is
/// `global` where the cluster has one pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zone(pub String);

impl Default for Zone {
    fn default() -> Self {
        Self("global".to_owned())
    }
}
