//! What nodes say of themselves: subnets, which two may claim, and what is lost for a moment.

use super::*;

#[test]
fn pods_keep_their_addresses_when_their_node_gets_another_subnet() {
    let mut store = complete(vec![node("n1", "10.244.1.0/29")], vec![]);
    for name in ["a", "b", "c", "d", "e"] {
        apply(&mut store, name, pod(name));
    }
    let keys = observe(&mut store, WatchEvent::Nodes(Seen::Applied(node("n1", "10.244.9.0/29"))));
    let pods = ["a", "b", "c", "d", "e"].map(|name| Key::Pod(key(name)));
    assert_eq!(keys, [&[Key::Node("n1".into())], &pods[..]].concat());
    assert_eq!(
        (address(&store, "a").unwrap(), address(&store, "e").unwrap()),
        ("10.244.1.3/29".to_owned(), "10.244.9.3/29".to_owned())
    );
}

#[test]
fn a_subnet_that_two_nodes_claim_is_still_the_others_when_one_goes() {
    let mut store =
        complete(vec![node("n1", "10.244.1.0/29"), node("n2", "10.244.1.0/29")], vec![]);
    for name in ["a", "b", "c", "d", "e"] {
        apply(&mut store, name, pod(name));
    }
    observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n2".into())));
    delete(&mut store, "a");
    assert_eq!(settle(&mut store, "a"), changed("e"));
    apply(
        &mut store,
        "f",
        Pod { reported: Reported::AsAnnotated, ..claiming("f", "10.244.1.1/29") },
    );
    let (_, trouble) = store.troubles().next().unwrap();
    assert!(
        matches!(trouble, PodProblem::Claim(ClaimProblem::AddressReserved { .. })),
        "{trouble:?}"
    );
}

#[test]
fn a_node_whose_disabled_gateway_is_not_mentioned_any_more_has_none() {
    let disabled = || Node { gateway: Some(GatewayMode::Disabled), ..Node::named("n1") };
    let mut node = Node::named("n1");
    node.keep(&disabled());
    assert_eq!(node.gateway, None);
    let shared = Node { gateway: Some(GatewayMode::Shared), ..Node::named("n1") };
    node.keep(&shared);
    assert_eq!(node.gateway, Some(GatewayMode::Shared), "it may be lost for a moment");
}

/// A typo in an annotation, or a moment without it, took the node off the network with all of its
/// pods.
#[test]
fn a_node_keeps_what_it_said_before_when_its_annotations_are_lost_or_cannot_be_read() {
    let named = || Node {
        chassis: Some("c1".to_owned()),
        zone: Some(Zone::default()),
        id: Some(7),
        ..node("n1", "10.244.1.0/24")
    };
    let mut store = complete(vec![named()], vec![(key("a"), pod("u1"))]);
    let unreadable = vec![Unreadable { annotation: ZONE, why: "no".to_owned() }];
    let mac = "0a:58:00:00:00:01".parse().unwrap();
    for lost in [Node::named("n1"), Node { unreadable, ..Node::named("n1") }] {
        assert_eq!(observe(&mut store, WatchEvent::Nodes(Seen::Applied(lost.clone()))), []);
        let now = store.node("n1").unwrap();
        assert_eq!(Node { unreadable: vec![], ..now.clone() }, named());
        assert!(store.is_local("n1") && store.kept(&Key::Node("n1".into())) == Kept::NOTHING);
    }
    let told: Vec<String> = store.take_problems().into_iter().map(|trouble| trouble.note).collect();
    let unreadable = NodeProblem::UnreadableAnnotation { annotation: ZONE, why: "no".to_owned() };
    assert_eq!(told, [unreadable.to_string()]);
    // A readable change counts; another node of the same name inherits nothing.
    let far =
        Node { zone: Some(Zone("far".to_owned())), management_mac: Some(mac), ..Node::named("n1") };
    let keys = observe(&mut store, WatchEvent::Nodes(Seen::Applied(far)));
    assert_eq!(keys, [Key::Gateway("n1".into()), Key::Node("n1".into()), Key::Pod(key("a"))]);
    assert!(!store.is_local("n1") && store.kept(&Key::Pod(key("a"))) == Kept::NOTHING);
    observe(
        &mut store,
        WatchEvent::Nodes(Seen::Applied(Node { uid: "another".into(), ..Node::named("n1") })),
    );
    assert_eq!(store.node("n1").unwrap().subnets, vec![]);
}

