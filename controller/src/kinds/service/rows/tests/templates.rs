//! Node ports as templates: rows of all switches and routers, and the variables of each chassis.

use super::*;

/// The rows with templates.
fn templated(objects: &[Json]) -> Vec<String> {
    let mut store = store(objects);
    store.use_templates(TemplateUse::FromTheStart);
    lines(&store)
}

/// A load balancer for each node: 2,000 node ports of 120 nodes were 720,000 logical flows.
#[test]
fn with_templates_a_node_port_is_one_row_of_all_switches_and_one_of_all_routers() {
    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    let one = slice("a", http(), &[endpoint("10.244.1.4", "n1")]);
    let day = json!({"clientIP": {"timeoutSeconds": 86400}});
    for spec in [
        json!({"ports": ports}),
        json!({"ports": ports, "sessionAffinity": "ClientIP", "sessionAffinityConfig": day}),
        json!({"ports": ports, "internalTrafficPolicy": "Cluster"}),
    ] {
        assert_eq!(
            templated(&[cart(spec), one.clone()]),
            [
                "TCP_cluster on clusterLBGroup: 10.96.0.7:80 = 10.244.1.4:8080",
                "TCP_node_switch_template_IPv4 on clusterSwitchLBGroup: ^NODEIP_IPv4_0:30080 = 10.244.1.4:8080",
                "TCP_node_router_template_IPv4 on clusterRouterLBGroup: ^NODEIP_IPv4_0:30080 = 10.244.1.4:8080",
            ]
        );
    }
    let nothing = templated(&[cart(json!({"ports": ports}))]);
    assert!(nothing.iter().all(|line| line.ends_with(" = ")) && nothing.len() == 3, "{nothing:#?}");
}

/// Each router has another address for its own host.
#[test]
fn node_ports_with_hosts_as_backends_have_a_variable_for_them_on_routers() {
    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    let host = slice("a", http(), &[endpoint("172.18.0.1", "n1"), endpoint("10.244.2.5", "n2")]);
    let mut store = store(&[cart(json!({"ports": ports})), host]);
    store.use_templates(TemplateUse::FromTheStart);
    for (number, address) in [(1, "172.18.0.1"), (2, "172.18.0.2")] {
        let name = format!("n{number}");
        let chassis =
            Node { chassis: Some(format!("c{number}")), ..store.node(&name).unwrap().clone() };
        assert_eq!(chassis.host_addresses, [address.parse::<IpAddr>().unwrap()]);
        store.observe(WatchEvent::Nodes(Seen::Applied(chassis)), &mut |_, _| ());
    }
    let both = "10.244.2.5:8080,172.18.0.1:8080";
    let variable = "Service__shop_cart__TCP__30080__node__router__template__IPv4";
    let of_node_ports = |store: &Store| -> Vec<String> {
        lines(store).into_iter().filter(|line| line.contains("30080")).collect()
    };
    assert_eq!(
        of_node_ports(&store),
        [
            format!(
                "TCP_node_switch_template_IPv4 on clusterSwitchLBGroup: ^NODEIP_IPv4_0:30080 = {both}"
            ),
            format!(
                "TCP_node_router_template_IPv4 on clusterRouterLBGroup: ^NODEIP_IPv4_0:30080 = ^{variable}"
            ),
        ]
    );
    let own = "NODEIP_IPv4_0=172.18.0.1";
    assert_eq!(
        variables(&store, "c1"),
        [own.to_owned(), format!("{variable}=10.244.2.5:8080,169.254.169.2:8080")]
    );
    assert_eq!(
        variables(&store, "c2"),
        ["NODEIP_IPv4_0=172.18.0.2".to_owned(), format!("{variable}={both}")],
        "it reaches the other host as everybody does"
    );

    store.observe(WatchEvent::Nodes(Seen::Deleted("n1".into())), &mut |_, _| ());
    assert_eq!(
        variables(&store, "c2"),
        ["NODEIP_IPv4_0=172.18.0.2"],
        "no router has another address for it"
    );
    assert!(
        of_node_ports(&store).iter().all(|line| line.ends_with(both)),
        "{:#?}",
        of_node_ports(&store)
    );
}

/// The variables of a chassis.
fn variables(store: &Store, chassis: &str) -> Vec<String> {
    let rows = crate::kinds::desired(store, &Key::Chassis(chassis.into()));
    let columns = rows.into_iter().flat_map(|row| row.columns);
    let pairs = columns.filter_map(|(_, value)| match value {
        Value::Lists(pairs) => Some(pairs),
        _ => None,
    });
    pairs.flatten().map(|(name, value)| format!("{name}={value}")).collect()
}

/// Of these, a variable would have to name other backends on each switch and router.
#[test]
fn node_ports_that_differ_by_node_are_rows_of_nodes_with_templates_too() {
    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    let pod = || slice("a", http(), &[endpoint("10.244.1.4", "n1")]);
    let mut hinted = endpoint("10.244.1.4", "n1");
    hinted["hints"] = json!({"forZones": [{"name": "east"}]});
    for (spec, slice) in [
        (json!({"ports": ports, "externalTrafficPolicy": "Local"}), pod()),
        (json!({"ports": ports, "sessionAffinity": "ClientIP"}), pod()),
        (json!({"ports": ports}), slice("a", http(), &[hinted])),
    ] {
        let objects = [cart(spec.clone()), slice];
        assert_eq!(templated(&objects), rows(&objects), "{spec}");
    }
}

#[test]
fn variables_are_a_nodes_addresses_in_order_and_none_where_it_has_no_node_ports() {
    let variables = |templates: TemplateUse, node_ports: bool| {
        let mut store = store(&[]);
        store.use_templates(templates);
        let addresses =
            ["172.18.0.9", "fd00::9", "172.18.0.10"].map(|address| address.parse().unwrap());
        let node = Node {
            subnets: vec!["10.244.3.0/24".parse().unwrap()],
            chassis: Some("c3".to_owned()),
            host_addresses: addresses.into(),
            node_ports,
            ..Node::named("n3")
        };
        store.observe(WatchEvent::Nodes(Seen::Applied(node)), &mut |_, _| ());
        variables(&store, "c3")
    };
    let all = ["NODEIP_IPv4_0=172.18.0.9", "NODEIP_IPv4_1=172.18.0.10", "NODEIP_IPv6_0=fd00::9"];
    let (always, never) = (TemplateUse::FromTheStart, TemplateUse::Never);
    assert_eq!(variables(always, true), all);
    assert_eq!(
        [variables(never, true), variables(always, false)],
        [const { Vec::<String>::new() }; 2]
    );
}
