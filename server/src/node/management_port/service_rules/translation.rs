//! What the kernel's rules do with one connection from another machine, for `ovnkube trace`. Reads
//! only.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use contract::wire::HostAnswer;
use podnet::nftables::{Elements, FoundSet};

use super::{Family, Use, end, octets};
use crate::services::Protocol;

/// The elements of all sets of one family.
struct Found(Vec<(Use, Elements)>);

/// Reads the rules for a connection of `client`. Needs a tokio runtime.
///
/// # Errors
/// The kernel refuses, or has no nftables.
pub(crate) async fn translation(
    client: IpAddr,
    at: SocketAddr,
    protocol: Protocol,
) -> io::Result<HostAnswer> {
    let family = Family::of(at.ip());
    let mut found = Vec::new();
    for set in [Use::Limited, Use::Clients, Use::Refused, Use::LocalServices, Use::Services] {
        if let FoundSet::Elements(elements) = set.set(family).look().await? {
            found.push((set, elements));
        }
    }
    Ok(Found(found).translation(client, at, protocol))
}

impl Found {
    fn translation(&self, client: IpAddr, at: SocketAddr, protocol: Protocol) -> HostAnswer {
        let key = |address: IpAddr| {
            let mut key = octets(address);
            key.extend(end(protocol, at.port()));
            key
        };
        let own = key(at.ip());
        let of_host = key(Family::of(at.ip()).unspecified());
        let mut of_client = own.clone();
        of_client.extend(octets(client));
        let limited = self.has(Use::Limited, &own)
            && !self
                .of(Use::Clients)
                .any(|(first, last)| *first <= of_client && of_client <= *last);
        let refused = [&own, &of_host].into_iter().any(|key| self.has(Use::Refused, key));
        // In the order of the rules: an address of the Service before any of the host.
        let places = [Use::LocalServices, Use::Services]
            .into_iter()
            .flat_map(|map| [&own, &of_host].map(|key| self.targets(map, key)));
        let targets = places.into_iter().find(|targets| !targets.is_empty()).unwrap_or_default();
        HostAnswer { targets, limited, refused }
    }

    fn of(&self, set: Use) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.0.iter().filter(move |(of, _)| *of == set).flat_map(|(_, elements)| elements)
    }

    fn has(&self, set: Use, key: &[u8]) -> bool {
        self.of(set).any(|(known, _)| known == key)
    }

    /// The values of the key in a map, whose keys have two numbers between address and protocol.
    fn targets(&self, map: Use, key: &[u8]) -> Vec<SocketAddr> {
        let (address, rest) = key.split_at(key.len().saturating_sub(8));
        let mut targets: Vec<SocketAddr> = self
            .of(map)
            .filter(|(known, _)| known.starts_with(address) && known.ends_with(rest))
            .filter_map(|(_, value)| target(value))
            .collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }
}

/// Address, port and two bytes.
fn target(value: &[u8]) -> Option<SocketAddr> {
    let (address, rest) = value.split_at_checked(value.len().checked_sub(4)?)?;
    let address = match address.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
    };
    let [high, low, ..] = rest else { return None };
    Some(SocketAddr::new(address, u16::from_be_bytes([*high, *low])))
}

#[cfg(test)]
mod tests {
    use super::{super::Plan, *};
    use crate::services::Destination;

    /// As the kernel has the plan.
    fn found(destinations: &[Destination], family: Family) -> Found {
        let Plan { sets, .. } = Plan::new(destinations);
        let own = sets.into_iter().filter(|((_, of), _)| *of == family);
        Found(own.map(|((set, _), elements)| (set, elements)).collect())
    }

    fn place(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_the_plan_writes_is_read_again_for_node_ports_ranges_and_local_policies() {
        let node_port = Destination {
            address: None,
            protocol: Protocol::Tcp,
            port: 30080,
            cluster: "10.96.0.7".parse().unwrap(),
            targets: vec![place("10.96.0.7:80")],
            local: None,
            hosts: Vec::new(),
            clients: None,
        };
        let limited = Destination {
            address: "198.51.100.7".parse().ok(),
            port: 80,
            clients: Some(vec!["203.0.113.0/24".parse().unwrap()]),
            ..node_port.clone()
        };
        let local = Destination {
            port: 30081,
            local: Some(vec![place("169.254.169.3:30081")]),
            ..node_port.clone()
        };
        let refused = Destination { port: 30082, local: Some(Vec::new()), ..node_port.clone() };
        let all = [node_port, limited, local, refused];
        let found = found(&all, Family::V4);
        let client: IpAddr = "203.0.113.9".parse().unwrap();
        let ask = |client, at: &str| found.translation(client, place(at), Protocol::Tcp);
        let to = |targets: &[&str]| HostAnswer {
            targets: targets.iter().map(|text| place(text)).collect(),
            ..HostAnswer::default()
        };
        assert_eq!(ask(client, "192.0.2.1:30080"), to(&["10.96.0.7:80"]));
        assert_eq!(ask(client, "192.0.2.1:30081"), to(&["169.254.169.3:30081"]));
        assert!(ask(client, "192.0.2.1:30082").refused);
        assert_eq!(ask(client, "198.51.100.7:80"), to(&["10.96.0.7:80"]));
        assert!(ask("192.0.2.9".parse().unwrap(), "198.51.100.7:80").limited);
        assert_eq!(ask(client, "192.0.2.1:22"), to(&[]));
        let udp = found.translation(client, place("192.0.2.1:30080"), Protocol::Udp);
        assert_eq!(udp, to(&[]));
    }
}
