use super::*;

fn parse(settings: &str) -> Result<PodNetwork, AnnotationError> {
    PodNetwork::parse(&format!(r#"{{"default":{settings}}}"#), &Network::Default)
        .map(|network| network.expect("the key is there"))
}

fn annotations(key: &str, text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), text.to_owned())])
}

#[test]
fn every_field_is_read() {
    let network = parse(
        r#"{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24","fd00:10:244:1::5/64"],
            "gateway_ips":["10.244.1.1","fd00:10:244:1::1"],"role":"secondary","tunnel_id":7,"ipv6_lla_gateway_ip":"fe80::1",
            "routes":[{"dest":"10.244.0.0/16","nextHop":"10.244.1.1"},{"dest":"172.16.0.0/24","nextHop":""}],"unknown":{}}"#,
    )
    .unwrap();
    assert_eq!(
        network.addresses,
        ["10.244.1.5/24".parse().unwrap(), "fd00:10:244:1::5/64".parse().unwrap()]
    );
    assert_eq!(network.gateways.len(), 2);
    assert_eq!((network.role, network.tunnel_id), (Role::Secondary, 7));
    assert_eq!(network.ipv6_link_local_gateway, Some("fe80::1".parse().unwrap()));
    assert_eq!(
        network.routes[1],
        Route { destination: "172.16.0.0/24".parse().unwrap(), next_hop: None }
    );
}

#[test]
fn the_older_single_stack_spelling_means_the_same() {
    let new = parse(
        r#"{"mac_address":"0A:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24"],"gateway_ips":["10.244.1.1"]}"#,
    );
    let old = parse(
        r#"{"mac_address":"0a:58:0a:f4:01:05","ip_address":"10.244.1.5/24","gateway_ip":"10.244.1.1"}"#,
    );
    assert_eq!(new.expect("list spelling"), old.expect("single spelling"));
}

#[test]
fn the_legacy_annotation_is_read_as_json_and_as_python() {
    let json = r#"{"ip_address":"192.168.2.3/24","mac_address":"0a:00:00:00:00:01","gateway_ip":"192.168.2.1"}"#;
    let python = "{u'ip_address': '192.168.2.3/24', 'mac_address': '0a:00:00:00:00:01', 'gateway_ip': '192.168.2.1'}";
    let read = |text| {
        PodNetwork::from_annotations(&annotations(LEGACY, text), &Network::Default)
            .unwrap()
            .unwrap()
    };
    assert_eq!(read(json), read(python));
    assert_eq!(read(json).addresses, ["192.168.2.3/24".parse().unwrap()]);
}

#[test]
fn an_annotation_that_is_not_there_or_names_other_networks_is_no_error() {
    let other = r#"{"blue/net":{"mac_address":"0a:00:00:00:00:01"}}"#;
    for annotations in [BTreeMap::new(), annotations(POD_NETWORKS, other)] {
        assert_eq!(PodNetwork::from_annotations(&annotations, &Network::Default).unwrap(), None);
    }
}

#[test]
fn only_another_network_may_go_without_addresses() {
    let text = r#"{"default":{"mac_address":"0a:00:00:00:00:01"},"ns/blue":{"mac_address":"0a:00:00:00:00:01","ip_addresses":null}}"#;
    let blue = Network::Attachment { name: "blue".to_owned(), nad: "ns/blue".to_owned() };
    assert_eq!(PodNetwork::parse(text, &blue).unwrap().unwrap().addresses, []);
    assert!(matches!(PodNetwork::parse(text, &Network::Default), Err(AnnotationError::NoAddress)));
}

#[test]
fn another_network_may_have_several_subnets_of_a_family() {
    let text = r#"{"ns/blue":{"mac_address":"0a:00:00:00:00:01","ip_addresses":["10.1.0.5/24","10.2.0.5/24","fd00::5/64"]}}"#;
    let blue = Network::Attachment { name: "blue".to_owned(), nad: "ns/blue".to_owned() };
    assert_eq!(PodNetwork::parse(text, &blue).unwrap().unwrap().addresses.len(), 3);
    let own = text.replace("ns/blue", "default");
    assert!(matches!(
        PodNetwork::parse(&own, &Network::Default),
        Err(AnnotationError::SameFamily { .. })
    ));
}

