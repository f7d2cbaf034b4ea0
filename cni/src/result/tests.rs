use contract::{
    annotation::PodNetwork,
    bandwidth::Bandwidth,
    names::{Network, PodKey},
    wire::PodInterface,
};
use podnet::plan::Identity;

use super::*;

fn dual_stack() -> CniResult {
    let interface = |name: &str, mac: &str, sandbox: Option<&str>| Interface {
        name: name.to_owned(),
        mac: mac.parse().unwrap(),
        mtu: Mtu::DEFAULT,
        sandbox: sandbox.map(str::to_owned),
    };
    CniResult {
        interfaces: [
            interface("c1", "02:00:00:00:00:01", None),
            interface("eth0", "0a:58:0a:f4:01:05", Some("/run/netns/p")),
        ],
        ips: vec![
            IpConfig {
                address: "10.244.1.5/24".parse().unwrap(),
                gateway: Some("10.244.1.1".parse().unwrap()),
            },
            IpConfig { address: "fd00::5/64".parse().unwrap(), gateway: None },
        ],
        routes: vec![Route {
            destination: "0.0.0.0/0".parse().unwrap(),
            next_hop: Some("10.244.1.1".parse().unwrap()),
        }],
    }
}

#[test]
fn the_newest_version_says_everything() {
    assert_eq!(
        dual_stack().render(SpecVersion::V1_1_0),
        json!({"cniVersion": "1.1.0", "dns": {},
            "interfaces": [{"name": "c1", "mac": "02:00:00:00:00:01", "mtu": 1400},
                           {"name": "eth0", "mac": "0a:58:0a:f4:01:05", "mtu": 1400, "sandbox": "/run/netns/p"}],
            "ips": [{"interface": 1, "address": "10.244.1.5/24", "gateway": "10.244.1.1"}, {"interface": 1, "address": "fd00::5/64"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}]})
    );
}

#[test]
fn the_mtu_is_left_out_before_1_1_0_and_the_family_is_named_before_1_0_0() {
    let v1 = dual_stack().render(SpecVersion::V1_0_0);
    assert_eq!((v1["interfaces"][1].get("mtu"), v1["ips"][0].get("version")), (None, None));
    for version in [SpecVersion::V0_3_0, SpecVersion::V0_3_1, SpecVersion::V0_4_0] {
        let old = dual_stack().render(version);
        assert_eq!(
            (&old["cniVersion"], &old["ips"][0]["version"], &old["ips"][1]["version"]),
            (&json!(version.as_str()), &json!("4"), &json!("6"))
        );
    }
}

#[test]
fn the_oldest_versions_have_one_address_a_family() {
    assert_eq!(
        dual_stack().render(SpecVersion::V0_2_0),
        json!({"cniVersion": "0.2.0", "dns": {},
            "ip4": {"ip": "10.244.1.5/24", "gateway": "10.244.1.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}]},
            "ip6": {"ip": "fd00::5/64", "routes": []}})
    );
}

#[test]
fn a_result_that_comes_back_is_understood_with_what_other_plugins_added() {
    let mut value = dual_stack().render(SpecVersion::V1_1_0);
    value["interfaces"].as_array_mut().unwrap().push(json!({"name": "tap0"}));
    value["ips"].as_array_mut().unwrap().push(json!({"interface": 2, "address": "192.0.2.1/32"}));
    let prev: PrevResult = serde_json::from_value(value).unwrap();
    let addresses: Vec<_> = prev.addresses_of("eth0").map(|ip| ip.address.to_string()).collect();
    assert_eq!(addresses, ["10.244.1.5/24", "fd00::5/64"]);
}

#[test]
fn what_is_no_result_is_converted_without_a_panic() {
    for text in [
        "7",
        "[]",
        "null",
        r#"{"ips":["10.244.1.5/24",{"address":7}],"interfaces":[1],"routes":{}}"#,
    ] {
        let foreign: Value = serde_json::from_str(text).unwrap();
        for version in SpecVersion::ALL {
            assert_eq!(
                convert(foreign.clone(), version).is_object(),
                foreign.is_object(),
                "{text} for {version}"
            );
        }
    }
}

fn attachment(skip_ip_config: bool) -> Attachment {
    let annotation = r#"{"default":{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24","fd00::5/64"],
        "gateway_ips":["10.244.1.1"],"routes":[{"dest":"10.244.0.7/16","nextHop":"10.244.1.1"}]}}"#;
    let network = Network::Default;
    let pod = PodInterface {
        addressing: PodNetwork::parse(annotation, &network).unwrap().unwrap(),
        network: network.clone(),
        mtu: Mtu::DEFAULT,
        routable_mtu: None,
        bandwidth: Bandwidth::default(),
        pod_uid: "u1".to_owned(),
        skip_ip_config,
    };
    let identity = Identity {
        sandbox: "0123456789abcdef0".parse().unwrap(),
        if_name: "eth0".parse().unwrap(),
        network,
    };
    Attachment::plan(identity, &PodKey::new("shop", "cart-0").unwrap(), Some("runtime-uid"), pod)
}

fn host_end() -> HostEnd {
    HostEnd {
        name: "0123456789abcde".parse().unwrap(),
        mac: "02:00:00:00:00:01".parse().unwrap(),
        index: 7,
        pod_index: 2,
    }
}

#[test]
fn the_result_names_both_ends_and_each_familys_gateway() {
    let result = CniResult::of(&attachment(false), &host_end(), "/run/netns/p");
    assert_eq!(result.interfaces[1].sandbox.as_deref(), Some("/run/netns/p"));
    let gateways: Vec<_> =
        result.ips.iter().map(|ip| ip.gateway.map(|gateway| gateway.to_string())).collect();
    assert_eq!(gateways, [Some("10.244.1.1".to_owned()), None]);
}

#[test]
fn a_pod_whose_guest_configures_itself_keeps_its_addresses_in_its_result() {
    let of = |skip| CniResult::of(&attachment(skip), &host_end(), "/run/netns/p");
    assert_eq!(of(true), of(false));
}
