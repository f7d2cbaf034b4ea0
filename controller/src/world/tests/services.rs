//! Services and slices in the store: which events concern which Service, and which lists are held
//! back.

use contract::names::{ServiceKey, SliceKey};
use kubeapi::services::{Family, Protocol, Unusable};

use crate::kinds::service::template_use::TemplateUse;

use super::*;

fn service_key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name).unwrap()
}

fn slice_key(name: &str) -> SliceKey {
    SliceKey::new("shop", name).unwrap()
}

fn service(last: u8, internal: Traffic) -> Service {
    let port = ServicePort {
        name: None,
        protocol: Protocol::Tcp,
        port: 80,
        target: None,
        node_port: None,
    };
    Service {
        uid: format!("u{last}").into(),
        cluster_ips: [IpAddr::from([10, 96, 0, last])].into(),
        ports: [port].into(),
        internal,
        ..Service::default()
    }
}

fn slice(of: &str, address: &str) -> Slice {
    let endpoint = Endpoint {
        address: address.parse().unwrap(),
        condition: Condition::Ready,
        node: Some("n1".into()),
        hints: None,
    };
    Slice {
        service: Some(service_key(of)),
        family: Some(Family::V4),
        ports: [SlicePort { name: None, protocol: Protocol::Tcp, port: Some(8080) }].into(),
        endpoints: [endpoint].into(),
        endpoints_count: 1,
        triggered: None,
        unusable: None,
    }
}

fn apply_service(store: &mut Store, name: &str, service: Service) -> Vec<Key> {
    observe(store, WatchEvent::Services(Seen::Applied((service_key(name), service))))
}

fn apply_slice(store: &mut Store, name: &str, slice: Slice) -> Vec<Key> {
    observe(store, WatchEvent::Slices(Seen::Applied((slice_key(name), slice))))
}

fn of(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| Key::Service(service_key(name))).collect()
}

/// Upstream computes every Service again for each change of a node.
#[test]
fn a_node_concerns_only_services_that_differ_by_node() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    apply_service(&mut store, "everywhere", service(1, Traffic::Cluster));
    apply_service(&mut store, "local", service(2, Traffic::Local));
    apply_service(&mut store, "host", service(3, Traffic::Cluster));
    apply_slice(&mut store, "host-1", slice("host", "172.18.0.1"));
    let added = observe(&mut store, WatchEvent::Nodes(Seen::Applied(node("n2", "10.244.2.0/24"))));
    assert_eq!(added, [of(&["host", "local"]), vec![Key::Node("n2".into())]].concat());
    let same = Node { chassis: Some("c".to_owned()), ..node("n2", "10.244.2.0/24") };
    let chassis = observe(&mut store, WatchEvent::Nodes(Seen::Applied(same)));
    assert_eq!(chassis, [Key::Node("n2".into())], "no load balancer depends on a chassis");
    observe(&mut store, WatchEvent::Slices(Seen::Deleted(slice_key("host-1"))));
    let gone = observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n2".into())));
    assert_eq!(
        gone,
        [of(&["local"]), vec![Key::Gateway("n2".into()), Key::Node("n2".into())]].concat()
    );
}

