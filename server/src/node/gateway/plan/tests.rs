use std::collections::BTreeMap;

use contract::node_annotation::{GATEWAY_CONFIG, GatewayMode as Annotated, NodeAnnotations};

use super::*;
use crate::node::gateway::ManagedNic;

pub(crate) fn config(mode: GatewayMode) -> GatewayConfig {
    GatewayConfig {
        managed_nic: ManagedNic::Refuse,
        mode,
        interface: None,
        next_hops: Vec::new(),
        vlan: None,
        node_ports: true,
        snat_per_pod: false,
        tunnel_ports: [6081].into(),
        conntrack_zone: 64000,
        masquerade: ["169.254.169.0/29", "fd69::/125"].map(|net| net.parse().unwrap()),
    }
}

fn place() -> Place {
    Place {
        bridge: "breth0".to_owned(),
        mac: "02:42:ac:12:00:03".parse().unwrap(),
        addresses: vec!["172.18.0.3/16".parse().unwrap()],
        next_hops: vec!["172.18.0.1".parse().unwrap()],
    }
}

#[test]
fn a_family_that_is_lost_altogether_is_as_it_was_before() {
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    let at = |addresses: &[&str], next_hops: &[&str]| Place {
        addresses: addresses.iter().map(|text| net(text)).collect(),
        next_hops: next_hops.iter().map(|text| text.parse().unwrap()).collect(),
        ..place()
    };
    let before = at(&["172.18.0.3/16", "fd00::3/64"], &["172.18.0.1", "172.18.0.2", "fd00::1"]);
    for (seen, kept) in [
        (at(&["172.18.0.3/16"], &["172.18.0.1", "172.18.0.2"]), before.clone()),
        (at(&["fd00::3/64"], &["fd00::1"]), before.clone()),
        (at(&["172.18.0.3/16", "fd00::3/64"], &[]), before.clone()),
        // Another address, or fewer next hops, are no loss of a family.
        (
            at(&["fd00::4/64"], &["fd00::1"]),
            at(&["172.18.0.3/16", "fd00::4/64"], &["172.18.0.1", "172.18.0.2", "fd00::1"]),
        ),
        (
            at(&["172.18.0.3/16", "fd00::3/64"], &["172.18.0.2", "fd00::1"]),
            at(&["172.18.0.3/16", "fd00::3/64"], &["172.18.0.2", "fd00::1"]),
        ),
    ] {
        assert_eq!(seen.with_lost_families_of(&before), kept);
    }
}

#[test]
fn the_controller_reads_what_the_node_writes() {
    let entry =
        entry(&GatewayConfig { node_ports: false, ..config(GatewayMode::Shared) }, "n1", &place());
    let text = annotation(Some(r#"{"blue":{"mode":""},"default":{"mode":"local"}}"#), &entry);
    for part in [
        r#""bridge-id":"breth0""#,
        r#""interface-id":"breth0_n1""#,
        r#""ip-address":"172.18.0.3/16""#,
        r#""next-hop":"172.18.0.1""#,
        r#""node-port-enable":"true""#,
        r#""vlan-id":"0""#,
        r#""blue":{"mode":""}"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let annotations = BTreeMap::from([(GATEWAY_CONFIG.to_owned(), text.clone())]);
    let read = NodeAnnotations(&annotations).gateway();
    assert_eq!((read.mode, read.node_ports), (Some(Annotated::Shared), Some(true)));
    assert_eq!(read.place.as_ref(), Some(&entry.gateway));
    assert!(read.unreadable.is_none(), "{:?}", read.unreadable);
    assert_eq!(annotation(Some(&text), &entry), text, "a second writing changes nothing");
}

#[test]
fn what_the_world_may_ask_for_follows_from_services() {
    let cluster: IpAddr = "10.96.0.7".parse().unwrap();
    let own = "172.18.0.3:8080".parse().unwrap();
    let destination = |address: Option<&str>, local| Destination {
        address: address.map(|address| address.parse().unwrap()),
        protocol: Protocol::Tcp,
        port: 30080,
        cluster,
        targets: Vec::new(),
        local,
        hosts: vec![own],
        clients: None,
    };
    let clients: Vec<IpNet> = vec!["192.0.2.0/24".parse().unwrap()];
    let all = [
        destination(None, None),
        destination(Some("203.0.113.5"), Some(vec![own])),
        destination(Some("10.96.0.7"), None),
        Destination {
            protocol: Protocol::Udp,
            ..destination(Some("203.0.113.7"), Some(vec![own]))
        },
        destination(Some("203.0.113.8"), Some(vec!["10.244.0.5:8080".parse().unwrap(), own])),
        // The gateway router would let everybody in.
        Destination { clients: Some(clients.clone()), ..destination(Some("203.0.113.6"), None) },
        // The host could not keep the client's address, so the flows let in whom they should.
        Destination {
            clients: Some(clients.clone()),
            ..destination(Some("203.0.113.9"), Some(vec![own]))
        },
    ];
    let ports = BridgePorts {
        uplink: 1,
        patch: None,
        others: BTreeSet::new(),
        datapath: uplink::flows::Datapath::Kernel,
    };
    let services = |mode, node_ports| {
        let surroundings = Surroundings {
            host: BTreeSet::new(),
            cluster: &[],
            management: BTreeSet::new(),
            service_ranges: Vec::new(),
            destinations: &all,
            mtu: Mtu::DEFAULT,
        };
        flows_config(&GatewayConfig { node_ports, ..config(mode) }, &place(), &ports, surroundings)
            .services
    };
    let front = |front, host_endpoint| Exposed {
        protocol: uplink::flows::Protocol::Tcp,
        front,
        host_endpoint,
        clients: None,
    };
    let node_port = front(Front::NodePort { family: Family::V4, port: 30080 }, None);
    let address = |address: &str| Front::Address { address: address.parse().unwrap(), port: 30080 };
    let local = front(address("203.0.113.5"), Some(own));
    let datagrams = Exposed {
        protocol: uplink::flows::Protocol::Udp,
        ..front(address("203.0.113.7"), Some(own))
    };
    let beside_pod = front(address("203.0.113.8"), Some(own));
    let limited = Exposed { clients: Some(clients), ..front(address("203.0.113.9"), Some(own)) };
    let of_policy = BTreeSet::from([local.clone(), datagrams, beside_pod, limited]);
    assert_eq!(services(GatewayMode::Shared, true), &of_policy | &BTreeSet::from([node_port]));
    assert_eq!(services(GatewayMode::Shared, false), of_policy, "the client's address is kept");
    assert_eq!(
        services(GatewayMode::Local, true),
        BTreeSet::from([local]),
        "the host serves all but its own"
    );
}

#[test]
fn a_node_without_a_gateway_says_so_and_entries_of_other_networks_stay() {
    let of = |text: &str| BTreeMap::from([(GATEWAY_CONFIG.to_owned(), text.to_owned())]);
    let text = annotation_disabled(&of(r#"{"blue":{"mode":"local"},"default":{"mode":"shared"}}"#))
        .unwrap();
    assert_eq!(text, r#"{"blue":{"mode":"local"},"default":{"mode":""}}"#);
    assert_eq!(annotation_disabled(&of(&text)), None);
    assert_eq!(annotation_disabled(&BTreeMap::new()), None);
    let rest = r#"{"blue":{"mode":"local"}}"#;
    assert_eq!(annotation_without(&of(&text)), Some(Some(rest.to_owned())));
    assert_eq!(annotation_without(&of(rest)), None);
    assert_eq!(annotation_without(&of(r#"{"default":{"mode":""}}"#)), Some(None));
}