#[test]
fn a_refused_value_is_named_with_its_field() {
    let mac = r#""mac_address":"0a:58:0a:00:00:05""#;
    for (settings, message) in [
        (
            r#"{"mac_address":"01:00:5e:00:00:01","ip_address":"10.0.0.5/24"}"#.to_owned(),
            "mac_address \"01:00:5e:00:00:01\" is not a unicast MAC address",
        ),
        (
            format!(r#"{{{mac},"ip_address":"10.0.0.5"}}"#),
            "ip_address \"10.0.0.5\" is not an address with its prefix length",
        ),
        (
            format!(r#"{{{mac},"ip_address":"127.0.0.1/8"}}"#),
            "address 127.0.0.1 cannot belong to a pod",
        ),
        (
            format!(r#"{{{mac},"ip_address":"10.0.0.5/24","gateway_ip":"fd00::1"}}"#),
            "gateway fd00::1 has no address of its family",
        ),
        (
            format!(r#"{{{mac},"ip_address":"10.0.0.5/24","ip_addresses":["10.0.0.6/24"]}}"#),
            "ip_address and ip_addresses contradict each other",
        ),
        (
            format!(r#"{{{mac},"ip_addresses":["10.0.0.5/24","10.0.0.6/24"]}}"#),
            "two of one family in ip_addresses: 10.0.0.5 and 10.0.0.6",
        ),
        (
            format!(
                r#"{{{mac},"ip_address":"10.0.0.5/24","routes":[{{"dest":"0.0.0.0/0","nextHop":"10.0.0.1"}}]}}"#
            ),
            "route to 0.0.0.0/0: a default route belongs into gateway_ips",
        ),
        (
            format!(
                r#"{{{mac},"ip_address":"10.0.0.5/24","routes":[{{"dest":"10.1.0.0/16","nextHop":"fd00::1"}}]}}"#
            ),
            "route to 10.1.0.0/16: next hop fd00::1 is of the other family",
        ),
        (
            format!(r#"{{{mac},"ip_address":"10.0.0.5/24","role":"boss"}}"#),
            "role \"boss\" is not a role of a network",
        ),
    ] {
        assert_eq!(parse(&settings).expect_err(&settings).to_string(), message);
    }
}

#[test]
fn hostile_sizes_and_shapes_are_refused() {
    let long = format!(r#"{{"default":{{"mac_address":"{}"}}}}"#, "a".repeat(MAX_BYTES));
    assert!(matches!(
        PodNetwork::parse(&long, &Network::Default),
        Err(AnnotationError::TooLong(_))
    ));
    for text in [
        "",
        "[]",
        "null",
        "{\"default\":[]}",
        "{\"default\":{\"mac_address\":1}}",
        &"[".repeat(100_000),
    ] {
        assert!(
            matches!(PodNetwork::parse(text, &Network::Default), Err(AnnotationError::Json(_))),
            "{:.40}",
            text
        );
    }
    let routes = vec![r#"{"dest":"10.1.0.0/16"}"#; MAX_ROUTES + 1].join(",");
    let many = format!(
        r#"{{"mac_address":"0a:58:0a:00:00:05","ip_address":"10.0.0.5/24","routes":[{routes}]}}"#
    );
    assert!(matches!(parse(&many), Err(AnnotationError::TooManyRoutes(_))));
}

#[test]
fn what_is_written_is_what_upstream_writes_and_is_read_back_equal() {
    let one = r#"{"default":{"ip_addresses":["10.244.1.5/24"],"mac_address":"0a:58:0a:f4:01:05","gateway_ips":["10.244.1.1"],"routes":[{"dest":"10.244.0.0/16","nextHop":"10.244.1.1"},{"dest":"10.96.0.0/16","nextHop":"10.244.1.1"},{"dest":"169.254.169.5/32","nextHop":"10.244.1.1"},{"dest":"100.64.0.0/16","nextHop":"10.244.1.1"}],"ip_address":"10.244.1.5/24","gateway_ip":"10.244.1.1","role":"primary"}}"#;
    let two = r#"{"default":{"ip_addresses":["10.244.1.5/24","fd00:10:244:2::5/64"],"mac_address":"0a:58:0a:f4:01:05","gateway_ips":["10.244.1.1","fd00:10:244:2::1"],"role":"primary"}}"#;
    let odd = r#"{"default":{"ip_addresses":["fd00::5/64"],"mac_address":"0a:58:0a:f4:01:05","routes":[{"dest":"172.16.0.0/24","nextHop":""}],"ip_address":"fd00::5/64","ipv6_lla_gateway_ip":"fe80::1","tunnel_id":7,"role":"secondary"}}"#;
    for text in [one, two, odd] {
        let network = PodNetwork::parse(text, &Network::Default).unwrap().unwrap();
        assert_eq!(network.write(&Network::Default, None).unwrap(), text);
        let kept = network
            .write(&Network::Default, Some(r#"{"z/z":{"b":1,"a":[]},"default":{}}"#))
            .unwrap();
        assert_eq!(kept, format!("{},{}", &text[..text.len() - 1], r#""z/z":{"a":[],"b":1}}"#));
        assert!(names_others(&kept, &Network::Default) && !names_others(text, &Network::Default));
        assert!(network.write(&Network::Default, Some("[")).is_err());
    }
    let legacy =
        PodNetwork::parse(two, &Network::Default).unwrap().unwrap().write_legacy().unwrap();
    assert_eq!(
        legacy,
        r#"{"gateway_ip":"10.244.1.1","ip_address":"10.244.1.5/24","mac_address":"0a:58:0a:f4:01:05"}"#
    );
    assert_eq!(PodNetwork::parse_legacy(&legacy).unwrap().addresses.len(), 1);
}