/// The Service had a row for each node, which stayed for ever when it changed while a node could
/// not be read.
#[test]
fn every_service_is_compared_when_a_node_that_could_not_be_read_is_readable_or_gone() {
    let garbled = |name: &str| {
        let why = "not JSON".to_owned();
        let unreadable = vec![Unreadable { annotation: NODE_SUBNETS, why }];
        WatchEvent::Nodes(Seen::Applied(Node { unreadable, ..Node::named(name) }))
    };
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    let key = Key::Service(service_key("a"));
    for name in ["n2", "n3"] {
        observe(&mut store, garbled(name));
    }
    apply_service(&mut store, "a", service(1, Traffic::Local));
    apply_service(&mut store, "a", service(1, Traffic::Cluster));
    let stays = |store: &Store, on: &str| store.keeps_balancers(&key, &Key::Node(on.into()), on);
    assert_eq!(["n1", "n2", "n3"].map(|on| stays(&store, on)), [false, true, true]);
    assert!(store.keeps_balancers(&key, &Key::Gateway("n2".into()), "GR_n2"));
    let in_group = |store: &Store, group: &str| store.keeps_balancers(&key, &Key::Cluster, group);
    assert_eq!(
        ["clusterSwitchLBGroup", "clusterLBGroup"].map(|group| in_group(&store, group)),
        [true, false]
    );
    let first = observe(&mut store, WatchEvent::Nodes(Seen::Applied(node("n2", "10.244.2.0/24"))));
    assert!(first.contains(&key) && !stays(&store, "n2") && stays(&store, "n3"));
    let last = observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n3".into())));
    assert_eq!((last.contains(&key), stays(&store, "n3")), (true, false));
    observe(&mut store, garbled("n4"));
    assert!(stays(&store, "n4"));
    // A text that was removed says as little as before; it took the rows of the node along.
    let waits = observe(&mut store, WatchEvent::Nodes(Seen::Applied(Node::named("n4"))));
    assert_eq!((waits.contains(&key), stays(&store, "n4")), (false, true));
    let known = observe(&mut store, WatchEvent::Nodes(Seen::Applied(node("n4", "10.244.4.0/24"))));
    assert_eq!((known.contains(&key), stays(&store, "n4")), (true, false));
    // A new node has merely no subnet yet.
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(Node::named("n5"))));
    assert!(!stays(&store, "n5"));
}

/// Such a node lost its load balancers at a restart, and had them again when its annotations were
/// back.
#[test]
fn load_balancers_stay_while_a_node_that_has_rows_at_the_start_lacks_annotations() {
    let key = Key::Service(service_key("a"));
    let last = [
        WatchEvent::Nodes(Seen::Applied(node("n2", "10.244.2.0/24"))),
        WatchEvent::Nodes(Seen::Applied(Node {
            zone: Some(Zone("far".to_owned())),
            ..Node::named("n2")
        })),
        WatchEvent::Nodes(Seen::Deleted("n2".into())),
    ];
    for end in last {
        let mut store = Store::new(config());
        // The third was deleted while nobody led.
        ["n1", "n2", "n3"].into_iter().for_each(|name| store.found_node(name.into()));
        let nodes = vec![node("n1", "10.244.1.0/24"), Node::named("n2"), Node::named("new")];
        observe(&mut store, WatchEvent::Nodes(Seen::All(nodes)));
        observe(&mut store, WatchEvent::Pods(Seen::All(vec![])));
        without_services(&mut store);
        apply_service(&mut store, "a", service(1, Traffic::Local));
        let stays =
            |store: &Store, on: &str| store.keeps_balancers(&key, &Key::Node(on.into()), on);
        assert_eq!(
            ["n1", "n2", "n3", "new"].map(|on| stays(&store, on)),
            [false, true, false, false]
        );
        let waits = observe(&mut store, WatchEvent::Nodes(Seen::Applied(Node::named("n2"))));
        assert_eq!((waits.contains(&key), stays(&store, "n2")), (false, true));
        let ended = observe(&mut store, end);
        assert_eq!((ended.contains(&key), stays(&store, "n2")), (true, false));
    }
    // A node that is new has no rows to lose.
    let mut store = complete(vec![node("n1", "10.244.1.0/24"), Node::named("new")], vec![]);
    apply_service(&mut store, "a", service(1, Traffic::Local));
    assert!(!store.keeps_balancers(&key, &Key::Node("new".into()), "new"));
}

