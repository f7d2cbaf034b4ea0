use super::*;

#[test]
fn host_interface_names_follow_the_container_id_however_short() {
    let long: SandboxId = "0123456789abcdef0123456789abcdef".parse().unwrap();
    let short: SandboxId = "c1".parse().unwrap();
    assert_eq!(
        (long.host_if_name().as_str(), short.host_if_name().as_str()),
        ("0123456789abcde", "c1")
    );
    assert_eq!(
        (long.host_if_name_with(12).as_str(), short.host_if_name_with(3).as_str()),
        ("0123456789ab_12", "c1_3")
    );
}

#[test]
fn no_container_id_makes_the_hosts_own_link_a_pods() {
    for (id, name) in [("lo", "lo_"), ("all", "all_"), ("default", "default_")] {
        assert_eq!(id.parse::<SandboxId>().unwrap().host_if_name().as_str(), name);
    }
}

#[test]
fn container_ids_follow_the_rules_of_skel() {
    for good in ["a", "A-1_b.c", &"f".repeat(64), &"f".repeat(255)] {
        assert!(good.parse::<SandboxId>().is_ok(), "{good}");
    }
    for bad in ["", "-a", ".x", "../x", "a/b", "a b", "ä", &"f".repeat(256)] {
        assert!(bad.parse::<SandboxId>().is_err(), "{bad}");
    }
}

#[test]
fn interface_names_are_what_the_kernel_takes_and_never_a_sysctl_directory() {
    for good in ["eth0", "net1", "a.b", "0123456789abcde"] {
        assert!(good.parse::<IfName>().is_ok(), "{good}");
    }
    for bad in
        ["", ".", "..", "lo", "all", "default", "a/b", "a:1", "a b", "0123456789abcdef", "a\u{7}"]
    {
        assert!(bad.parse::<IfName>().is_err(), "{bad}");
    }
}

#[test]
fn a_port_is_named_after_pod_and_network() {
    let pod = PodKey::new("shop", "cart-0").unwrap();
    let blue = Network::Attachment { name: "blue".to_owned(), nad: "shop/net-blue".to_owned() };
    assert_eq!(IfaceId::new(&pod, &Network::Default).as_str(), "shop_cart-0");
    assert_eq!(IfaceId::new(&pod, &blue).as_str(), "shop.net.blue_shop_cart-0");
}

#[test]
fn a_refused_name_says_what_it_is_and_why() {
    assert_eq!(
        PodKey::new("shop", "Cart").unwrap_err().to_string(),
        "pod name \"Cart\" has characters other than lower-case letters, digits, '-' and '.'"
    );
    assert_eq!(PodKey::new("", "cart").unwrap_err().to_string(), "pod namespace \"\" is empty");
    for (namespace, name) in [
        ("..", "cart"),
        ("shop", ".."),
        ("shop", "."),
        ("shop", "-cart"),
        ("shop.", "cart"),
        ("shop", "a..b"),
    ] {
        let refusal = PodKey::new(namespace, name).expect_err(name).to_string();
        assert!(refusal.ends_with("does not begin and end with a letter or digit"), "{refusal}");
    }
}

/// The options took `a..b`, for which no certificate was approved.
#[test]
fn a_nodes_name_is_a_dns_1123_subdomain() {
    let longest = "a".repeat(253);
    for good in ["n", "n1", "1.2.3.4", "ip-10-0-0-1.eu-west-1.compute.internal", &longest] {
        assert_eq!(check_node_name(good), Ok(()), "{good}");
    }
    let longer = "a".repeat(254);
    for bad in
        ["", "N1", "n_1", "-n", "n-", ".n", "n.", "a..b", "a.-b", "a-.b", "a/b", "a b", &longer]
    {
        assert!(check_node_name(bad).is_err(), "{bad}");
    }
}
