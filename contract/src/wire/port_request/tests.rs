use std::collections::BTreeMap;

use super::*;

/// A request as an earlier plugin sent it, with the rows to write.
const OLDER: &str = r#"{"name":"0123456789abcde","address":"10.244.1.5/24","external_ids":{"attached_mac":"0a:58:0a:f4:01:05",
    "iface-id":"shop_cart-0","sandbox":"0123456789abcdef","pod-if-name":"eth0"},"ingress_policing":[0,0]}"#;

/// What an earlier server needs to read a request.
#[derive(Debug, Deserialize)]
struct ReadByAnOlderServer {
    #[expect(dead_code, reason = "only whether it can be read matters")]
    name: String,
    #[expect(dead_code, reason = "only whether it can be read matters")]
    external_ids: BTreeMap<String, String>,
}

fn request(network: Network) -> PortRequest {
    PortRequest {
        pod: PodKey::new("shop", "cart-0").unwrap(),
        uid: "u1".to_owned(),
        network,
        sandbox: "0123456789abcdef".parse().unwrap(),
        if_name: "eth0".parse().unwrap(),
        host_link: "0123456789abcde".parse().unwrap(),
        mac: "0a:58:0a:f4:01:05".parse().unwrap(),
        addresses: vec!["10.244.1.5/24".parse().unwrap(), "fd00::5/64".parse().unwrap()],
    }
}

fn blue() -> Network {
    Network::Attachment { name: "blue".to_owned(), nad: "shop/blue".to_owned() }
}

#[test]
fn a_request_says_which_port_it_is_and_nothing_about_its_rows() {
    let text = serde_json::to_string(&request(Network::Default)).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"namespace":"shop","name":"cart-0","uid":"u1","nad":"default","sandbox":"0123456789abcdef","ifName":"eth0","#,
            r#""hostLink":"0123456789abcde","mac":"0a:58:0a:f4:01:05","addresses":["10.244.1.5/24","fd00::5/64"]}"#
        )
    );
    for network in [Network::Default, blue()] {
        let request = request(network);
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<PortRequest>(&text).unwrap(), request);
    }
}

#[test]
fn what_names_no_port_is_refused_with_the_field() {
    let good = serde_json::to_string(&request(blue())).unwrap();
    for (from, to, message) in [
        ("cart-0", "cart_0", "pod name \"cart_0\" has characters other than"),
        ("0123456789abcdef", "../x", "container id \"../x\" does not start"),
        ("eth0", "lo", "interface name \"lo\" is reserved"),
        ("0123456789abcde\"", "a/b\"", "interface name \"a/b\" has a '/'"),
        ("0a:58:", "01:58:", "mac \"01:58:0a:f4:01:05\" is not a unicast MAC address"),
        (
            "10.244.1.5/24",
            "10.244.1.5/33",
            "address \"10.244.1.5/33\" is not one with its prefix length",
        ),
        ("u1", &"u".repeat(318), "uid \"uuuu"),
        ("shop/blue", &"n".repeat(318), "nad \"nnnn"),
        (",\"ifName\":\"eth0\"", "", "missing field `ifName`"),
        ("{\"namespace\"", "{\"mtu\":1,\"namespac\"", "missing field `namespace`"),
    ] {
        assert!(good.contains(from), "{from}");
        let error =
            serde_json::from_str::<PortRequest>(&good.replace(from, to)).unwrap_err().to_string();
        assert!(error.starts_with(message) && error.len() < 256, "{error}");
    }
}

/// During a roll-out either program may be the older one. A refusal makes the plugin write the port
/// itself; a request that is misread would become a port without `external_ids`.
#[test]
fn neither_an_older_server_nor_this_one_takes_the_others_request_for_its_own() {
    for network in [Network::Default, blue()] {
        let text = serde_json::to_string(&request(network)).unwrap();
        let error = serde_json::from_str::<ReadByAnOlderServer>(&text).unwrap_err();
        assert!(error.to_string().starts_with("missing field `external_ids`"), "{error}");
    }
    serde_json::from_str::<ReadByAnOlderServer>(OLDER).unwrap();
    let error = serde_json::from_str::<PortRequest>(OLDER).unwrap_err();
    assert!(error.to_string().starts_with("missing field `namespace`"), "{error}");
}
