use contract::{annotation::PodNetwork, bandwidth::Bandwidth, mtu::Mtu, wire::PodInterface};

use super::*;

fn attachment(network: Network, sandbox: &str, pod: &str, uid: &str) -> Attachment {
    let text = format!(
        r#"{{{:?}:{{"mac_address":"0a:58:0a:f4:01:05","ip_addresses":["10.244.1.5/24"]}}}}"#,
        network.annotation_key()
    );
    let interface = PodInterface {
        addressing: PodNetwork::parse(&text, &network).unwrap().unwrap(),
        network: network.clone(),
        mtu: Mtu::DEFAULT,
        routable_mtu: None,
        bandwidth: Bandwidth::default(),
        pod_uid: uid.to_owned(),
        skip_ip_config: false,
    };
    let identity =
        Identity { sandbox: sandbox.parse().unwrap(), if_name: "eth0".parse().unwrap(), network };
    Attachment::plan(identity, &PodKey::new("shop", pod).unwrap(), None, interface)
}

fn blue() -> Network {
    Network::Attachment { name: String::new(), nad: "shop/blue".to_owned() }
}

#[test]
fn what_is_written_is_read() {
    for network in [Network::Default, blue()] {
        for uid in ["4d7c2b1e-0000-4000-8000-000000000001", "", "a:b"] {
            let attachment = attachment(network.clone(), &"f".repeat(64), "cart-0", uid);
            let mark = OwnershipTag::read(&alias(&attachment)).unwrap();
            assert_eq!(mark.identity, attachment.identity);
            assert_eq!(
                mark.pod,
                Some(TaggedPod {
                    key: PodKey::new("shop", "cart-0").unwrap(),
                    uid: uid.to_owned()
                })
            );
            assert!(attachment.identity.owns(&alias(&attachment)));
        }
    }
}

#[test]
fn links_of_older_plugins_are_known_and_their_pods_are_not() {
    let identity = attachment(Network::Default, "c1", "cart-0", "u1").identity;
    assert_eq!(
        OwnershipTag::read("ovn-k8s:default:eth0:c1"),
        Some(OwnershipTag { identity: identity.clone(), pod: None })
    );
    assert!(identity.owns("ovn-k8s:default:eth0:c1"));
}

#[test]
fn a_longer_container_id_is_another_sandbox() {
    let identity = attachment(Network::Default, "c1", "cart-0", "u1").identity;
    assert!(!identity.owns("ovn-k8s:default:eth0:c12"));
    assert!(!identity.owns("ovn-k8s:default:eth0:c12:shop/cart-0:u1"));
}

#[test]
fn what_does_not_fit_is_left_out_as_a_whole() {
    let long = attachment(Network::Default, &"f".repeat(64), &"n".repeat(200), "u1");
    assert_eq!(alias(&long), long.identity.alias());
    let longest = attachment(
        Network::Default,
        &"f".repeat(64),
        &"n".repeat(126),
        "4d7c2b1e-0000-4000-8000-000000000001",
    );
    assert!(
        alias(&longest).len() <= LONGEST_ALIAS && alias(&longest).contains("/nnn"),
        "{}",
        alias(&longest)
    );
}

#[test]
fn an_alias_that_may_have_lost_its_end_names_nobody() {
    let cut = attachment(Network::Default, &"f".repeat(255), "cart-0", "u1");
    assert_eq!(OwnershipTag::read(&alias(&cut)), None);
    assert!(cut.identity.owns(&alias(&cut)));
}

#[test]
fn what_others_write_is_not_ours() {
    for alias in [
        "",
        "uplink",
        "ovn-k8s",
        "ovn-k8s:default:eth0",
        "ovn-k8s:default:e/0:c1",
        "ovn-k8sx:default:eth0:c1",
        "ovn-k8s:default:eth0:",
    ] {
        assert_eq!(OwnershipTag::read(alias), None, "{alias}");
    }
    assert_eq!(
        OwnershipTag::read("ovn-k8s:default:eth0:c1:nobody:u1").map(|mark| mark.pod),
        Some(None)
    );
}
