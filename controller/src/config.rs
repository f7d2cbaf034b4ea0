//! What the options say about the cluster. Knows nothing of where they came from.

use std::net::IpAddr;

use ipnet::IpNet;

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
