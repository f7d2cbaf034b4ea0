use std::net::IpAddr;

use ipnet::IpNet;

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn ids_and_hashes_are_upstreams() {
    let id = ObjectId::cluster_port_group(CLUSTER_PORT_GROUP);
    assert_eq!(
        (id.to_string().as_str(), id.hashed().as_str()),
        ("default-network-controller:Cluster:clusterPortGroup", "a13298398610555951118")
    );
    assert_eq!(ObjectId::cluster_port_group(ROUTER_PORT_GROUP).hashed(), "a4743249366342378346");
    assert_eq!(hash(""), "a14695981039346656037");
    let v6 = ObjectId::allow_from_node("n1", "fd00:10:244:1::2".parse().unwrap());
    let ids: Vec<(&str, String)> = v6.external_ids().into_iter().collect();
    assert_eq!(
        ids.iter().map(|(key, value)| (*key, value.as_str())).collect::<Vec<_>>(),
        [
            ("ip", "fd00:10:244:1::2"),
            ("k8s.ovn.org/id", "default-network-controller:NetpolNode:n1:fd00:10:244:1::2"),
            ("k8s.ovn.org/name", "n1"),
            ("k8s.ovn.org/owner-controller", "default-network-controller"),
            ("k8s.ovn.org/owner-type", "NetpolNode"),
        ]
    );
}

#[test]
fn addresses_of_a_subnet() {
    for (subnet, first, second) in [
        ("10.244.1.0/24", "10.244.1.1/24", "10.244.1.2/24"),
        ("fd00:10:244:1::/64", "fd00:10:244:1::1/64", "fd00:10:244:1::2/64"),
    ] {
        assert_eq!(
            (gateway(&net(subnet)), management(&net(subnet))),
            (Some(net(first)), Some(net(second)))
        );
    }
    for (subnet, third) in [("169.254.169.0/29", "169.254.169.3"), ("fd69::/125", "fd69::3")] {
        assert_eq!(numbered(&net(subnet), 3), third.parse::<IpAddr>().unwrap());
    }
    assert_eq!(nth(&net("10.0.0.0/30"), 4), None);
    assert_eq!(nth(&net("255.255.255.0/24"), 256), None);
    assert_eq!(nth(&net("10.0.0.0/8"), u128::MAX), None);
    assert_eq!(nth(&net("ffff::/16"), u128::MAX), None);
}

#[test]
fn sources_of_what_hosts_forward_are_at_the_end_of_the_join_subnet_where_it_has_room() {
    for (join, source) in [
        ("100.64.0.2/16", Some("100.64.255.253")),
        ("100.64.19.136/16", Some("100.64.236.119")),
        ("fd98::2/64", Some("fd98::ffff:ffff:ffff:fffd")),
        // No node's: the network, the router, and a number that no cluster manager assigns.
        ("100.64.0.0/16", None),
        ("100.64.19.137/16", None),
        ("100.64.255.253/16", None),
        // The router of one node could have the address of another one's host.
        ("100.64.0.2/24", None),
        ("100.64.0.2/32", None),
        ("fd98::2/120", None),
    ] {
        assert_eq!(
            forwarded_source(&net(join)),
            source.map(|text| text.parse().unwrap()),
            "{join}"
        );
    }
}

#[test]
fn reserved_addresses() {
    for (subnet, address, is_reserved) in [
        ("10.244.1.0/24", "10.244.1.0", true),
        ("10.244.1.0/24", "10.244.1.2", true),
        ("10.244.1.0/24", "10.244.1.3", false),
        ("10.244.1.0/24", "10.244.1.255", true),
        ("fd00::/64", "fd00::2", true),
        ("fd00::/64", "fd00::ffff:ffff:ffff:ffff", false),
    ] {
        assert_eq!(
            reserved(&net(subnet), address.parse::<IpAddr>().unwrap()),
            is_reserved,
            "{address}"
        );
    }
}

#[test]
fn a_ports_mac_follows_from_its_ipv4_address_if_it_has_one() {
    let both = [net("fd00::1/64"), net("10.244.0.1/24")];
    assert_eq!(port_mac(&both).unwrap().to_string(), "0a:58:0a:f4:00:01");
    assert_ne!(port_mac(&both[..1]), port_mac(&both));
    assert_eq!(port_mac(&[]), None);
}