/// Each change of a node concerned each of thousands of node ports.
#[test]
fn with_templates_a_node_concerns_its_variables_and_a_node_port_only_if_there_are_more_addresses() {
    let at = |number: u8, addresses: &[u8]| Node {
        chassis: Some(format!("c{number}")),
        host_addresses: addresses.iter().map(|last| [172, 18, 0, *last].into()).collect(),
        ..node(&format!("n{number}"), &format!("10.244.{number}.0/24"))
    };
    let mut store = complete(vec![at(1, &[1])], vec![]);
    store.use_templates(TemplateUse::FromTheStart);
    let mut with_port = service(1, Traffic::Cluster);
    with_port.ports[0].node_port = Some(30080);
    apply_service(&mut store, "port", with_port);
    let chassis = Key::Chassis("c2".into());
    let mut applied = |node| observe(&mut store, WatchEvent::Nodes(Seen::Applied(node)));
    assert_eq!(applied(at(2, &[2])), [chassis.clone(), Key::Node("n2".into())]);
    assert_eq!(applied(at(2, &[3])), std::slice::from_ref(&chassis));
    assert_eq!(applied(at(2, &[3, 4])), [of(&["port"]), vec![chassis.clone()]].concat());
    let gone = observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n2".into())));
    assert_eq!(
        gone,
        [of(&["port"]), vec![chassis, Key::Gateway("n2".into()), Key::Node("n2".into())]].concat()
    );
    assert!(store.keys().any(|key| key == Key::Chassis("c1".into())));
}

#[test]
fn a_slice_concerns_its_service_and_the_one_that_it_was_of() {
    let mut store = complete(vec![], vec![]);
    assert_eq!(
        apply_slice(&mut store, "s", slice("a", "10.244.1.4")),
        of(&["a"]),
        "a slice may come first"
    );
    assert_eq!(store.keys().count(), 1, "a Service of which only slices are known has no rows");
    assert_eq!(apply_service(&mut store, "a", service(1, Traffic::Cluster)), of(&["a"]));
    assert_eq!(apply_slice(&mut store, "s", slice("a", "10.244.1.4")), [], "nothing has changed");
    assert_eq!(apply_slice(&mut store, "s", slice("b", "10.244.1.4")), of(&["a", "b"]));
    assert_eq!(
        apply_slice(&mut store, "s", Slice { service: None, ..slice("b", "10.244.1.4") }),
        of(&["b"])
    );
    assert_eq!(observe(&mut store, WatchEvent::Slices(Seen::Deleted(slice_key("s")))), []);
}

/// An API server that has lost its data must not take away every Service, nor the endpoints of all.
#[test]
fn a_list_that_lacks_most_services_or_slices_is_held_back() {
    let mut store = complete(vec![], vec![]);
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        apply_service(&mut store, name, service(1, Traffic::Cluster));
        apply_slice(&mut store, name, slice(name, "10.244.1.4"));
    }
    let no_services = || WatchEvent::Services(Seen::All(Vec::new()));
    let no_slices = || WatchEvent::Slices(Seen::All(Vec::new()));
    assert_eq!(observe(&mut store, no_services()), []);
    assert_eq!(observe(&mut store, no_slices()), []);
    let doubted = store.doubted().unwrap();
    assert_eq!((doubted.services, doubted.slices, doubted.missing()), (6, 6, 12));
    assert!(doubted.to_string().contains("6 Services and 6 EndpointSlices"), "{doubted}");
    assert_eq!(apply_slice(&mut store, "a", slice("a", "10.244.1.5")), [], "events wait, too");
    observe(&mut store, WatchEvent::Cluster(None));
    assert_eq!(observe(&mut store, no_slices()).len(), 6, "the second list says the same");
    assert_eq!(observe(&mut store, no_services()).len(), 6);
    assert_eq!(store.doubted(), None);
    assert_eq!(store.services(), 0);
}

#[test]
fn at_the_start_services_with_load_balancers_are_the_known_ones() {
    let mut store = Store::new(config());
    for name in ["a", "b"] {
        store.found_service(service_key(name));
    }
    observe(&mut store, WatchEvent::Services(Seen::All(Vec::new())));
    assert_eq!(store.doubted().unwrap().services, 2);
    assert!(!store.is_complete());
}

