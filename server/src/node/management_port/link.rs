//! The interface in the kernel: what there is of it, and the steps that make it what it is to be. Pure; `kernel` reads and does.

use std::fmt;

use contract::mac::Mac;
use ipnet::IpNet;

use super::{
    plan::{Desired, Neighbour, Route},
    sysctl::Sysctl,
};

/// What there is of the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenLink {
    pub(super) index: u32,
    pub(super) is_up: bool,
    pub(super) mac: Option<Mac>,
    pub(super) mtu: u32,
    /// Without those that the kernel makes up for the link.
    pub(super) addresses: Vec<IpNet>,
    pub(super) routes: Vec<SeenRoute>,
    /// Those that are permanent.
    pub(super) neighbours: Vec<Neighbour>,
    /// What could be read, and is not as it is to be.
    pub(super) sysctls: Vec<Sysctl>,
    /// Whether senders leave checksums to whoever forwards; none if the driver does not say.
    pub(super) leaves_checksums: Option<bool>,
}

/// A route of the main table over the interface, other than the kernel's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenRoute {
    pub(super) route: Route,
    /// This program made it.
    pub(super) is_ours: bool,
}

/// One change of the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    SetMac(Mac),
    SetMtu(u32),
    SetUp,
    RemoveAddress(IpNet),
    AddAddress(IpNet),
    SetNeighbour(Neighbour),
    RemoveRoute(Route),
    AddRoute(Route),
    SetSysctl(Sysctl),
    TurnChecksumOffloadOff,
}

/// What is to be done, in this order; nothing where everything is as it should be.
pub(super) fn steps(desired: &Desired, in_user_space: bool, seen: &SeenLink) -> Vec<Step> {
    let Desired { iface_id: _, mac, mtu, addresses, neighbours, routes } = desired;
    let mut steps = Vec::new();
    if seen.mac != Some(*mac) {
        steps.push(Step::SetMac(*mac));
    }
    if seen.mtu != mtu.bytes() {
        steps.push(Step::SetMtu(mtu.bytes()));
    }
    if in_user_space && seen.leaves_checksums == Some(true) {
        steps.push(Step::TurnChecksumOffloadOff);
    }
    steps.extend(seen.sysctls.iter().copied().map(Step::SetSysctl));
    // Addresses and routes of a link that is down go when it comes up, or never come.
    if !seen.is_up {
        steps.push(Step::SetUp);
    }
    steps.extend(seen.addresses.iter().filter(|address| !addresses.contains(address)).copied().map(Step::RemoveAddress));
    steps.extend(addresses.iter().filter(|address| !seen.addresses.contains(address)).copied().map(Step::AddAddress));
    steps.extend(neighbours.iter().filter(|neighbour| !seen.neighbours.contains(neighbour)).copied().map(Step::SetNeighbour));
    let in_the_way = |there: &&SeenRoute| {
        let same_destination = routes.iter().any(|route| route.to == there.route.to);
        !routes.contains(&there.route) && (there.is_ours || same_destination)
    };
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
            Self::SetNeighbour(Neighbour { address, mac }) => write!(f, "set neighbour {address} {mac}"),
            Self::RemoveRoute(Route { to, via, .. }) => write!(f, "removed route {to} via {via}"),
            Self::AddRoute(Route { to, via, .. }) => write!(f, "added route {to} via {via}"),
            Self::SetSysctl(sysctl) => write!(f, "set {sysctl}"),
            Self::TurnChecksumOffloadOff => f.write_str("turned transmit checksum offload off"),
        }
    }
}

#[cfg(test)]
mod tests;
