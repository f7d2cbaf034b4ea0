//! The part of the cluster's network that a node needs for its management port.

use contract::ovn::Masquerade;
use ipnet::IpNet;
use server::node::{Forwarding, ManagementPort};

use super::{
    chassis, networks,
    reading::Reading,
    table::{cluster, gateway, node},
    values,
};

pub(super) fn management_port(reading: &mut Reading) -> Option<ManagementPort> {
    let subnets =
        reading.read_given(&node::NODE_SUBNETS, networks::one_of_each_family).unwrap_or_default();
    let cluster_is_given = reading.settings.given(&cluster::CLUSTER_SUBNETS).is_some();
    let cluster: Vec<IpNet> = reading
        .read(&cluster::CLUSTER_SUBNETS, networks::cluster_subnets)?
        .into_iter()
        .map(|subnet| subnet.cidr)
        .collect();
    // No route for a default: the range may be a network outside of the cluster.
    let services = reading
        .read_given(&cluster::SERVICE_CIDRS, networks::one_of_each_family)
        .unwrap_or_default();
    let masquerade = masquerade(reading)?;
    let forwarding = match reading.switch(&gateway::FORWARDING)? {
        true => Forwarding::OfServices,
        false => Forwarding::OfAll,
    };
    let between = [
        reading.read(&cluster::V4_JOIN_SUBNET, |text| networks::v4(text).map(IpNet::V4)),
        reading.read(&cluster::V6_JOIN_SUBNET, |text| networks::v6(text).map(IpNet::V6)),
        reading.read(&cluster::V4_TRANSIT_SUBNET, |text| networks::v4(text).map(IpNet::V4)),
        reading.read(&cluster::V6_TRANSIT_SUBNET, |text| networks::v6(text).map(IpNet::V6)),
    ];
    let reserved = between.into_iter().flatten().chain(masquerade).collect();
    let tunnel_ports = chassis::tunnel_ports(reading)?;
    let mtu = reading.read(&node::MTU, values::mtu);
    let routable_mtu = reading.read(&node::ROUTABLE_MTU, values::mtu_or_none);
    Some(ManagementPort {
        subnets,
        cluster,
        cluster_is_given,
        services,
        masquerade,
        local_traffic: Masquerade::LocalTraffic.in_each(masquerade),
        to_gateway: Masquerade::NextHop.in_each(masquerade),
        forwarding,
        tunnel_ports,
        reserved,
        mtu: mtu?,
        routable_mtu: routable_mtu?,
    })
}

/// The masquerade subnets, IPv4 and IPv6.
pub(super) fn masquerade(reading: &mut Reading) -> Option<[IpNet; 2]> {
    let v4 = reading.read(&cluster::V4_MASQUERADE_SUBNET, |text| networks::v4(text).map(IpNet::V4));
    let v6 = reading.read(&cluster::V6_MASQUERADE_SUBNET, |text| networks::v6(text).map(IpNet::V6));
    Some([v4?, v6?])
}
