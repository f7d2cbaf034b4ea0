//! The host's way to its gateway router: the first masquerade address, from which OVN asks
//! endpoints that are the host itself. The answers go over the bridge. Pure.
//!
//! What the host asks of Services goes over the management port, so it needs no masquerade address
//! of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use contract::mac::Mac;
use ipnet::IpNet;

use crate::node::management_port::{
    link::{SeenLink, Step},
    plan::{Neighbour, Route},
};

/// What the bridge's own link has, beside what others have given to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostSide {
    routes: Vec<Route>,
    neighbours: Vec<Neighbour>,
}

impl HostSide {
    /// Of a node with these addresses. `ovn`: the masquerade address of OVN in the family of an
    /// address.
    pub(super) fn of(addresses: &[IpNet], ovn: impl Fn(IpAddr) -> IpAddr) -> Self {
        let route = |node: IpAddr| {
            let via: IpAddr = if node.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            Route { to: ovn(node).into(), via, mtu: None, source: Some(node) }
        };
        // OVN answers no ARP request for the address; the flows bring the packets in, whatever the
        // MAC address.
        let neighbour =
            |node: IpAddr| Neighbour { address: ovn(node), mac: Mac::from_ip(ovn(node)) };
        let nodes = || addresses.iter().map(IpNet::addr);
        Self { routes: nodes().map(route).collect(), neighbours: nodes().map(neighbour).collect() }
    }

    /// The steps that add what is missing, and take away routes of this program that are not wanted
    /// any more.
    pub(super) fn steps(&self, seen: &SeenLink) -> Vec<Step> {
        let mut steps = Vec::new();
        let missing = |wanted: &&Neighbour| !seen.neighbours.contains(wanted);
        steps.extend(self.neighbours.iter().filter(missing).copied().map(Step::SetNeighbour));
        let is_in_the_way = |route: &Route| !self.routes.contains(route);
        let old = seen.routes.iter().filter(|there| {
            let same = self.routes.iter().any(|wanted| wanted.to == there.route.to);
            is_in_the_way(&there.route) && (there.is_ours || same)
        });
        steps.extend(old.map(|there| Step::RemoveRoute(there.route)));
        let is_there = |wanted: &Route| seen.routes.iter().any(|there| there.route == *wanted);
        steps.extend(
            self.routes.iter().filter(|wanted| !is_there(wanted)).copied().map(Step::AddRoute),
        );
        steps
    }

    /// The steps that take everything of this program away.
    pub(super) fn removal(seen: &SeenLink) -> Vec<Step> {
        let own = || seen.routes.iter().filter(|there| there.is_ours).map(|there| there.route);
        let is_own =
            |neighbour: &&Neighbour| own().any(|route| route.to == IpNet::from(neighbour.address));
        let neighbours = seen.neighbours.iter().filter(is_own).copied().map(Step::RemoveNeighbour);
        neighbours.chain(own().map(Step::RemoveRoute)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::management_port::link::SeenRoute;

    fn ovn(node: IpAddr) -> IpAddr {
        if node.is_ipv4() { [169, 254, 169, 1].into() } else { "fd69::1".parse().unwrap() }
    }

    #[test]
    fn only_what_is_missing_is_added_and_a_new_address_replaces_the_old_ones_route() {
        let side = |address: &str| HostSide::of(&[address.parse().unwrap()], ovn);
        let (old, new) = (side("172.18.0.3/16"), side("172.18.0.4/16"));
        let other = Route {
            to: "10.0.0.0/8".parse().unwrap(),
            via: "172.18.0.9".parse().unwrap(),
            mtu: None,
            source: None,
        };
        let mut seen = SeenLink {
            index: 4,
            is_up: true,
            mac: None,
            mtu: 1500,
            addresses: Vec::new(),
            routes: vec![SeenRoute { route: other, is_ours: false }],
            neighbours: Vec::new(),
            sysctls: Vec::new(),
            leaves_checksums: None,
        };
        assert_eq!(
            old.steps(&seen),
            [Step::SetNeighbour(old.neighbours[0]), Step::AddRoute(old.routes[0])]
        );
        seen.routes.push(SeenRoute { route: old.routes[0], is_ours: true });
        seen.neighbours = old.neighbours.clone();
        assert_eq!(old.steps(&seen), []);
        assert_eq!(
            new.steps(&seen),
            [Step::RemoveRoute(old.routes[0]), Step::AddRoute(new.routes[0])]
        );
        assert_eq!(
            HostSide::removal(&seen),
            [Step::RemoveNeighbour(old.neighbours[0]), Step::RemoveRoute(old.routes[0])],
            "what is another's stays"
        );
    }
}
