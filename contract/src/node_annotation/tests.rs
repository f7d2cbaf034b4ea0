use super::*;

fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn what_upstream_writes_is_read() {
    let all = annotations(&[
        (
            "k8s.ovn.org/node-subnets",
            r#"{"default":["10.244.1.0/24","fd00:10:244:2::/64"],"blue":"x"}"#,
        ),
        ("k8s.ovn.org/node-id", "2"),
        (
            "k8s.ovn.org/node-gateway-router-lrp-ifaddrs",
            r#"{"default":{"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}}"#,
        ),
        ("k8s.ovn.org/node-transit-switch-port-ifaddr", r#"{"ipv4":"100.88.0.2/16","ipv6":""}"#),
        ("k8s.ovn.org/node-chassis-id", "2d4b1b6e-2f0a-4a39-9a0f-0a6b4e7c1f01"),
        ("k8s.ovn.org/node-encap-ips", r#"["172.18.0.3","172.19.0.3"]"#),
        ("k8s.ovn.org/host-cidrs", r#"["172.18.0.3/16","fc00:f853::3/64"]"#),
        (
            "k8s.ovn.org/node-mgmt-port-mac-addresses",
            r#"{"default":"96:8f:e8:25:a2:e5","blue":"1"}"#,
        ),
        ("k8s.ovn.org/zone-name", "global"),
    ]);
    let read = NodeAnnotations(&all);
    assert_eq!(read.subnets().unwrap(), nets(&["10.244.1.0/24", "fd00:10:244:2::/64"]));
    assert_eq!(read.id().unwrap(), Some(2));
    assert_eq!(read.join_addresses().unwrap(), nets(&["100.64.0.2/16", "fd98::2/64"]));
    assert_eq!(read.transit_addresses().unwrap(), nets(&["100.88.0.2/16"]));
    assert_eq!(read.chassis_id().unwrap().unwrap(), "2d4b1b6e-2f0a-4a39-9a0f-0a6b4e7c1f01");
    let encaps = read.encap_ips().unwrap();
    assert_eq!(encaps, ["172.18.0.3", "172.19.0.3"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    assert_eq!(encap_ips_text(&encaps), all["k8s.ovn.org/node-encap-ips"]);
    assert_eq!(read.host_cidrs().unwrap(), nets(&["172.18.0.3/16", "fc00:f853::3/64"]));
    assert_eq!(read.management_mac().unwrap().unwrap().to_string(), "96:8f:e8:25:a2:e5");
    assert_eq!(read.zone().unwrap().unwrap(), "global");
}

/// With a loopback address, a node's tunnels ended at each host of another zone itself.
#[test]
fn a_primary_address_stands_in_for_that_of_tunnels_if_it_is_one_machines() {
    let tunnel = |text: &str| {
        let all = annotations(&[("k8s.ovn.org/node-primary-ifaddr", text)]);
        NodeAnnotations(&all).primary_tunnel_address().map(|address| address.to_string())
    };
    let both = r#"{"ipv4":"172.18.0.3/16","ipv6":"fc00::3/64"}"#;
    assert_eq!(tunnel(both).as_deref(), Some("172.18.0.3"));
    for special in
        ["127.0.0.1/8", "0.0.0.0/0", "169.254.1.1/16", "224.0.0.1/4", "255.255.255.255/32"]
    {
        assert_eq!(tunnel(&format!(r#"{{"ipv4":"{special}"}}"#)), None, "{special}");
    }
    for special in ["::1/128", "::/0", "fe80::1/64", "ff02::1/16", "::ffff:192.0.2.1/128"] {
        assert_eq!(tunnel(&format!(r#"{{"ipv6":"{special}"}}"#)), None, "{special}");
    }
    assert_eq!(tunnel("{"), None);
}

#[test]
fn older_spellings_are_read_where_the_newer_are_not() {
    let old = annotations(&[
        ("ovn_host_subnet", "192.168.10.0/24"),
        ("k8s.ovn.org/node-gateway-router-lrp-ifaddr", r#"{"ipv4":"100.64.0.2/16"}"#),
        ("k8s.ovn.org/node-mgmt-port-mac-address", "fa:f1:27:f5:54:69"),
    ]);
    let read = NodeAnnotations(&old);
    assert_eq!(read.subnets().unwrap(), nets(&["192.168.10.0/24"]));
    assert_eq!(read.join_addresses().unwrap(), nets(&["100.64.0.2/16"]));
    assert_eq!(read.management_mac().unwrap().unwrap().to_string(), "fa:f1:27:f5:54:69");

    let mut both = old.clone();
    both.extend(annotations(&[("k8s.ovn.org/node-subnets", r#"{"default":"10.244.1.7/24"}"#)]));
    assert_eq!(
        NodeAnnotations(&both).subnets().unwrap(),
        nets(&["10.244.1.0/24"]),
        "of an address the network is meant"
    );
    assert_eq!(
        NodeAnnotations(&annotations(&[(
            "k8s.ovn.org/node-subnets",
            r#"{"blue":["10.9.0.0/24"]}"#
        )]))
        .subnets()
        .unwrap(),
        []
    );
    assert_eq!(NodeAnnotations(&BTreeMap::new()).subnets().unwrap(), []);
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_annotation() {
    for (name, text) in [
        (NODE_SUBNETS, "["),
        (NODE_SUBNETS, r#"{"default":7}"#),
        (NODE_SUBNETS, r#"{"default":["10.0.0.0/24","10.0.1.0/24"]}"#),
        (NODE_SUBNETS, r#"{"default":["10.0.0.0/24","fd00::/64","fd01::/64"]}"#),
        (NODE_SUBNETS, r#"{"default":"0.0.0.0/0"}"#),
        (NODE_SUBNETS, r#"{"default":"10.0.0.0/31"}"#),
        (NODE_SUBNETS, r#"{"default":"10.0.0.0/30"}"#),
        (NODE_SUBNETS, r#"{"default":"127.0.0.0/24"}"#),
        (LEGACY_SUBNET, "10.0.0.0"),
    ] {
        let all = annotations(&[(name, text)]);
        assert_eq!(NodeAnnotations(&all).subnets().expect_err(text).annotation, name);
    }
    for text in ["", "-1", "+1", "65536", "1 "] {
        assert!(NodeAnnotations(&annotations(&[(NODE_ID, text)])).id().is_err(), "{text}");
    }
    for text in [
        r#"{"ipv4":"fd00::1/64"}"#,
        r#"{"ipv6":"10.0.0.1/8"}"#,
        r#"{"ipv4":"10.0.0.1"}"#,
        "null",
        "[]",
    ] {
        assert!(
            NodeAnnotations(&annotations(&[(TRANSIT_ADDRESSES, text)]))
                .transit_addresses()
                .is_err(),
            "{text}"
        );
    }
    for text in ["", "a b", "a\nb", "\"a\"", &"a".repeat(254)] {
        assert!(
            NodeAnnotations(&annotations(&[(CHASSIS_ID, text)])).chassis_id().is_err(),
            "{text}"
        );
    }
    let many = format!("[{}]", vec![r#""10.0.0.1/8""#; 1025].join(","));
    let long = format!(r#"{{"default":"{}"}}"#, "1".repeat(300_000));
    assert!(NodeAnnotations(&annotations(&[(HOST_CIDRS, &many)])).host_cidrs().is_err());
    assert!(NodeAnnotations(&annotations(&[(NODE_SUBNETS, &long)])).subnets().is_err());
}

#[test]
fn writing_one_networks_entry_keeps_others() {
    let mut entries =
        PerNetwork::parse(r#"{"blue":["10.9.0.0/24"],"odd":{"x":[1,null]}}"#).unwrap();
    entries.set_subnets(DEFAULT_NETWORK, &nets(&["10.244.1.0/24", "fd00:10:244:2::/64"]));
    assert_eq!(
        entries.to_string(),
        r#"{"blue":["10.9.0.0/24"],"default":["10.244.1.0/24","fd00:10:244:2::/64"],"odd":{"x":[1,null]}}"#
    );
    entries.remove(DEFAULT_NETWORK);
    assert_eq!(entries.to_string(), r#"{"blue":["10.9.0.0/24"],"odd":{"x":[1,null]}}"#);
}

#[test]
fn what_is_written_is_read() {
    let join = nets(&["100.64.0.2/16", "fd98::2/64"]);
    let mut entries = PerNetwork::default();
    entries.set_interface_addresses("default", &join);
    assert_eq!(entries.to_string(), r#"{"default":{"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}}"#);
    assert_eq!(entries.interface_addresses("default").unwrap(), join);
    let hosts = nets(&["fd00::3/64", "172.18.0.3/16", "172.18.0.3/16"]);
    assert_eq!(host_cidrs_text(&hosts), r#"["172.18.0.3/16","fd00::3/64"]"#);
    let all = annotations(&[(TRANSIT_ADDRESSES, &interface_addresses_text(&join))]);
    assert_eq!(NodeAnnotations(&all).transit_addresses().unwrap(), join);
}

#[test]
fn the_mode_of_a_gateway_is_one_of_three_and_is_read_where_the_rest_is_not() {
    let read = |text: &str| {
        let read = NodeAnnotations(&annotations(&[(GATEWAY_CONFIG, text)])).gateway();
        (read.mode, read.node_ports, read.unreadable.map(|error| error.annotation))
    };
    let unreadable = Some(GATEWAY_CONFIG);
    assert_eq!(
        read(r#"{"default":{"mode":"shared","bridge-id":"br-ex","next-hops":["192.0.2.1"]}}"#),
        (Some(GatewayMode::Shared), None, unreadable)
    );
    assert_eq!(
        read(r#"{"default":{"mode":"local"}}"#),
        (Some(GatewayMode::Local), None, unreadable)
    );
    assert_eq!(read(r#"{"default":{"mode":""}}"#), (Some(GatewayMode::Disabled), None, None));
    assert_eq!(read(r#"{"blue":{"mode":"shared"}}"#), (None, None, None));
    assert_eq!(read(r#"{"default":{"node-port-enable":"true"}}"#), (None, Some(true), None));
    assert_eq!(
        read(r#"{"default":{"mode":"","node-port-enable":"si"}}"#),
        (Some(GatewayMode::Disabled), None, unreadable)
    );
    for text in ["", "[]", r#"{"default":{"mode":7}}"#, r#"{"default":{"mode":"both"}}"#] {
        assert_eq!(read(text), (None, None, unreadable), "{text}");
    }
}
