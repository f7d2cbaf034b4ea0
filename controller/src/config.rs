//! Settings of the cluster, as the options give them. Does not know where the options came from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use contract::mtu::Mtu;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kubeapi::services::Family;

pub use contract::{namespace_annotation::Multicast, ovn::Masquerade};

/// OVN's port of Geneve (RFC 8926).
pub const GENEVE_PORT: u16 = 6081;

/// Settings that all nodes of a cluster share. Lists hold at most one network of each family unless
/// they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The zone whose northbound database this controller writes; nodes of other zones get transit
    /// rows only.
    pub zone: Zone,
    /// Whether pods of several zones reach each other (`--enable-interconnect`).
    pub interconnect: Interconnect,
    /// Address ranges of pods: one or more per family, used up in this order.
    pub cluster_subnets: Vec<ClusterSubnet>,
    /// Address ranges of services.
    pub service_cidrs: Vec<IpNet>,
    /// Address ranges between the cluster router and the nodes' gateway routers.
    pub join_subnets: Vec<IpNet>,
    /// Address ranges between zones.
    pub transit_subnets: Vec<IpNet>,
    /// The source addresses that OVN gives to a pod that reaches itself through a service, one per
    /// family: base of the masquerade subnet + 5.
    pub hairpin_addresses: Vec<IpAddr>,
    /// The masquerade subnets, IPv4 and IPv6, whatever families pods have. Load balancers name
    /// both.
    pub masquerade: [IpNet; 2],
    /// The UDP port of tunnels, which nodes of other zones get packets at (`--encap-port`).
    pub encap_port: u16,
    /// The MTU of pods: the largest packet that the overlay carries.
    pub mtu: Mtu,
    /// Whether each pod has a translation of its own behind its node's gateway router, instead of
    /// one for all (`--disable-snat-multiple-gws`).
    pub snat_per_pod: bool,
    /// Whether a connection to an idled Service becomes an event (`--ovn-empty-lb-events`).
    pub empty_lb_events: bool,
    /// Whether a NodePort is one load balancer with variables (`--enable-svc-template-support`).
    pub templates: Templates,
    /// Whether pods' ports get `requested-chassis`; off with `--disable-requestedchassis`.
    pub requested_chassis: bool,
    /// Whether pods get the annotation `ovn` of 2018 beside `k8s.ovn.org/pod-networks`, for
    /// programs that read only the older one.
    pub legacy_annotations: bool,
    /// ACL log lines per second, on each chassis.
    pub acl_logging_rate_limit: u32,
    /// Whether the annotation `k8s.ovn.org/acl-stateless` of policies counts
    /// (`--enable-stateless-netpol`).
    pub stateless_policies: bool,
    /// Whether pods of namespaces with the annotation `k8s.ovn.org/multicast-enabled` have
    /// multicast (`--enable-multicast`).
    pub multicast: Multicast,
}

/// Upstream's defaults, for a cluster with IPv4 pods.
impl Default for ClusterConfig {
    fn default() -> Self {
        let net = |[a, b, c, d]: [u8; 4], length| {
            Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length).into()
        };
        Self {
            zone: Zone::default(),
            interconnect: Interconnect::Off,
            cluster_subnets: vec![ClusterSubnet {
                cidr: net([10, 128, 0, 0], 14),
                host_length: 23,
            }],
            service_cidrs: vec![net([172, 16, 1, 0], 24)],
            join_subnets: vec![net([100, 64, 0, 0], 16)],
            transit_subnets: vec![net([100, 88, 0, 0], 16)],
            hairpin_addresses: vec![Ipv4Addr::new(169, 254, 169, 5).into()],
            masquerade: [
                net([169, 254, 169, 0], 29),
                Ipv6Net::new_assert(Ipv6Addr::new(0xfd69, 0, 0, 0, 0, 0, 0, 0), 125).into(),
            ],
            encap_port: GENEVE_PORT,
            mtu: Mtu::DEFAULT,
            snat_per_pod: false,
            empty_lb_events: false,
            templates: Templates::Never,
            requested_chassis: true,
            legacy_annotations: false,
            acl_logging_rate_limit: 20,
            stateless_policies: false,
            multicast: Multicast::Off,
        }
    }
}

impl ClusterConfig {
    /// Whether there is a way to other zones.
    pub fn is_connected(&self) -> bool {
        self.interconnect != Interconnect::Off
    }

    /// Whether the address is in a range of pods. An endpoint elsewhere is a host's, or outside.
    pub fn is_of_pods(&self, address: IpAddr) -> bool {
        self.cluster_subnets.iter().any(|subnet| subnet.cidr.contains(&address))
    }

    /// The families of pods' addresses: IPv4 before IPv6.
    pub fn families(&self) -> impl Iterator<Item = Family> + use<> {
        let has = |family| {
            self.cluster_subnets.iter().any(|subnet| Family::of(&subnet.cidr.addr()) == family)
        };
        [Family::V4, Family::V6].map(|family| has(family).then_some(family)).into_iter().flatten()
    }

    /// The masquerade addresses for this, IPv4 and IPv6.
    pub fn masquerade(&self, what: Masquerade) -> [IpAddr; 2] {
        what.in_each(self.masquerade)
    }

    /// Whether the address belongs to OVN or to the cluster itself, so that no pod may have it.
    pub fn is_infrastructure(&self, address: IpAddr) -> bool {
        let ranges = [&self.join_subnets, &self.transit_subnets, &self.service_cidrs];
        let in_range = ranges.into_iter().flatten().any(|range| range.contains(&address));
        // The hairpin address is in the masquerade subnet, by upstream's default a /29 (IPv4,
        // link-local) or a /125.
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

/// Whether a zone is connected with the others by a switch that all of them have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interconnect {
    Off,
    On,
    /// Each node is a zone of its name, whether it says so or not: upstream's since 2026 do not.
    NodeZones,
}

/// Whether a NodePort is one load balancer for all nodes, with variables for their addresses, or
/// one for each node. A database without the table of variables (before OVN 22.12) has the latter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Templates {
    Always,
    Never,
    /// With variables, unless the database has NodePorts without them at the start: upstream's, or
    /// those of an earlier release. They are as good as others, and each would be another row.
    AsFound,
}

/// A range from which nodes get their subnets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterSubnet {
    pub cidr: IpNet,
    /// Prefix length of one node's subnet, in bits.
    pub host_length: u8,
}

/// The name of a set of nodes that share one pair of OVN databases (northbound and southbound). It
/// is `global` where the cluster has one pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zone(pub String);

impl Default for Zone {
    fn default() -> Self {
        Self("global".to_owned())
    }
}
