use contract::mtu::Mtu;

use super::*;
use crate::node::Forwarding;

fn desired() -> Desired {
    Desired {
        iface_id: "k8s-n1".to_owned(),
        mac: "0a:58:0a:f4:01:02".parse().unwrap(),
        mtu: Mtu::DEFAULT,
        addresses: vec!["10.244.1.2/24".parse().unwrap()],
        neighbours: vec![neighbour()],
        routes: vec![route("10.244.0.0/16")],
        forwarding: Forwarding::OfServices,
        tunnel_ports: [6081].into(),
        forwarded_sources: None,
        destinations: None,
    }
}

fn neighbour() -> Neighbour {
    Neighbour { address: "10.244.1.1".parse().unwrap(), mac: "0a:58:0a:f4:01:01".parse().unwrap() }
}

fn route(to: &str) -> Route {
    Route { to: to.parse().unwrap(), via: "10.244.1.1".parse().unwrap(), mtu: None, source: None }
}

/// A link as Open vSwitch makes it.
fn fresh() -> SeenLink {
    let mac = Some(desired().mac);
    let (addresses, routes, neighbours) = (Vec::new(), Vec::new(), Vec::new());
    SeenLink {
        index: 7,
        is_up: false,
        mac,
        mtu: 1400,
        addresses,
        routes,
        neighbours,
        sysctls: Vec::new(),
        leaves_checksums: Some(true),
    }
}

/// The same link after every step.
fn finished() -> SeenLink {
    SeenLink {
        is_up: true,
        addresses: desired().addresses,
        routes: vec![SeenRoute { route: route("10.244.0.0/16"), is_ours: true }],
        neighbours: desired().neighbours,
        leaves_checksums: Some(false),
        ..fresh()
    }
}

fn said(seen: &SeenLink) -> Vec<String> {
    steps(&desired(), Datapath::Userspace, seen).iter().map(ToString::to_string).collect()
}

#[test]
fn a_fresh_link_gets_everything_in_the_order_in_which_it_lasts() {
    assert_eq!(
        said(&fresh()),
        [
            "turned transmit checksum offload off",
            "set link up",
            "added address 10.244.1.2/24",
            "set neighbour 10.244.1.1 0a:58:0a:f4:01:01",
            "added route 10.244.0.0/16 via 10.244.1.1",
        ]
    );
    assert!(!steps(&desired(), Datapath::Kernel, &fresh()).contains(&Step::TurnChecksumOffloadOff));
}

#[test]
fn a_finished_link_is_left_alone() {
    assert_eq!(said(&finished()), [] as [&str; 0]);
}

#[test]
fn what_is_left_of_another_subnet_goes() {
    let old = Route { via: "10.244.9.1".parse().unwrap(), ..route("10.244.0.0/16") };
    let seen = SeenLink {
        addresses: vec!["10.244.9.2/24".parse().unwrap()],
        routes: vec![
            SeenRoute { route: old, is_ours: false },
            SeenRoute { route: route("10.99.0.0/16"), is_ours: true },
        ],
        ..finished()
    };
    assert_eq!(
        said(&seen),
        [
            "removed address 10.244.9.2/24",
            "added address 10.244.1.2/24",
            "removed route 10.244.0.0/16 via 10.244.9.1",
            "removed route 10.99.0.0/16 via 10.244.1.1",
            "added route 10.244.0.0/16 via 10.244.1.1",
        ]
    );
}

#[test]
fn a_route_of_somebody_else_over_the_interface_stays() {
    let mut seen = finished();
    seen.routes.push(SeenRoute { route: route("192.0.2.0/24"), is_ours: false });
    assert_eq!(said(&seen), [] as [&str; 0]);
}
