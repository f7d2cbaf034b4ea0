//! The network that a pod gets with its addresses: everything else follows from them and from the cluster's settings.

use contract::{
    annotation::{PodNetwork, Role, Route},
    mac::Mac,
    ovn,
};
use ipnet::IpNet;

use crate::config::ClusterConfig;

/// The network of a pod with these addresses, each with the prefix of its node's subnet; none without an address.
///
/// Whatever other networks the pod has, what is of the cluster goes by this one: its pods, services, a pod's answers to itself by a
/// service, and gateway routers. The order is upstream's.
pub fn pod_network(config: &ClusterConfig, addresses: Vec<IpNet>) -> Option<PodNetwork> {
    let mac = Mac::from_ip(addresses.first()?.addr());
    let (mut gateways, mut routes) = (Vec::new(), Vec::new());
    for address in &addresses {
        let gateway = ovn::gateway(&address.trunc())?.addr();
        let clusters = config.cluster_subnets.iter().map(|subnet| subnet.cidr);
        let hairpins = config.hairpin_addresses.iter().map(|address| IpNet::from(*address));
        let all = clusters.chain(config.service_cidrs.iter().copied()).chain(hairpins).chain(config.join_subnets.iter().copied());
        let of_family = all.filter(|net| net.addr().is_ipv4() == gateway.is_ipv4());
        routes.extend(of_family.map(|net| Route { destination: net.trunc(), next_hop: Some(gateway) }));
        gateways.push(gateway);
    }
    Some(PodNetwork { mac, addresses, gateways, routes, role: Role::Primary, tunnel_id: 0, ipv6_link_local_gateway: None })
}