#[test]
fn a_trouble_is_told_once_and_again_when_it_is_another() {
    let mut store = complete(vec![], vec![]);
    let port = |port| Some(Box::new(Unusable::NoPort { place: "the Service", port }));
    let mut told = |unusable: Option<Box<Unusable>>, affinity| {
        let service = Service { unusable, affinity, ..service(1, Traffic::Cluster) };
        apply_service(&mut store, "a", service);
        store.take_problems().len()
    };
    assert_eq!(told(port(-1), None), 1);
    assert_eq!(told(port(-1), Some(5)), 0);
    assert_eq!(told(port(-2), None), 1);
    assert_eq!(told(None, None), 0);
    assert_eq!(told(port(-2), None), 1);
}

#[test]
fn changes_are_measured_but_not_what_a_list_has() {
    let mut store = complete(vec![], vec![]);
    apply_service(&mut store, "a", service(1, Traffic::Cluster));
    let at = |triggered, address| Slice { triggered: Some(triggered), ..slice("a", address) };
    observe(&mut store, WatchEvent::Slices(Seen::All(vec![(slice_key("s"), at(1, "10.244.1.4"))])));
    assert_eq!(store.take_triggers(&service_key("a")), Vec::<i64>::new());
    apply_slice(&mut store, "s", at(2, "10.244.1.5"));
    apply_slice(&mut store, "s", at(3, "10.244.1.5"));
    apply_slice(&mut store, "s", at(4, "10.244.1.6"));
    assert_eq!(store.take_triggers(&service_key("a")), [2, 4], "the third changed nothing");
    assert_eq!(store.take_triggers(&service_key("a")), Vec::<i64>::new());
}

/// Each node that came without a subnet, and each address that came or went, concerned each of a
/// thousand Services.
#[test]
fn a_change_of_a_node_concerns_the_services_that_it_changes_and_no_others() {
    let zones = |names: &[&str]| {
        Some(Box::new(Hints {
            zones: names.iter().map(|name| (*name).into()).collect(),
            nodes: [].into(),
        }))
    };
    let at = |address: u8| Node {
        host_addresses: vec![[172, 18, 0, address].into()],
        ..node("n2", "10.244.2.0/24")
    };
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    apply_service(&mut store, "everywhere", service(1, Traffic::Cluster));
    apply_service(&mut store, "local", service(2, Traffic::Local));
    apply_service(&mut store, "host", service(3, Traffic::Cluster));
    apply_slice(&mut store, "host-1", slice("host", "172.18.0.7"));
    let mut port = service(4, Traffic::Cluster);
    port.ports[0].node_port = Some(30_080);
    apply_service(&mut store, "port", port);
    apply_service(&mut store, "zone", service(5, Traffic::Cluster));
    let mut hinted = slice("zone", "10.244.1.4");
    hinted.endpoints[0].hints = zones(&["east"]);
    apply_slice(&mut store, "zone-1", hinted);
    let own = || vec![Key::Node("n2".into())];
    let all = || of(&["host", "local", "port", "zone"]);
    let mut applied = |node| observe(&mut store, WatchEvent::Nodes(Seen::Applied(node)));
    assert_eq!(
        applied(Node { host_addresses: vec![[172, 18, 0, 1].into()], ..Node::named("n2") }),
        own()
    );
    assert_eq!(applied(at(1)), [all(), own()].concat());
    assert_eq!(applied(at(2)), of(&["port"]));
    assert_eq!(applied(Node { topology_zone: Some("east".into()), ..at(2) }), of(&["zone"]));
    assert_eq!(applied(at(2)), of(&["zone"]));
    assert_eq!(applied(at(7)), of(&["port"]), "no router hides the endpoint's address");
    observe_routers(&mut store, &["n2"]);
    let mut applied = |node| observe(&mut store, WatchEvent::Nodes(Seen::Applied(node)));
    assert_eq!(applied(at(8)), of(&["host", "port"]));
    assert_eq!(applied(at(9)), of(&["port"]));
    let elsewhere = Node { zone: Some(Zone("other".to_owned())), ..at(9) };
    let with_gateway = || vec![Key::Gateway("n2".into()), Key::Node("n2".into())];
    assert_eq!(applied(elsewhere.clone()), [all(), with_gateway()].concat());
    assert_eq!(applied(Node { host_addresses: vec![[172, 18, 0, 3].into()], ..elsewhere }), []);
    assert_eq!(observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n2".into()))), with_gateway());
}

fn observe_routers(store: &mut Store, nodes: &[&str]) {
    store.gateway_routers(nodes.iter().map(|name| (*name).into()).collect(), &mut |_, _| ());
}

/// The variables of a node that went while another one had no chassis yet stayed for ever.
#[test]
fn variables_that_no_node_has_any_longer_go_once_the_chassis_of_all_nodes_are_known() {
    let at = |number: u8| Node {
        chassis: Some(format!("c{number}")),
        ..node(&format!("n{number}"), &format!("10.244.{number}.0/24"))
    };
    let mut store = complete(vec![at(1), at(2)], vec![]);
    store.use_templates(TemplateUse::FromTheStart);
    let chassis = Key::Chassis("c2".into());
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(Node::named("n3"))));
    let gone = observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n2".into())));
    assert_eq!((gone.contains(&chassis), store.kept(&chassis)), (true, Kept::ALL));
    let known = observe(&mut store, WatchEvent::Nodes(Seen::Applied(at(3))));
    assert_eq!((known.contains(&chassis), store.kept(&chassis)), (true, Kept::NOTHING));
    let again = observe(&mut store, WatchEvent::Nodes(Seen::Applied(at(3))));
    assert!(!again.contains(&chassis), "{again:?}");
    // Found in the database.
    store.found_chassis("c9".into());
    assert!(
        observe(&mut store, WatchEvent::Nodes(Seen::Applied(at(1))))
            .contains(&Key::Chassis("c9".into()))
    );
}

