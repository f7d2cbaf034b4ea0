use contract::mtu::Mtu;

use super::*;
use crate::node::Forwarding;

fn uuid(number: u8) -> Uuid {
    format!("00000000-0000-0000-0000-0000000000{number:02x}").parse().unwrap()
}

fn desired() -> Desired {
    Desired {
        iface_id: "k8s-n1".to_owned(),
        mac: "0a:58:0a:f4:01:02".parse().unwrap(),
        mtu: Mtu::DEFAULT,
        addresses: Vec::new(),
        neighbours: Vec::new(),
        routes: Vec::new(),
        forwarding: Forwarding::OfServices,
        tunnel_ports: [6081].into(),
        forwarded_sources: None,
        destinations: None,
    }
}

/// The row as this program writes it, with the mark of ovn-controller.
fn interface() -> Interface {
    Interface {
        name: INTERFACE.to_owned(),
        kind: "internal".to_owned(),
        mac: Some("0a:58:0a:f4:01:02".to_owned()),
        mtu_request: Some(1400),
        external_ids: [(IFACE_ID, "k8s-n1"), (OVN_INSTALLED, "true")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        error: None,
    }
}

fn seen(interface: Interface) -> Seen {
    let port = SeenPort { port: uuid(2), elsewhere: None, interface: Some((uuid(3), interface)) };
    Seen {
        bridge: Some(uuid(1)),
        datapath: Some(Datapath::Userspace),
        port: Some(port),
        old: Vec::new(),
    }
}

fn done(seen: &Seen) -> Vec<String> {
    seen.change(&desired()).map(|(_, done)| done).unwrap_or_default()
}

#[test]
fn a_port_that_is_right_is_left_alone() {
    assert_eq!(done(&seen(interface())), [] as [&str; 0]);
    assert!(seen(interface()).is_installed("k8s-n1") && !seen(interface()).is_installed("k8s-n2"));
}

#[test]
fn without_a_bridge_there_is_nothing_to_do_and_on_an_empty_one_the_port_is_added() {
    assert_eq!(done(&Seen::default()), [] as [&str; 0]);
    assert_eq!(
        done(&Seen { bridge: Some(uuid(1)), ..Seen::default() }),
        ["added the port to br-int"]
    );
}

#[test]
fn only_what_differs_is_corrected() {
    let wrong = Interface { mac: None, ..interface() };
    assert_eq!(done(&seen(wrong)), ["corrected mac"]);
    let mut wrong = Interface { kind: String::new(), mtu_request: Some(1500), ..interface() };
    wrong.external_ids.insert(IFACE_ID.to_owned(), "other".to_owned());
    assert_eq!(done(&seen(wrong)), ["corrected type, mtu_request, external_ids:iface-id"]);
}

#[test]
fn ports_under_the_old_name_or_on_another_bridge_are_replaced() {
    let mut of_old = seen(interface());
    of_old.old = vec![(uuid(8), uuid(1))];
    assert_eq!(done(&of_old), ["removed the port under its old name"]);
    let mut astray = seen(interface());
    astray.port.as_mut().unwrap().elsewhere = Some(uuid(9));
    assert_eq!(done(&astray), ["moved the port to br-int"]);
    assert_eq!(of_old.removal().unwrap().len(), 3, "both ports, and a comment");
}

/// Both names were in use: the Go and the Python programs cut the name off at the kernel's limit.
#[test]
fn the_port_of_a_node_with_a_long_name_is_known_under_both_of_its_old_names() {
    let names = |node| old_names(node).into_iter().collect::<Vec<_>>();
    assert_eq!(
        names("kube-node-with-long-name"),
        ["k8s-kube-node-w", "k8s-kube-node-with-long-name"]
    );
    assert_eq!(names("node1"), ["k8s-node1"]);
}
