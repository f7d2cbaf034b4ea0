use super::*;

fn port(cluster: &[&str]) -> ManagementPort {
    ManagementPort {
        subnets: Vec::new(),
        cluster: cluster.iter().map(|text| text.parse().unwrap()).collect(),
        cluster_is_given: true,
        masquerade: ["169.254.169.0/29", "fd69::/125"].map(|net| net.parse().unwrap()),
        local_traffic: ["169.254.169.3", "fd69::3"].map(|text| text.parse().unwrap()),
        to_gateway: ["169.254.169.4", "fd69::4"].map(|text| text.parse().unwrap()),
        reserved: Vec::new(),
        services: Vec::new(),
        forwarding: Forwarding::OfServices,
        tunnel_ports: [6081].into(),
        mtu: Mtu::DEFAULT,
        routable_mtu: None,
    }
}

fn assigned(subnets: &[&str]) -> AssignedSubnets {
    AssignedSubnets {
        subnets: subnets.iter().map(|text| text.parse().unwrap()).collect(),
        ..AssignedSubnets::default()
    }
}

#[test]
fn a_node_of_both_families_has_an_address_a_gateway_and_routes_in_each() {
    let services = ["10.96.0.0/16".parse().unwrap()];
    let subnets = assigned(&["10.244.1.0/24", "fd00:10:244:1::/64"]);
    let desired =
        port(&["10.244.0.0/16", "fd00:10:244::/48"]).desired("n1", &subnets, &services).unwrap();
    assert_eq!(desired.iface_id, "k8s-n1");
    assert_eq!(desired.mac.to_string(), "0a:58:0a:f4:01:02");
    assert_eq!(
        desired.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.244.1.2/24", "fd00:10:244:1::2/64"]
    );
    let neighbours: Vec<String> =
        desired.neighbours.iter().map(|to| format!("{} {}", to.address, to.mac)).collect();
    assert_eq!(neighbours, ["10.244.1.1 0a:58:0a:f4:01:01", "fd00:10:244:1::1 0a:58:0a:f4:01:01"]);
    let routes: Vec<String> =
        desired.routes.iter().map(|route| format!("{} via {}", route.to, route.via)).collect();
    assert_eq!(
        routes,
        [
            "10.244.0.0/16 via 10.244.1.1",
            "10.96.0.0/16 via 10.244.1.1",
            "fd00:10:244::/48 via fd00:10:244:1::1"
        ]
    );
}

#[test]
fn a_recorded_mac_and_the_mtu_of_routes_are_used() {
    let port =
        ManagementPort { routable_mtu: Some(1300.try_into().unwrap()), ..port(&["10.244.0.0/16"]) };
    let mac = "0a:58:00:00:00:07".parse().ok();
    let desired =
        port.desired("N1", &AssignedSubnets { mac, ..assigned(&["10.244.3.0/24"]) }, &[]).unwrap();
    assert_eq!(
        (desired.mac.to_string().as_str(), desired.iface_id.as_str()),
        ("0a:58:00:00:00:07", "k8s-n1")
    );
    assert_eq!(desired.routes[0].mtu, Some(1300));
    // The router's Ethernet address is its own all the same.
    assert_eq!(desired.neighbours[0].mac.to_string(), "0a:58:0a:f4:03:01");
}

#[test]
fn a_cluster_that_is_the_nodes_subnet_needs_no_route() {
    assert_eq!(
        port(&["10.244.1.0/24"]).desired("n1", &assigned(&["10.244.1.0/24"]), &[]).unwrap().routes,
        []
    );
}

#[test]
fn a_default_is_a_route_only_where_the_nodes_subnet_lies_in_it() {
    let port = ManagementPort { cluster_is_given: false, ..port(&["10.128.0.0/14"]) };
    assert_eq!(port.desired("n1", &assigned(&["10.244.1.0/24"]), &[]).unwrap().routes, []);
    assert_eq!(
        port.desired("n1", &assigned(&["10.130.2.0/23"]), &[]).unwrap().routes[0].to.to_string(),
        "10.128.0.0/14"
    );
}

#[test]
fn subnets_without_room_are_refused_by_name() {
    let error = port(&[]).desired("n1", &assigned(&["10.244.1.0/31"]), &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "subnet 10.244.1.0/31 has no room for a gateway and a management port"
    );
    assert_eq!(port(&[]).desired("n1", &assigned(&[]), &[]), Err(PlanError::None));
}