#[test]
fn a_service_that_is_idled_no_longer_awaits_its_pods_for_a_while() {
    let mut store = complete(vec![], vec![]);
    let idled = |idled| Service { idled, ..service(1, Traffic::Cluster) };
    let awaits = |store: &Store| store.service(&service_key("a")).unwrap().1.awaits_pods();
    apply_service(&mut store, "a", idled(false));
    assert!(!awaits(&store) && store.in_grace().is_empty());
    apply_service(&mut store, "a", idled(true));
    assert!(awaits(&store) && store.in_grace().is_empty());
    apply_service(&mut store, "a", idled(false));
    assert!(awaits(&store) && store.in_grace().contains(&service_key("a")));
    apply_service(&mut store, "a", Service { affinity: Some(7), ..idled(false) });
    assert!(awaits(&store), "another change does not end it");
    let mut over = Vec::new();
    store.is_awake(&service_key("a"), &mut |key, _| over.push(key));
    assert_eq!((over, awaits(&store), store.in_grace().len()), (of(&["a"]), false, 0));
    for again in [idled(true), Service { cluster_ips: [].into(), ..idled(true) }] {
        apply_service(&mut store, "a", idled(true));
        apply_service(&mut store, "a", idled(false));
        apply_service(&mut store, "a", again);
        assert!(store.in_grace().is_empty());
    }
    apply_service(&mut store, "a", idled(false));
    observe(&mut store, WatchEvent::Services(Seen::Deleted(service_key("a"))));
    assert!(store.in_grace().is_empty());
}

/// A Service of this age with an address of `externalIPs`.
fn external(created: i64, last: u8, external: &str) -> Service {
    let uid = format!("u{created}").into();
    Service {
        created,
        uid,
        external_ips: [external.parse().unwrap()].into(),
        ..service(last, Traffic::Cluster)
    }
}

fn told(store: &mut Store) -> Vec<String> {
    let troubles = store.take_problems().into_iter();
    troubles.map(|trouble| format!("{} {}", trouble.object, trouble.reason)).collect()
}