/// Two nodes with one subnet had two equal networks on the cluster's router; a node may write its
/// own annotations.
#[test]
fn a_subnet_belongs_to_the_node_that_has_it_or_to_the_older_one_and_then_to_the_next() {
    let at = |name: &str, created: i64, subnet: &str| Node { created, ..node(name, subnet) };
    let mut store = complete(
        vec![
            at("young", 2, "10.244.1.0/24"),
            at("old", 1, "10.244.1.0/24"),
            at("third", 3, "10.244.3.0/24"),
        ],
        vec![],
    );
    let subnets = |store: &Store, name: &str| store.node(name).unwrap().subnets.clone();
    assert_eq!(
        (subnets(&store, "old"), subnets(&store, "young")),
        (vec![net("10.244.1.0/24")], vec![])
    );
    let told = |store: &mut Store| {
        store
            .take_problems()
            .into_iter()
            .map(|trouble| trouble.object.name().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&mut store), ["young"]);
    // A claim of a supernet: the node keeps the subnet that it has.
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(at("third", 3, "10.244.0.0/16"))));
    assert_eq!(
        (subnets(&store, "third"), told(&mut store)),
        (vec![net("10.244.3.0/24")], vec!["third".to_owned()])
    );
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(at("young", 2, "10.244.1.0/24"))));
    assert_eq!(told(&mut store), Vec::<String>::new(), "it is told once");
    let keys = observe(&mut store, WatchEvent::Nodes(Seen::Deleted("old".into())));
    assert!(keys.contains(&Key::Node("young".into())), "{keys:?}");
    assert_eq!(
        (subnets(&store, "young"), subnets(&store, "third")),
        (vec![net("10.244.1.0/24")], vec![net("10.244.3.0/24")])
    );
    observe(&mut store, WatchEvent::Nodes(Seen::Deleted("young".into())));
    assert_eq!(subnets(&store, "third"), [net("10.244.0.0/16")]);
}

fn gateway_of(interface: &str) -> Option<Box<contract::node_annotation::Gateway>> {
    let external = contract::node_annotation::Gateway {
        interface: interface.to_owned(),
        mac: "52:54:00:00:00:01".parse().unwrap(),
        addresses: vec!["172.30.0.1/24".parse().unwrap()],
        next_hops: Vec::new(),
        vlan: None,
    };
    Some(Box::new(external))
}

fn with_gateway(name: &str, subnet: &str, id: u16, chassis: &str, created: i64) -> Node {
    Node {
        uid: format!("uid-{name}").into(),
        id: Some(id),
        chassis: Some(chassis.to_owned()),
        created,
        gateway: Some(GatewayMode::Shared),
        external: gateway_of(&format!("br-ex_{name}")),
        ..node(name, subnet)
    }
}

/// What nodes were told since the last time.
fn told(store: &mut Store) -> Vec<(String, &'static str)> {
    let troubles = store.take_problems().into_iter();
    troubles.map(|trouble| (trouble.object.name().to_owned(), trouble.reason)).collect()
}

/// With another name there, whoever may patch a node took a pod's port, or another node's bridge.
#[test]
fn a_gateway_whose_interface_is_not_its_nodes_bridge_counts_as_unreadable() {
    for interface in ["kube-system_coredns-x", "br-ex_n2", "_n1", "n1", "br-exn1", ""] {
        let bad = Node {
            external: gateway_of(interface),
            ..with_gateway("n1", "10.244.1.0/24", 2, "c1", 1)
        };
        let mut store = complete(vec![bad], vec![]);
        assert_eq!(told(&mut store), [("n1".to_owned(), "UnreadableAnnotation")], "{interface}");
        assert!(store.gateway("n1").is_none());
        assert_eq!(
            store.kept(&Key::Gateway("n1".into())),
            Kept::ALL,
            "it is not known, and not gone"
        );
    }
    // What it said before stays in force.
    let mut store = complete(vec![with_gateway("n1", "10.244.1.0/24", 2, "c1", 1)], vec![]);
    let bad = Node {
        external: gateway_of("br-ex_n2"),
        ..with_gateway("n1", "10.244.1.0/24", 2, "c1", 1)
    };
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(bad)));
    assert_eq!(told(&mut store), [("n1".to_owned(), "UnreadableAnnotation")]);
    assert_eq!(store.gateway("n1").unwrap().external.interface, "br-ex_n1");
}

