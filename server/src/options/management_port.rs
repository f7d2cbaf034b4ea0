//! What of the cluster's network the options tell a node, for its management port.

use ipnet::IpNet;

use super::{
    node_config::Reading,
    table::{kubernetes, later, node},
    values,
};
use crate::node::ManagementPort;

pub(super) fn management_port(reading: &mut Reading) -> Option<ManagementPort> {
    let subnets = reading.read_given(&node::NODE_SUBNETS, networks).unwrap_or_default();
    let cluster_is_given = reading.settings.given(&later::CLUSTER_SUBNETS).is_some();
    let cluster = reading.read(&later::CLUSTER_SUBNETS, networks);
    // A default that nobody confirmed is not worth a route: it may be somebody's network.
    let services = reading.read_given(&kubernetes::SERVICE_CIDRS, networks).unwrap_or_default();
    let mtu = reading.read(&node::MTU, values::mtu);
    let routable_mtu = reading.read(&node::ROUTABLE_MTU, values::mtu_or_none);
    Some(ManagementPort { subnets, cluster: cluster?, cluster_is_given, services, mtu: mtu?, routable_mtu: routable_mtu? })
}

/// `CIDR[/LENGTH],…`; the length of nodes' parts is the cluster manager's business.
fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    let network = |entry: &str| {
        let cidr: String = entry.trim().split('/').take(2).collect::<Vec<_>>().join("/");
        cidr.parse::<IpNet>().map(|network| network.trunc()).map_err(|_| format!("{entry:?} is no network such as 10.244.0.0/16"))
    };
    text.split(',').map(network).collect()
}
