use contract::annotation::PodNetwork;

use super::*;

fn attachment(network: Network, change: impl FnOnce(&mut PodInterface)) -> Attachment {
    let annotation = r#"{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24","fd00::5/64"],"gateway_ips":["10.244.1.1"],
        "routes":[{"dest":"10.244.0.7/16","nextHop":"10.244.1.1"}]}"#;
    let text = format!("{{{:?}:{annotation}}}", network.annotation_key());
    let mut pod = PodInterface {
        addressing: PodNetwork::parse(&text, &network).unwrap().unwrap(),
        network: network.clone(),
        mtu: Mtu::DEFAULT,
        routable_mtu: None,
        bandwidth: Bandwidth::default(),
        pod_uid: "u1".to_owned(),
        skip_ip_config: false,
    };
    change(&mut pod);
    let identity = Identity {
        sandbox: "0123456789abcdef0".parse().unwrap(),
        if_name: "eth0".parse().unwrap(),
        network,
    };
    Attachment::plan(identity, &PodKey::new("shop", "cart-0").unwrap(), Some("runtime-uid"), pod)
}

#[test]
fn the_row_says_all_that_ovn_and_a_later_del_need() {
    let ids = attachment(Network::Default, |_| {}).external_ids();
    let expected = [
        ("attached_mac", "0a:58:0a:f4:01:05"),
        ("iface-id", "shop_cart-0"),
        ("iface-id-ver", "u1"),
        ("ip_address", "10.244.1.5/24"),
        ("ip_addresses", "10.244.1.5/24,fd00::5/64"),
        ("pod-if-name", "eth0"),
        ("sandbox", "0123456789abcdef0"),
    ];
    assert_eq!(ids, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
}

#[test]
fn another_networks_row_names_the_network() {
    let blue = Network::Attachment { name: "blue".to_owned(), nad: "shop/blue".to_owned() };
    let ids = attachment(blue, |_| {}).external_ids();
    assert_eq!(
        (
            ids["iface-id"].as_str(),
            ids["k8s.ovn.org/network"].as_str(),
            ids["k8s.ovn.org/nad"].as_str()
        ),
        ("shop.blue_shop_cart-0", "blue", "shop/blue")
    );
}

#[test]
fn gateways_become_default_routes_and_the_others_follow() {
    let attachment =
        attachment(Network::Default, |pod| pod.routable_mtu = Some(Mtu::try_from(1300).unwrap()));
    let routes: Vec<_> = attachment
        .routes
        .iter()
        .map(|route| (route.destination.to_string(), route.mtu.map(Mtu::bytes)))
        .collect();
    assert_eq!(
        routes,
        [("0.0.0.0/0".to_owned(), Some(1300)), ("10.244.0.0/16".to_owned(), Some(1300))]
    );
}

#[test]
fn a_pod_whose_guest_configures_itself_keeps_its_addresses_in_its_row_which_says_so() {
    let of = |skip| attachment(Network::Default, |pod| pod.skip_ip_config = skip);
    assert!(of(true).skip_ip_config && !of(false).skip_ip_config);
    let mut expected = of(false).external_ids();
    expected.insert(external_ids::SKIP_IP_CONFIG.to_owned(), "true".to_owned());
    assert_eq!(of(true).external_ids(), expected);
}

#[test]
fn the_runtimes_uid_is_used_only_where_the_server_knows_none() {
    assert_eq!(
        attachment(Network::Default, |pod| pod.pod_uid = String::new()).pod_uid,
        "runtime-uid"
    );
}

#[test]
fn an_alias_fits_the_kernel_whatever_the_container_id() {
    let mut identity = attachment(Network::Default, |_| {}).identity;
    assert_eq!(identity.alias(), "ovn-k8s:default:eth0:0123456789abcdef0");
    identity.sandbox = "f".repeat(255).parse().unwrap();
    assert_eq!(identity.alias().len(), 254);
}

#[test]
fn an_alias_is_cut_between_letters() {
    let network =
        Network::Attachment { name: "n".to_owned(), nad: format!("x{}", "é".repeat(200)) };
    let identity =
        Identity { sandbox: "c0ffee".parse().unwrap(), if_name: "eth0".parse().unwrap(), network };
    // `ovn-k8s:x` leaves 245 bytes, of which two for each letter.
    assert_eq!(identity.alias(), format!("ovn-k8s:x{}", "é".repeat(122)));
}

#[test]
fn an_interfaces_key_is_that_of_every_version_and_tool_chain() {
    let identity = |sandbox: &str, if_name: &str| Identity {
        sandbox: sandbox.parse().unwrap(),
        if_name: if_name.parse().unwrap(),
        network: Network::Default,
    };
    // FNV-1a of "0123456789abcdef\xffeth0", worked out elsewhere.
    assert_eq!(identity("0123456789abcdef", "eth0").key(), 0xef11_d1f5_4fd3_e287);
    assert_ne!(identity("a", "b0").key(), identity("ab", "0").key());
}