/// A node that named another's chassis had its gateway router bound there, and the NodePorts of it.
#[test]
fn a_chassis_is_that_of_the_node_that_had_it_and_both_are_told() {
    let [victim, thief] = [("victim", 2), ("a-thief", 1)].map(|(name, created)| {
        let number = u8::try_from(created).unwrap();
        let subnet = format!("10.244.{number}.0/24");
        with_gateway(name, &subnet, u16::from(number) + 1, &format!("c-{name}"), created)
    });
    let stolen = Node { chassis: victim.chassis.clone(), ..thief.clone() };
    let mut store = complete(vec![victim.clone(), thief], vec![]);
    assert_eq!(told(&mut store), []);
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(stolen.clone())));
    let both = [("victim".to_owned(), "ChassisClaimed"), ("a-thief".to_owned(), "ChassisTaken")];
    assert_eq!(told(&mut store), both);
    assert_eq!(store.gateway("victim").unwrap().chassis, "c-victim");
    assert!(store.gateway("a-thief").is_none() && store.node("a-thief").unwrap().chassis.is_none());
    assert_eq!(store.kept(&Key::Gateway("a-thief".into())), Kept::NOTHING);
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(stolen.clone())));
    assert_eq!(told(&mut store), [], "once");

    // At a start the thief is the older one: the database knows whose the chassis was.
    for found in [true, false] {
        let mut store = Store::new(config());
        if found {
            store.found_chassis_of("victim".into(), "c-victim".to_owned());
        }
        observe(&mut store, WatchEvent::Nodes(Seen::All(vec![stolen.clone(), victim.clone()])));
        let has = |name| store.node(name).unwrap().chassis.is_some();
        assert_eq!((has("victim"), has("a-thief")), (found, !found));
    }
}

/// With two Node objects for one machine there were two gateways on its chassis, and the NodePorts
/// of the one that sorts first.
#[test]
fn a_renamed_node_has_the_chassis_once_its_former_name_is_unreachable_or_deleted() {
    let old = with_gateway("a-old", "10.244.1.0/24", 2, "c", 1);
    let new = with_gateway("b-new", "10.244.2.0/24", 3, "c", 2);
    let silent = Node { is_unreachable: true, ..old.clone() };
    for (end, is_deleted) in [(Seen::Deleted("a-old".into()), true), (Seen::Applied(silent), false)]
    {
        let mut store = complete(vec![old.clone(), new.clone()], vec![]);
        assert!(store.gateway("a-old").is_some() && store.gateway("b-new").is_none());
        let keys = observe(&mut store, WatchEvent::Nodes(end));
        assert_eq!(store.gateway("b-new").unwrap().chassis, "c");
        assert!(store.gateway("a-old").is_none(), "no two gateways on a chassis");
        assert_eq!(store.kept(&Key::Gateway("a-old".into())), Kept::NOTHING);
        for key in
            [Key::Gateway("a-old".into()), Key::Gateway("b-new".into()), Key::Node("b-new".into())]
        {
            assert!(keys.contains(&key), "{key}: {keys:?}");
        }
        // A node that was merely silent has its chassis back. One that was deleted and joins anew
        // does not.
        observe(&mut store, WatchEvent::Nodes(Seen::Applied(old.clone())));
        let has = |name| store.gateway(name).is_some();
        assert_eq!((has("a-old"), has("b-new")), (!is_deleted, is_deleted));
    }
}

/// The annotation was believed, so that a node could have another's address, and the routes to it.
#[test]
fn the_address_on_the_join_switch_follows_from_the_number_and_only_one_node_has_it() {
    let joins = |store: &Store, name: &str| store.gateway(name).map(|gateway| gateway.join.clone());
    let other = vec!["100.64.0.7/16".parse().unwrap()];
    let lies = Node { join: other.clone(), ..with_gateway("n1", "10.244.1.0/24", 2, "c1", 1) };
    let mut store = complete(vec![lies], vec![]);
    assert_eq!(joins(&store, "n1"), Some(vec!["100.64.0.2/16".parse().unwrap()]));

    let same = with_gateway("n2", "10.244.2.0/24", 2, "c2", 0);
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(same)));
    assert_eq!(told(&mut store), [("n2".to_owned(), "JoinAddressTaken")]);
    assert!(joins(&store, "n1").is_some() && joins(&store, "n2").is_none());
    let without_number = Node {
        id: None,
        join: vec!["100.64.0.2/16".parse().unwrap()],
        ..with_gateway("n3", "10.244.3.0/24", 9, "c3", 3)
    };
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(without_number)));
    assert_eq!(joins(&store, "n3"), None, "nor by its annotation");
    let keys = observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n1".into())));
    assert!(joins(&store, "n2").is_some() && keys.contains(&Key::Gateway("n2".into())), "{keys:?}");
}

#[test]
fn a_node_with_the_taint_of_the_node_lifecycle_controller_is_unreachable() {
    let is_unreachable = |spec: &str| {
        let text = format!(r#"{{"metadata": {{"name": "n1"}}, "spec": {spec}}}"#);
        serde_json::from_str::<crate::kinds::node::wire::NodeObject>(&text)
            .unwrap()
            .into_node()
            .is_unreachable
    };
    let taint =
        |key: &str| format!(r#"{{"taints": [{{"key": "a", "effect": "x"}}, {{"key": "{key}"}}]}}"#);
    assert!(is_unreachable(&taint("node.kubernetes.io/unreachable")));
    // Its kubelet says so itself.
    assert!(!is_unreachable(&taint("node.kubernetes.io/not-ready")));
    assert!(!is_unreachable(r#"{"taints": null}"#) && !is_unreachable("{}"));
}
