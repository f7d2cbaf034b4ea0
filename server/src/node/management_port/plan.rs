//! What a node's management port is to be: a function of the node's subnets and of what the node is told. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use contract::{mac::Mac, mtu::Mtu};
use ipnet::IpNet;

/// The interface's name, on every node.
pub(crate) const INTERFACE: &str = "ovn-k8s-mp0";

/// What of the cluster's network a node knows without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagementPort {
    /// This node's subnets, where no API server tells them.
    pub subnets: Vec<IpNet>,
    /// Where all pods have their addresses.
    pub cluster: Vec<IpNet>,
    /// Whether somebody said so. A default is believed where this node's subnet lies in it: elsewhere it may be somebody's network.
    pub cluster_is_given: bool,
    /// Where services have theirs.
    pub services: Vec<IpNet>,
    /// Of the interface, as of pods.
    pub mtu: Mtu,
    /// Of the routes to other nodes' pods, if it is less.
    pub routable_mtu: Option<Mtu>,
}

/// What the cluster says about a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lease {
    /// At most one of each family matters; the first one gives the interface its Ethernet address.
    pub(crate) subnets: Vec<IpNet>,
    /// An Ethernet address that somebody recorded (`k8s.ovn.org/node-mgmt-port-mac-addresses`).
    pub(crate) mac: Option<Mac>,
}

/// The port as it is to be, in Open vSwitch and in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Desired {
    /// Of the logical port.
    pub(crate) iface_id: String,
    pub(crate) mac: Mac,
    pub(crate) mtu: Mtu,
    /// With the prefix lengths of the subnets.
    pub(crate) addresses: Vec<IpNet>,
    pub(crate) neighbours: Vec<Neighbour>,
    pub(crate) routes: Vec<Route>,
}

/// An address whose Ethernet address nobody has to ask for: OVN does not answer who asks with an address that is not the port's, as a
/// host does that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Neighbour {
    pub(crate) address: IpAddr,
    pub(crate) mac: Mac,
}

/// A route over the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    pub(crate) to: IpNet,
    pub(crate) via: IpAddr,
    pub(crate) mtu: Option<u32>,
}

/// Why subnets cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("subnet {0} has no room for a gateway and a management port")]
    TooSmall(IpNet),
    #[error("there is no subnet")]
    None,
}

impl ManagementPort {
    /// The port of node `node` with the subnets that it has.
    pub(crate) fn desired(&self, node: &str, lease: &Lease) -> Result<Desired, PlanError> {
        let subnets = one_of_each_family(&lease.subnets);
        let addresses = subnets.iter().map(|subnet| host(*subnet, 2)).collect::<Result<Vec<_>, _>>()?;
        let gateways = subnets.iter().map(|subnet| host(*subnet, 1)).collect::<Result<Vec<_>, _>>()?;
        let mac = lease.mac.or_else(|| mac_of(&addresses)).ok_or(PlanError::None)?;
        // One port of the router serves both families.
        let router_mac = mac_of(&gateways).ok_or(PlanError::None)?;

        let neighbours = gateways.iter().map(|gateway| Neighbour { address: gateway.addr(), mac: router_mac }).collect();
        let routes = subnets.iter().zip(&gateways).flat_map(|(subnet, gateway)| self.routes(*subnet, gateway.addr())).collect();
        Ok(Desired { iface_id: format!("k8s-{}", node.to_lowercase()), mac, mtu: self.mtu, addresses, neighbours, routes })
    }

    /// To everything of the cluster that is not in the node's own subnet.
    fn routes(&self, subnet: IpNet, via: IpAddr) -> impl Iterator<Item = Route> {
        let mtu = self.routable_mtu.map(Mtu::bytes);
        let same_family = move |to: &&IpNet| to.addr().is_ipv4() == via.is_ipv4();
        let elsewhere = move |to: &&IpNet| !subnet.contains(*to);
        let believed = move |to: &&IpNet| self.cluster_is_given || to.contains(&subnet);
        self.cluster.iter().filter(believed).chain(&self.services).filter(same_family).filter(elsewhere).map(move |to| Route {
            to: to.trunc(),
            via,
            mtu,
        })
    }
}

/// Of a port with these addresses: made of the IPv4 address, if there is one.
fn mac_of(addresses: &[IpNet]) -> Option<Mac> {
    let address = addresses.iter().find(|address| address.addr().is_ipv4()).or(addresses.first());
    address.map(|address| Mac::from_ip(address.addr()))
}

fn one_of_each_family(subnets: &[IpNet]) -> Vec<IpNet> {
    let mut chosen: Vec<IpNet> = Vec::new();
    for subnet in subnets {
        if !chosen.iter().any(|other| other.addr().is_ipv4() == subnet.addr().is_ipv4()) {
            chosen.push(subnet.trunc());
        }
    }
    chosen
}

/// Host number `number` of `subnet`, which has to have that one, and, with IPv4, a broadcast address beyond it.
fn host(subnet: IpNet, number: u8) -> Result<IpNet, PlanError> {
    if subnet.max_prefix_len() - subnet.prefix_len() < 2 {
        return Err(PlanError::TooSmall(subnet));
    }
    let address = match subnet.network() {
        IpAddr::V4(base) => IpAddr::from(Ipv4Addr::from(u32::from(base) | u32::from(number))),
        IpAddr::V6(base) => IpAddr::from(Ipv6Addr::from(u128::from(base) | u128::from(number))),
    };
    IpNet::new(address, subnet.prefix_len()).map_err(|_| PlanError::TooSmall(subnet))
}

#[cfg(test)]
mod tests;
