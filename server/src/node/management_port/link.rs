//! The interface in the kernel: its actual state, and the steps from there to the desired state.
//! Pure: `kernel` reads the state and carries out the steps.

use std::fmt;

use contract::mac::Mac;
use ipnet::IpNet;
use podnet::bridge::Datapath;

use super::{
    plan::{Desired, Neighbour, Route},
    sysctl::Sysctl,
};

/// The actual state of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::node) struct SeenLink {
    pub(in crate::node) index: u32,
    pub(in crate::node) is_up: bool,
    pub(in crate::node) mac: Option<Mac>,
    pub(in crate::node) mtu: u32,
    /// Without those of link scope, which the kernel generates.
    pub(in crate::node) addresses: Vec<IpNet>,
    pub(in crate::node) routes: Vec<SeenRoute>,
    /// The permanent ones only.
    pub(in crate::node) neighbours: Vec<Neighbour>,
    /// The desired settings that have another value now. One that cannot be read is not among them.
    pub(in crate::node) sysctls: Vec<Sysctl>,
    /// Whether transmit checksum offload is on: senders leave checksums to the device. `None` if
    /// the driver does not say.
    pub(in crate::node) leaves_checksums: Option<bool>,
}

/// A route of the main table over the interface, other than the kernel's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::node) struct SeenRoute {
    pub(in crate::node) route: Route,
    /// Whether this program made it.
    pub(in crate::node) is_ours: bool,
}

/// One change to the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::node) enum Step {
    SetMac(Mac),
    SetMtu(u32),
    SetUp,
    RemoveAddress(IpNet),
    AddAddress(IpNet),
    SetNeighbour(Neighbour),
    RemoveNeighbour(Neighbour),
    RemoveRoute(Route),
    AddRoute(Route),
    SetSysctl(Sysctl),
    TurnChecksumOffloadOff,
}

/// The steps from `seen` to `desired`, in the order in which they have to be done. Empty if nothing
/// differs. `datapath`: that of the port's bridge.
pub(super) fn steps(desired: &Desired, datapath: Datapath, seen: &SeenLink) -> Vec<Step> {
    let Desired {
        iface_id: _,
        mac,
        mtu,
        addresses,
        neighbours,
        routes,
        forwarding: _,
        forwarded_sources: _,
        destinations: _,
        tunnel_ports: _,
    } = desired;
    let mut steps = Vec::new();
    if seen.mac != Some(*mac) {
        steps.push(Step::SetMac(*mac));
    }
    if seen.mtu != mtu.bytes() {
        steps.push(Step::SetMtu(mtu.bytes()));
    }
    // In user space packets are forwarded as they are: a checksum that is left to the device stays
    // wrong.
    if datapath == Datapath::Userspace && seen.leaves_checksums == Some(true) {
        steps.push(Step::TurnChecksumOffloadOff);
    }
    // Before the link is up: with `accept_ra` still on it could take a router advertisement first.
    steps.extend(seen.sysctls.iter().copied().map(Step::SetSysctl));
    // Before addresses and routes: the kernel refuses routes over a link that is down (`ENETDOWN`).
    if !seen.is_up {
        steps.push(Step::SetUp);
    }
    // Removed before others are added: a second IPv4 address of one subnet is a secondary one, and
    // goes with the first.
    steps.extend(
        seen.addresses
            .iter()
            .filter(|address| !addresses.contains(address))
            .copied()
            .map(Step::RemoveAddress),
    );
    steps.extend(
        addresses
            .iter()
            .filter(|address| !seen.addresses.contains(address))
            .copied()
            .map(Step::AddAddress),
    );
    steps.extend(
        neighbours
            .iter()
            .filter(|neighbour| !seen.neighbours.contains(neighbour))
            .copied()
            .map(Step::SetNeighbour),
    );
    // Our own routes that are no longer desired, and any other route to a desired destination.
    // Other programs' routes stay.
    let in_the_way = |there: &&SeenRoute| {
        let same_destination = routes.iter().any(|route| route.to == there.route.to);
        !routes.contains(&there.route) && (there.is_ours || same_destination)
    };
    // Removed before others are added: the kernel refuses a second route of the same metric
    // (`EEXIST`).
    steps.extend(seen.routes.iter().filter(in_the_way).map(|there| Step::RemoveRoute(there.route)));
    let is_there = |route: &Route| seen.routes.iter().any(|there| there.route == *route);
    steps.extend(routes.iter().filter(|route| !is_there(route)).copied().map(Step::AddRoute));
    steps
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetMac(mac) => write!(f, "set MAC {mac}"),
            Self::SetMtu(mtu) => write!(f, "set MTU {mtu}"),
            Self::SetUp => f.write_str("set link up"),
            Self::RemoveAddress(address) => write!(f, "removed address {address}"),
            Self::AddAddress(address) => write!(f, "added address {address}"),
            Self::SetNeighbour(Neighbour { address, mac }) => {
                write!(f, "set neighbour {address} {mac}")
            }
            Self::RemoveNeighbour(Neighbour { address, mac }) => {
                write!(f, "removed neighbour {address} {mac}")
            }
            Self::RemoveRoute(Route { to, via, .. }) => write!(f, "removed route {to} via {via}"),
            Self::AddRoute(Route { to, via, .. }) => write!(f, "added route {to} via {via}"),
            Self::SetSysctl(sysctl) => write!(f, "set {sysctl}"),
            Self::TurnChecksumOffloadOff => f.write_str("turned transmit checksum offload off"),
        }
    }
}

#[cfg(test)]
mod tests;
