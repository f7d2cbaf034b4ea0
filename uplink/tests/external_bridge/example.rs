//! A node's configuration, for tests inside and outside of the package.

use std::{collections::BTreeSet, fmt::Debug, str::FromStr};

use super::{
    Config, Datapath, Exposed, ExternalBridge, Family, Front, HostAddresses, Masquerade, Mode,
    OfPort, PodSource, Ports, Protocol, Zone,
};

/// A node of both families, with an exposed Service of each kind. P is 1, T is 2, another port is
/// 3.
pub(crate) fn config(mode: Mode) -> Config {
    let mut exposed = BTreeSet::new();
    let front = |family, port| Front::NodePort { family, port };
    let address = |text: &str, port| Front::Address { address: read(text), port };
    for (front, protocol, host_endpoint) in [
        (front(Family::V4, 30080), Protocol::Tcp, None),
        (front(Family::V6, 30080), Protocol::Tcp, None),
        (front(Family::V4, 30053), Protocol::Udp, Some("192.0.2.1:53")),
        (front(Family::V6, 30053), Protocol::Udp, Some("[2001:db8::1]:53")),
        (address("203.0.113.7", 80), Protocol::Tcp, None),
        (address("2001:db8:7::7", 80), Protocol::Tcp, None),
        (address("203.0.113.8", 443), Protocol::Sctp, Some("198.51.100.1:8443")),
    ] {
        let host_endpoint = host_endpoint.map(read);
        exposed.insert(Exposed { protocol, front, host_endpoint, clients: None });
    }
    let clients = ["192.0.2.0/24", "203.0.113.128/25"].map(read).to_vec();
    let front = address("203.0.113.9", 80);
    let limited =
        Exposed { protocol: Protocol::Tcp, front, host_endpoint: None, clients: Some(clients) };
    exposed.insert(limited);
    Config {
        mode,
        bridge: ExternalBridge {
            ports: Ports {
                uplink: OfPort(1),
                patch: OfPort(2),
                host: OfPort::LOCAL,
                others: [OfPort(3)].into(),
            },
            mac: read("02:00:00:00:00:01"),
            vlan: None,
            datapath: Datapath::Kernel,
            tunnel_ports: [6081].into(),
        },
        hosts: vec![
            host("192.0.2.1", &["198.51.100.1"], "169.254.169.1", "169.254.169.2"),
            host("2001:db8::1", &["2001:db8:1::1"], "fd69::1", "fd69::2"),
        ],
        cluster_subnets: vec![read("10.128.0.0/14"), read("fd01::/48")],
        service_ranges: vec![read("172.30.0.0/16"), read("fd02::/112")],
        pod_source: PodSource::Node,
        mtu: contract::mtu::Mtu::DEFAULT,
        zone: Zone::DEFAULT,
        services: exposed,
    }
}

fn host(node: &str, others: &[&str], ovn: &str, host: &str) -> HostAddresses {
    HostAddresses {
        node: read(node),
        others: others.iter().map(|other| read(other)).collect(),
        masquerade: Masquerade { ovn: read(ovn), host: read(host) },
    }
}

fn read<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("an example that is right")
}
