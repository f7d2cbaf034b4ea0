//! What nodes say of themselves: subnets, which two may claim, and what is lost for a moment.

use super::*;

#[test]
fn pods_keep_their_addresses_when_their_node_gets_another_subnet() {
    let mut store = complete(vec![node("n1", "10.244.1.0/29")], vec![]);
    for name in ["a", "b", "c", "d", "e"] {
        apply(&mut store, name, pod(name));
    }
    let keys = observe(&mut store, Observation::Nodes(Seen::Applied(node("n1", "10.244.9.0/29"))));
    let pods = ["a", "b", "c", "d", "e"].map(|name| Key::Pod(key(name)));
    assert_eq!(keys, [&[Key::Node("n1".into())], &pods[..]].concat());
    assert_eq!(
        (address(&store, "a").unwrap(), address(&store, "e").unwrap()),
        ("10.244.1.3/29".to_owned(), "10.244.9.3/29".to_owned())
    );
}

#[test]
fn a_subnet_that_two_nodes_claim_is_still_the_others_when_one_goes() {
    let mut store = complete(vec![node("n1", "10.244.1.0/29"), node("n2", "10.244.1.0/29")], vec![]);
    for name in ["a", "b", "c", "d", "e"] {
        apply(&mut store, name, pod(name));
    }
    observe(&mut store, Observation::Nodes(Seen::Deleted("n2".into())));
    delete(&mut store, "a");
    assert_eq!(settle(&mut store, "a"), changed("e"));
    apply(&mut store, "f", Pod { reported: Reported::AsAnnotated, ..claiming("f", "10.244.1.1/29") });
    let (_, trouble) = store.troubles().next().unwrap();
    assert!(matches!(trouble, PodTrouble::Claim(ClaimTrouble::AddressReserved { .. })), "{trouble:?}");
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

/// A typo in an annotation, or a moment without it, took the node off the network with all of its pods.
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
        assert_eq!(observe(&mut store, Observation::Nodes(Seen::Applied(lost.clone()))), []);
        let now = store.node("n1").unwrap();
        assert_eq!(Node { unreadable: vec![], ..now.clone() }, named());
        assert!(store.is_local("n1") && store.kept(&Key::Node("n1".into())) == Kept::NOTHING);
    }
    let told: Vec<NodeTrouble> = store.take_node_troubles().into_iter().map(|trouble| trouble.why).collect();
    assert_eq!(told, [NodeTrouble::UnreadableAnnotation { annotation: ZONE, why: "no".to_owned() }]);
    // A readable change counts; another node of the same name inherits nothing.
    let far = Node { zone: Some(Zone("far".to_owned())), management_mac: Some(mac), ..Node::named("n1") };
    let keys = observe(&mut store, Observation::Nodes(Seen::Applied(far)));
    assert_eq!(keys, [Key::Gateway("n1".into()), Key::Node("n1".into()), Key::Pod(key("a"))]);
    assert!(!store.is_local("n1") && store.kept(&Key::Pod(key("a"))) == Kept::NOTHING);
    observe(
        &mut store,
        Observation::Nodes(Seen::Applied(Node { uid: "another".into(), ..Node::named("n1") })),
    );
    assert_eq!(store.node("n1").unwrap().subnets, vec![]);
}

/// Two nodes with one subnet had two equal networks on the cluster's router; a node may write its own
/// annotations.
#[test]
fn a_subnet_belongs_to_the_node_that_has_it_or_to_the_older_one_and_then_to_the_next() {
    let at = |name: &str, created: i64, subnet: &str| Node { created, ..node(name, subnet) };
    let mut store = complete(
        vec![at("young", 2, "10.244.1.0/24"), at("old", 1, "10.244.1.0/24"), at("third", 3, "10.244.3.0/24")],
        vec![],
    );
    let subnets = |store: &Store, name: &str| store.node(name).unwrap().subnets.clone();
    assert_eq!((subnets(&store, "old"), subnets(&store, "young")), (vec![net("10.244.1.0/24")], vec![]));
    let told = |store: &mut Store| {
        store.take_node_troubles().into_iter().map(|trouble| trouble.subject.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut store), ["young"]);
    // A claim of a supernet: the node keeps the subnet that it has.
    observe(&mut store, Observation::Nodes(Seen::Applied(at("third", 3, "10.244.0.0/16"))));
    assert_eq!(
        (subnets(&store, "third"), told(&mut store)),
        (vec![net("10.244.3.0/24")], vec!["third".to_owned()])
    );
    observe(&mut store, Observation::Nodes(Seen::Applied(at("young", 2, "10.244.1.0/24"))));
    assert_eq!(told(&mut store), Vec::<String>::new(), "it is told once");
    let keys = observe(&mut store, Observation::Nodes(Seen::Deleted("old".into())));
    assert!(keys.contains(&Key::Node("young".into())), "{keys:?}");
    assert_eq!(
        (subnets(&store, "young"), subnets(&store, "third")),
        (vec![net("10.244.1.0/24")], vec![net("10.244.3.0/24")])
    );
    observe(&mut store, Observation::Nodes(Seen::Deleted("young".into())));
    assert_eq!(subnets(&store, "third"), [net("10.244.0.0/16")]);
}
