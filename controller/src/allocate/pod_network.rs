//! The network of a pod. Gateways, routes and MAC derive from its addresses and the cluster's
//! settings.

use contract::{
    annotation::{PodNetwork, Role, Route},
    mac::Mac,
    ovn,
};
use ipnet::IpNet;

use crate::config::ClusterConfig;

/// A pod's network in compact form: what derives from the addresses is computed on demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    pub mac: Mac,
    pub addresses: Vec<IpNet>,
    /// The complete network, if it differs from the one that the addresses imply.
    whole: Option<Box<PodNetwork>>,
}

impl Assigned {
    /// Drops the complete network if it can be derived.
    pub fn shorten(&mut self, config: &ClusterConfig) {
        self.whole =
            self.whole.take().filter(|whole| self.derived(config).as_ref() != Some(&**whole));
    }

    /// The complete network; none without an address.
    pub fn network(&self, config: &ClusterConfig) -> Option<PodNetwork> {
        self.whole.as_deref().cloned().or_else(|| self.derived(config))
    }

    fn derived(&self, config: &ClusterConfig) -> Option<PodNetwork> {
        pod_network(config, self.addresses.clone())
            .map(|network| PodNetwork { mac: self.mac, ..network })
    }
}

impl From<PodNetwork> for Assigned {
    fn from(network: PodNetwork) -> Self {
        Self {
            mac: network.mac,
            addresses: network.addresses.clone(),
            whole: Some(Box::new(network)),
        }
    }
}

/// The network of a pod with these addresses, each with the prefix length of its node's subnet;
/// none without an address.
///
/// The routes keep the cluster's traffic on this network, whatever other networks the pod has: to
/// pods, to services, to itself through a service (hairpin), and to gateway routers. The order is
/// upstream's.
pub fn pod_network(config: &ClusterConfig, addresses: Vec<IpNet>) -> Option<PodNetwork> {
    let mac = Mac::from_ip(addresses.first()?.addr());
    let (mut gateways, mut routes) = (Vec::with_capacity(addresses.len()), Vec::new());
    for address in &addresses {
        let gateway = ovn::gateway(&address.trunc())?.addr();
        let clusters = config.cluster_subnets.iter().map(|subnet| subnet.cidr);
        let hairpins = config.hairpin_addresses.iter().map(|address| IpNet::from(*address));
        let all = clusters
            .chain(config.service_cidrs.iter().copied())
            .chain(hairpins)
            .chain(config.join_subnets.iter().copied());
        // The next hop of a route has to be of the family of its destination.
        let of_family = all.filter(|net| net.addr().is_ipv4() == gateway.is_ipv4());
        routes.extend(
            of_family.map(|net| Route { destination: net.trunc(), next_hop: Some(gateway) }),
        );
        gateways.push(gateway);
    }
    Some(PodNetwork {
        mac,
        addresses,
        gateways,
        routes,
        role: Role::Primary,
        tunnel_id: 0,
        ipv6_link_local_gateway: None,
    })
}
