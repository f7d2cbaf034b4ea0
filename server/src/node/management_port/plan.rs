//! The desired state of a node's management port: a function of the node's subnets and its
//! configuration. Pure.

use std::{collections::BTreeSet, net::IpAddr};

use contract::{
    mac::Mac,
    mtu::Mtu,
    ovn::{nth, port_mac},
};
use ipnet::IpNet;

use crate::services::Destination;

/// The interface's name, on every node.
pub(crate) const INTERFACE: &str = contract::paths::MANAGEMENT_PORT;

/// The configuration of the management port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagementPort {
    /// This node's subnets, if there is no API server to read them from.
    pub subnets: Vec<IpNet>,
    /// The subnets of all pods of the cluster.
    pub cluster: Vec<IpNet>,
    /// Whether `cluster` was configured. A default is used only if this node's subnet lies in it:
    /// otherwise it may be a network outside the cluster, which a route would cut off.
    pub cluster_is_given: bool,
    /// The ranges of Services' addresses that the options name.
    pub services: Vec<IpNet>,
    /// The masquerade subnets, IPv4 and IPv6. Their addresses are no host's.
    pub masquerade: [IpNet; 2],
    /// The ranges of OVN itself: between routers, between zones, and between a host and its gateway
    /// router.
    pub reserved: Vec<IpNet>,
    /// The masquerade addresses, IPv4 and IPv6, at which OVN has node ports for local traffic.
    pub local_traffic: [IpAddr; 2],
    /// The masquerade addresses, IPv4 and IPv6, by way of which the host of a gateway of upstream's
    /// reaches Services.
    pub to_gateway: [IpAddr; 2],
    /// What this host forwards to pods.
    pub forwarding: Forwarding,
    /// The UDP ports of the tunnels between nodes.
    pub tunnel_ports: BTreeSet<u16>,
    /// MTU of the interface, the same as that of pods.
    pub mtu: Mtu,
    /// MTU of the routes over the interface, if it is less.
    pub routable_mtu: Option<Mtu>,
}

/// What a host forwards to pods. Its own connections are not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarding {
    /// Connections whose destination was translated, which are those to Services, and answers.
    OfServices,
    /// What other machines route to pods over this node, too.
    OfAll,
}

/// What the API server or the configuration assigns to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AssignedSubnets {
    /// The first one of each family is used, the others are ignored.
    pub(crate) subnets: Vec<IpNet>,
    /// The interface's MAC address as recorded in `k8s.ovn.org/node-mgmt-port-mac-addresses`, if it
    /// is. Without it the MAC address is made of the IP address.
    pub(crate) mac: Option<Mac>,
    /// The MAC address of the router's port in the subnets, where it is not made of the IP address.
    pub(crate) router_mac: Option<Mac>,
    /// The addresses of its gateway router on the join switch.
    pub(crate) join: Vec<IpNet>,
}

/// The desired state of the port, in Open vSwitch and in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Desired {
    /// Name of the logical port: `k8s-NODE`, in lower case.
    pub(crate) iface_id: String,
    pub(crate) mac: Mac,
    pub(crate) mtu: Mtu,
    /// Host 2 of each subnet, with the prefix length of the subnet.
    pub(crate) addresses: Vec<IpNet>,
    pub(crate) neighbours: Vec<Neighbour>,
    pub(crate) routes: Vec<Route>,
    pub(crate) forwarding: Forwarding,
    /// The UDP ports of the tunnels between nodes.
    pub(crate) tunnel_ports: BTreeSet<u16>,
    /// The sources of what the host forwards, where it is not the port's address. `None` if that is
    /// not known yet.
    pub(crate) forwarded_sources: Option<Vec<IpAddr>>,
    /// What the host's kernel has to translate. `None` if that is not known yet.
    pub(crate) destinations: Option<Vec<Destination>>,
}

/// A permanent neighbour entry. OVN does not answer an ARP request whose sender address is not the
/// port's own, and a host with several addresses sends such requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Neighbour {
    pub(crate) address: IpAddr,
    pub(crate) mac: Mac,
}

/// A route over the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    pub(crate) to: IpNet,
    /// Unspecified for none.
    pub(crate) via: IpAddr,
    pub(crate) mtu: Option<u32>,
    /// The source address of what this host itself sends over it, unless a program chooses another
    /// one.
    pub(crate) source: Option<IpAddr>,
}

