use kubeapi::services::SourceRanges;

use super::*;

fn node(mode: GatewayMode) -> NodeFacts {
    NodeFacts {
        name: "n1".to_owned(),
        addresses: vec![address("192.0.2.1")],
        mode,
        gateway: None,
        forwarded: vec![address("100.64.255.253")],
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Port 80 with the node port 30080, at 10.96.0.7 and 198.51.100.7.
fn served() -> Served {
    let port = ServicePort {
        name: None,
        protocol: Protocol::Tcp,
        port: 80,
        target: None,
        node_port: Some(30080),
    };
    let service = Service {
        cluster_ips: [address("10.96.0.7")].into(),
        ingress_ips: [address("198.51.100.7")].into(),
        ports: [port].into(),
        ..Service::default()
    };
    Served {
        name: "Service shop/web".to_owned(),
        service,
        backends: vec!["10.244.2.5:8080".parse().unwrap()],
        local_traffic: "169.254.169.3:30080".parse().ok(),
    }
}

fn arrive(mode: GatewayMode, sender: Sender, at: &str, served: Option<&Served>) -> Arrival {
    let at: SocketAddr = at.parse().unwrap();
    arrival(&node(mode), sender, at, TraceProtocol::Tcp(at.port()), served)
}

fn forwarded(arrival: Arrival) -> (Option<IpAddr>, Vec<String>, Choice) {
    let Arrival::Over(Forwarded { source, targets, choice, .. }) = arrival else {
        panic!("{arrival:?}")
    };
    (source, targets.iter().map(ToString::to_string).collect(), choice)
}

const CLIENT: &str = "203.0.113.9";

#[test]
fn node_ports_and_outer_addresses_lead_to_the_address_in_the_cluster_with_another_source() {
    let (served, client) = (served(), Sender::Machine(address(CLIENT)));
    let (join, cluster) = (Some(address("100.64.255.253")), vec!["10.96.0.7:80".to_owned()]);
    for at in ["192.0.2.1:30080", "198.51.100.7:80"] {
        let found = forwarded(arrive(GatewayMode::Local, client, at, Some(&served)));
        assert_eq!(found, (join, cluster.clone(), Choice::Ovn), "{at}");
        let host = Sender::Host(address("192.0.2.1"));
        let found = forwarded(arrive(GatewayMode::Shared, host, at, Some(&served)));
        assert_eq!(found, (None, cluster.clone(), Choice::Ovn), "{at}");
    }
    // A node port is one of nodes alone, and the Service's port one of its addresses.
    for at in ["198.51.100.7:30080", "192.0.2.1:80"] {
        let found = arrive(GatewayMode::Local, client, at, Some(&served));
        assert!(matches!(found, Arrival::Ends(Verdict::Unclear(_))), "{at}: {found:?}");
    }
}

#[test]
fn a_local_policy_keeps_the_client_and_a_shared_gateway_has_it_in_its_router() {
    let mut served = served();
    served.service.external = Traffic::Local;
    let client = Sender::Machine(address(CLIENT));
    let at = "192.0.2.1:30080";
    let third = vec!["169.254.169.3:30080".to_owned()];
    for mode in [GatewayMode::Disabled, GatewayMode::Local] {
        let found = forwarded(arrive(mode, client, at, Some(&served)));
        assert_eq!(found, (Some(address(CLIENT)), third.clone(), Choice::Ovn));
    }
    let shared = arrive(GatewayMode::Shared, client, at, Some(&served));
    assert!(matches!(shared, Arrival::ToRouter { .. }), "{shared:?}");
    served.local_traffic = None;
    let none = arrive(GatewayMode::Local, client, at, Some(&served));
    assert!(matches!(none, Arrival::Ends(Verdict::Unclear(_))), "{none:?}");
    // The node's own connections go to any endpoint.
    let host = Sender::Host(address("192.0.2.1"));
    let found = forwarded(arrive(GatewayMode::Shared, host, at, Some(&served)));
    assert_eq!(found.1, ["10.96.0.7:80"]);
}

#[test]
fn an_internal_policy_leaves_the_choice_among_all_endpoints_to_the_host() {
    let mut served = served();
    served.service.internal = Traffic::Local;
    let client = Sender::Machine(address(CLIENT));
    let found = forwarded(arrive(GatewayMode::Local, client, "192.0.2.1:30080", Some(&served)));
    assert_eq!(found.1, ["10.244.2.5:8080"]);
    assert_eq!(found.2, Choice::Host);
}

#[test]
fn source_ranges_are_named_and_hold_for_addresses_of_the_load_balancer_alone() {
    let mut served = served();
    let ranges = SourceRanges::new(
        [address("198.51.100.7")].into(),
        ["192.0.2.0/24".parse().unwrap()].into(),
    );
    served.service.source_ranges = Some(Box::new(ranges));
    let client = Sender::Machine(address(CLIENT));
    let found = arrive(GatewayMode::Local, client, "198.51.100.7:80", Some(&served));
    let Arrival::Ends(Verdict::Stopped(why)) = found else { panic!("{found:?}") };
    assert!(why.contains("Service shop/web, loadBalancerSourceRanges"), "{why}");
    assert!(why.contains("node n1"), "{why}");
    forwarded(arrive(GatewayMode::Local, client, "192.0.2.1:30080", Some(&served)));
    let within = Sender::Machine(address("192.0.2.200"));
    forwarded(arrive(GatewayMode::Local, within, "198.51.100.7:80", Some(&served)));
}

#[test]
fn what_is_no_services_is_the_hosts_or_nobodys() {
    let client = Sender::Machine(address(CLIENT));
    let host = arrive(GatewayMode::Shared, client, "192.0.2.1:22", None);
    assert!(matches!(host, Arrival::Ends(Verdict::Delivered(_))), "{host:?}");
    let nobody = arrive(GatewayMode::Shared, client, "198.51.100.7:22", None);
    assert!(matches!(nobody, Arrival::Ends(Verdict::Stopped(_))), "{nobody:?}");
}