/// Which of two load balancers with the same address OVN used depended on the order of its flows.
#[test]
fn the_younger_of_two_services_with_an_address_serves_once_the_older_one_has_gone() {
    let mut store = Store::new(ClusterConfig::default());
    assert_eq!(apply_service(&mut store, "young", external(2, 7, "198.51.100.7")), of(&["young"]));
    assert_eq!(told(&mut store), [""; 0]);
    let served = |store: &Store, name: &str| {
        let key = service_key(name);
        let (service, _) = store.service(&key).unwrap();
        store.served_addresses(&key, service, &service.ports[0]).count() - service.cluster_ips.len()
    };
    assert_eq!(served(&store, "young"), 1);
    assert_eq!(
        apply_service(&mut store, "old", external(1, 8, "198.51.100.7")),
        of(&["old", "young"])
    );
    assert_eq!(told(&mut store), ["service shop/young AddressTaken"]);
    assert_eq!((served(&store, "young"), served(&store, "old")), (0, 1));
    let gone = WatchEvent::Services(Seen::Deleted(service_key("old")));
    assert_eq!(observe(&mut store, gone), of(&["old", "young"]));
    assert_eq!(served(&store, "young"), 1);
    // A change that does not concern the address is that Service's alone.
    apply_service(&mut store, "old", external(1, 8, "198.51.100.7"));
    let other = Service { affinity: Some(5), ..external(1, 8, "198.51.100.7") };
    assert_eq!(apply_service(&mut store, "old", other), of(&["old"]));
}

#[test]
fn a_service_with_an_address_of_a_node_in_external_ips_is_told_of_and_served_once_no_node_has_it() {
    let mut store = Store::new(ClusterConfig::default());
    let node = |address: &str| {
        let own_addresses = vec![address.parse().unwrap()];
        WatchEvent::Nodes(Seen::Applied(Node { own_addresses, ..Node::named("n9") }))
    };
    observe(&mut store, node("192.0.2.9"));
    apply_service(&mut store, "thief", external(1, 7, "192.0.2.9"));
    assert_eq!(told(&mut store), ["service shop/thief ReservedAddress"]);
    let concerned = observe(&mut store, node("192.0.2.10"));
    assert!(of(&["thief"]).iter().all(|key| concerned.contains(key)), "{concerned:?}");
    assert_eq!(told(&mut store), [""; 0]);
}

#[test]
fn the_youngest_services_of_a_namespace_beyond_its_limits_have_no_ports_and_are_told_of() {
    let mut store = Store::new(ClusterConfig::default());
    let large = |last: u8| {
        let mut large = external(last.into(), last, "198.51.100.7");
        let port = large.ports[0].clone();
        large.external_ips = [].into();
        large.ports =
            (1..=4000).map(|number| ServicePort { port: number, ..port.clone() }).collect();
        large
    };
    for (name, created) in [("c", 3), ("b", 2)] {
        apply_service(&mut store, name, large(created));
    }
    assert_eq!(told(&mut store), [""; 0]);
    assert_eq!(apply_service(&mut store, "a", large(1)), of(&["a", "c"]));
    assert_eq!(told(&mut store), ["service shop/c TooLarge"]);
    let ports = |store: &Store, name: &str| {
        let key = service_key(name);
        store.served_ports(&key, store.service(&key).unwrap().0).len()
    };
    assert_eq!(["a", "b", "c"].map(|name| ports(&store, name)), [4000, 4000, 0]);
}

/// Each NodePort had a row for each of the 1,024 addresses that one kubelet's credential may write.
#[test]
fn of_a_node_with_many_addresses_eight_have_node_ports_its_own_ones_first_and_it_is_told_of() {
    let host_addresses: Vec<IpAddr> =
        (1..=200).map(|last| IpAddr::from([10, 0, 0, last])).collect();
    let own_addresses = vec![host_addresses[150]];
    let many = Node { host_addresses, own_addresses, ..node("n1", "10.244.1.0/24") };
    let addresses = many.node_port_addresses(Family::V4);
    assert_eq!(addresses.len(), 8);
    assert!(addresses.contains(&many.own_addresses[0]) && addresses.is_sorted());
    let mut store = Store::new(ClusterConfig::default());
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(many)));
    let told: Vec<&str> = store.take_problems().iter().map(|trouble| trouble.reason).collect();
    assert_eq!(told, ["TooLarge"]);
}