/// Why a node's subnets cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("subnet {0} has no room for a gateway and a management port")]
    TooSmall(IpNet),
    #[error("there is no subnet")]
    None,
}

impl ManagementPort {
    /// The desired port of node `node` with the subnets of `assigned`. `services`: the ranges of
    /// Services that are reached over it.
    pub(crate) fn desired(
        &self,
        node: &str,
        assigned: &AssignedSubnets,
        services: &[IpNet],
    ) -> Result<Desired, PlanError> {
        let subnets = one_of_each_family(&assigned.subnets);
        // Host 1 of each subnet is the logical router's port, host 2 the management port.
        let addresses =
            subnets.iter().map(|subnet| host(*subnet, 2)).collect::<Result<Vec<_>, _>>()?;
        let gateways =
            subnets.iter().map(|subnet| host(*subnet, 1)).collect::<Result<Vec<_>, _>>()?;
        let mac = assigned.mac.or_else(|| port_mac(&addresses)).ok_or(PlanError::None)?;
        // One port of the router serves both families, with one MAC address.
        let router_mac =
            assigned.router_mac.or_else(|| port_mac(&gateways)).ok_or(PlanError::None)?;

        let neighbours = gateways
            .iter()
            .map(|gateway| Neighbour { address: gateway.addr(), mac: router_mac })
            .collect();
        let routes = subnets
            .iter()
            .zip(&gateways)
            .flat_map(|(subnet, gateway)| self.routes(*subnet, gateway.addr(), services))
            .collect();
        Ok(Desired {
            // Kubernetes has node names in lower case only; a name without an API server may be a
            // host name.
            iface_id: format!("k8s-{}", node.to_lowercase()),
            mac,
            mtu: self.mtu,
            addresses,
            neighbours,
            routes,
            forwarding: self.forwarding,
            tunnel_ports: self.tunnel_ports.clone(),
            forwarded_sources: None,
            destinations: None,
        })
    }

    /// Routes to the masquerade addresses that destinations lead to.
    pub(crate) fn routes_to_local_traffic(&self, desired: &Desired) -> Vec<Route> {
        let targets = || {
            let all = desired.destinations.iter().flatten();
            all.filter_map(|destination| destination.local.as_deref()).flatten()
        };
        let used = self
            .local_traffic
            .into_iter()
            .filter(|own| targets().any(|target| target.ip() == *own));
        let route = |own: IpAddr| {
            let gateway =
                desired.neighbours.iter().find(|it| it.address.is_ipv4() == own.is_ipv4())?;
            Some(Route {
                to: own.into(),
                via: gateway.address,
                mtu: self.routable_mtu.map(Mtu::bytes),
                source: None,
            })
        };
        used.filter_map(route).collect()
    }

    /// Routes to all pods and Services of the family, except those in the node's own subnet, which
    /// the kernel has a route to.
    fn routes<'a>(
        &'a self,
        subnet: IpNet,
        via: IpAddr,
        services: &'a [IpNet],
    ) -> impl Iterator<Item = Route> + use<'a> {
        let mtu = self.routable_mtu.map(Mtu::bytes);
        let same_family = move |to: &&IpNet| to.addr().is_ipv4() == via.is_ipv4();
        let elsewhere = move |to: &&IpNet| !subnet.contains(*to);
        let believed = move |to: &&IpNet| self.cluster_is_given || to.contains(&subnet);
        self.cluster
            .iter()
            .filter(believed)
            .chain(services)
            .filter(same_family)
            .filter(elsewhere)
            .map(move |to| Route { to: to.trunc(), via, mtu, source: None })
    }
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

/// Host `number` (1 or 2) of `subnet`. A subnet with fewer than two host bits has no room for both:
/// IPv4 needs the last address for broadcasts.
fn host(subnet: IpNet, number: u8) -> Result<IpNet, PlanError> {
    if subnet.max_prefix_len() - subnet.prefix_len() < 2 {
        return Err(PlanError::TooSmall(subnet));
    }
    nth(&subnet, number.into()).ok_or(PlanError::TooSmall(subnet))
}

#[cfg(test)]
mod tests;
