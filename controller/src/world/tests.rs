use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use contract::{
    annotation::{POD_NETWORKS, PodNetwork},
    names::Network,
    node_annotation::ZONE,
};
use ipnet::IpNet;
use kubeapi::{
    object::Object,
    services::{Condition, Endpoint, Hints, Service, ServicePort, Slice, SlicePort, Traffic},
};
use proptest::{prop_assert, test_runner::TestCaseError};

use crate::{
    allocate::pod_network::Assigned,
    config::{ClusterSubnet, Interconnect},
    key::{Dirty, NodeName, Scope},
    kinds::{
        cluster_policy::{object::ClusterPolicy, problem::ClusterPolicyProblem, state::Placement},
        desired,
        egress_firewall::object::EgressFirewall,
        namespace::object::Namespace,
        network_policy::object::Policy,
        node::{
            object::{Node, Unreadable},
            problem::NodeProblem,
        },
        pod::{
            foreign::ForeignAddress,
            found::FoundPort,
            object::{Annotated, NamedPort, Phase, Pod, Reported, Spelled, Texts},
            problem::{ClaimProblem, PodProblem},
        },
    },
    rows::{RowSet, acl::Tiers},
    select::names::DnsName,
    status_writeback::RowsState,
    watch_event::{Seen, WatchEvent},
};

use super::*;

mod claims;
mod cluster_policies;
mod conditions;
mod doubts;
mod egress_firewalls;
mod egress_qoses;
mod foreign;
mod history;
mod multicast;
mod named_ports;
mod node_addresses;
mod nodes;
mod ranges;
mod services;
mod sets;

fn config() -> ClusterConfig {
    ClusterConfig {
        cluster_subnets: vec![ClusterSubnet { cidr: net("10.244.0.0/16"), host_length: 24 }],
        service_cidrs: vec![net("10.96.0.0/16")],
        ..ClusterConfig::default()
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn key(name: &str) -> PodKey {
    PodKey::new("shop", name).unwrap()
}

fn node(name: &str, subnet: &str) -> Node {
    Node { subnets: vec![net(subnet)], ..Node::named(name) }
}

fn pod(uid: &str) -> Pod {
    Pod { node: Some("n1".into()), ..Pod::with_uid(uid) }
}

fn claiming(uid: &str, address: &str) -> Pod {
    let mac = contract::mac::Mac::from_ip(net(address).addr());
    annotated(
        pod(uid),
        &format!(r#"{{"default":{{"mac_address":"{mac}","ip_addresses":["{address}"]}}}}"#),
    )
}

/// Pod `podN` is there, with an address.
fn numbered_pod(number: u8) -> WatchEvent {
    let name = format!("pod{number}");
    let pod = claiming(&name, &format!("10.244.1.{}/24", number + 3));
    WatchEvent::Pods(Seen::Applied((key(&name), pod)))
}

fn numbered_pod_gone(number: u8) -> WatchEvent {
    WatchEvent::Pods(Seen::Deleted(key(&format!("pod{number}"))))
}

/// The pod after this text has been written on it.
fn annotated(pod: Pod, text: &str) -> Pod {
    let network = PodNetwork::parse(text, &Network::Default).unwrap().unwrap();
    Pod {
        annotated: Annotated::Network {
            network: Arc::new(network.into()),
            spelled: Spelled::Current,
        },
        ..pod
    }
}

/// Lets the store observe, and returns the keys that it concerns, each once.
fn observe(store: &mut Store, observation: WatchEvent) -> Vec<Key> {
    dirtied(|dirty| store.observe(observation, dirty))
}

/// The keys that a change concerns, each once, in the order of their first appearance.
fn dirtied(change: impl FnOnce(&mut dyn FnMut(Key, Scope))) -> Vec<Key> {
    let mut keys = Vec::new();
    change(&mut |key, scope| {
        assert_eq!(scope, Scope::Whole, "{key}");
        if !keys.contains(&key) {
            keys.push(key);
        }
    });
    keys
}

fn complete(nodes: Vec<Node>, pods: Vec<(PodKey, Pod)>) -> Store {
    let mut store = Store::new(config());
    observe(&mut store, WatchEvent::Nodes(Seen::All(nodes)));
    observe(&mut store, WatchEvent::Pods(Seen::All(pods)));
    without_services(&mut store);
    store
}

/// That of the pods.
fn namespaces() -> WatchEvent {
    WatchEvent::Namespaces(Seen::All(vec![("shop".into(), Namespace::default())]))
}

/// The API server has no Services.
fn without_services(store: &mut Store) {
    observe(store, WatchEvent::Services(Seen::All(Vec::new())));
    observe(store, WatchEvent::Slices(Seen::All(Vec::new())));
    observe(store, namespaces());
    observe(store, WatchEvent::Policies(Seen::All(Vec::new())));
    WatchEvent::no_optional_kinds().into_iter().for_each(|list| drop(observe(store, list)));
}

fn apply(store: &mut Store, name: &str, pod: Pod) -> Vec<Key> {
    observe(store, WatchEvent::Pods(Seen::Applied((key(name), pod))))
}

fn delete(store: &mut Store, name: &str) -> Vec<Key> {
    observe(store, WatchEvent::Pods(Seen::Deleted(key(name))))
}

fn settle(store: &mut Store, name: &str) -> Vec<Key> {
    dirtied(|dirty| store.settled(&Key::Pod(key(name)), dirty))
}

fn rows(store: &Store) -> BTreeMap<Key, RowSet> {
    store.keys().map(|key| (key.clone(), desired(store, &key))).collect()
}

/// Every key whose rows the events change is dirty then.
fn changed_rows_are_dirty<E: Debug + Clone>(
    events: Vec<E>,
    happen: impl Fn(&mut Store, E, &mut Dirty<'_>),
) -> Result<(), TestCaseError> {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    for event in events {
        changed_rows_are_dirty_after(&mut store, event, &happen)?;
    }
    Ok(())
}

/// The same after one event. Returns the rows that there are then.
fn changed_rows_are_dirty_after<E: Debug + Clone>(
    store: &mut Store,
    event: E,
    happen: impl Fn(&mut Store, E, &mut Dirty<'_>),
) -> Result<BTreeMap<Key, RowSet>, TestCaseError> {
    let before = rows(store);
    let mut dirty = BTreeSet::new();
    happen(store, event.clone(), &mut |key, _| {
        dirty.insert(key);
    });
    let after = rows(store);
    rows_differ_only_of(&dirty, &before, &after, &event)?;
    Ok(after)
}

/// Every key whose rows differ is one of those that are dirty.
fn rows_differ_only_of(
    dirty: &BTreeSet<Key>,
    before: &BTreeMap<Key, RowSet>,
    after: &BTreeMap<Key, RowSet>,
    cause: &dyn Debug,
) -> Result<(), TestCaseError> {
    let none = RowSet::new();
    for key in before.keys().chain(after.keys()) {
        let [was, is] = [before, after].map(|rows| rows.get(key).unwrap_or(&none));
        prop_assert!(was == is || dirty.contains(key), "{key} after {cause:?}: {was:#?} {is:#?}");
    }
    Ok(())
}

fn address(store: &Store, name: &str) -> Option<String> {
    store.assigned(&key(name)).map(|network| network.addresses[0].to_string())
}

fn changed(name: &str) -> Vec<Key> {
    vec![Key::Pod(key(name))]
}

#[test]
fn a_pod_gets_an_address_an_annotation_and_no_second_one() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    assert_eq!(apply(&mut store, "a", pod("u1")), changed("a"));
    let [annotation] = &store.take_annotations()[..] else { panic!("one annotation") };
    assert_eq!((&annotation.pod, &*annotation.uid), (&key("a"), "u1"));
    let annotations = annotation.annotations();
    assert_eq!(
        annotations[POD_NETWORKS],
        r#"{"default":{"ip_addresses":["10.244.1.3/24"],"mac_address":"0a:58:0a:f4:01:03","gateway_ips":["10.244.1.1"],"routes":[{"dest":"10.244.0.0/16","nextHop":"10.244.1.1"},{"dest":"10.96.0.0/16","nextHop":"10.244.1.1"},{"dest":"169.254.169.5/32","nextHop":"10.244.1.1"},{"dest":"100.64.0.0/16","nextHop":"10.244.1.1"}],"ip_address":"10.244.1.3/24","gateway_ip":"10.244.1.1","role":"primary"}}"#
    );
    let (before, after) =
        (Pod { created: 1, ..pod("u1") }, annotated(pod("u1"), &annotations[POD_NETWORKS]));
    assert_eq!(
        apply(&mut store, "a", before.clone()),
        [],
        "as it was before the annotation arrived"
    );
    assert_eq!(apply(&mut store, "a", after), [], "with the annotation");
    assert_eq!(store.take_annotations(), []);
    assert_eq!(apply(&mut store, "a", before), [], "the annotation was removed");
    assert_eq!(store.take_annotations().len(), 1);
    assert_eq!(address(&store, "a").unwrap(), "10.244.1.3/24");
}

/// A patch that was decided on annotations that have changed since is not applied, so it has to be
/// decided again.
#[test]
fn a_network_is_written_again_when_the_annotations_that_it_is_written_over_have_changed() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    let written = |store: &mut Store, pod: Pod| {
        apply(store, "a", pod);
        store.take_annotations().into_iter().map(|annotation| annotation.over).collect::<Vec<_>>()
    };
    let with = |texts: &[(&'static str, &str)]| {
        Texts::These(Arc::new(
            texts.iter().map(|(name, text)| (*name, (*text).to_owned())).collect(),
        ))
    };
    assert_eq!(written(&mut store, pod("u1")), [Texts::NoneAtAll]);
    assert_eq!(
        written(&mut store, Pod { created: 1, ..pod("u1") }),
        [],
        "another part of the pod has changed"
    );
    assert_eq!(
        written(&mut store, Pod { texts: with(&[]), ..pod("u1") }),
        [with(&[])],
        "another annotation has come"
    );
    let wrong = Pod {
        annotated: Annotated::Unusable("no".to_owned()),
        texts: with(&[(POD_NETWORKS, "no")]),
        ..pod("u1")
    };
    assert_eq!(written(&mut store, wrong.clone()), [with(&[(POD_NETWORKS, "no")])]);
    let text = store
        .assigned(&key("a"))
        .unwrap()
        .network(&store.config)
        .unwrap()
        .write(&Network::Default, None)
        .unwrap();
    let right = Pod { texts: with(&[(POD_NETWORKS, &text)]), ..annotated(pod("u1"), &text) };
    assert_eq!(written(&mut store, right.clone()), []);
    assert_eq!(
        store.pod(&key("a")).unwrap().texts,
        Texts::Right,
        "a text that is not needed is not kept"
    );
    assert_eq!(written(&mut store, Pod { created: 2, ..right }), [], "it is still right");
    assert_eq!(written(&mut store, wrong), [with(&[(POD_NETWORKS, "no")])]);
}

#[test]
fn nothing_is_given_before_everything_was_read() {
    let mut store = Store::new(config());
    without_services(&mut store);
    apply(&mut store, "a", pod("u1"));
    observe(&mut store, WatchEvent::Nodes(Seen::All(vec![node("n1", "10.244.1.0/24")])));
    assert!(!store.is_complete());
    assert_eq!((address(&store, "a"), store.take_annotations()), (None, vec![]));
    let pods = vec![(key("a"), pod("u1")), (key("b"), claiming("u2", "10.244.1.3/24"))];
    let keys = observe(&mut store, WatchEvent::Pods(Seen::All(pods)));
    assert_eq!(BTreeSet::from_iter(keys), BTreeSet::from([Key::Pod(key("a")), Key::Pod(key("b"))]));
    assert_eq!(address(&store, "b").unwrap(), "10.244.1.3/24");
    assert_eq!(address(&store, "a").unwrap(), "10.244.1.4/24", "behind the highest that is in use");
}

#[test]
fn an_address_is_free_when_the_pod_is_gone_and_its_port_too() {
    let mut store = complete(vec![node("n1", "10.244.1.0/29")], vec![]);
    for name in ["a", "b", "c", "d"] {
        apply(&mut store, name, pod(name));
    }
    assert_eq!(apply(&mut store, "e", pod("e")), changed("e"), "its phase is known");
    let [trouble] = &store.take_problems()[..] else { panic!("one trouble") };
    assert_eq!(
        trouble.note,
        "no free address in 10.244.1.0/29 of node n1; pods of this node have to end first, or nodes need larger subnets"
    );
    assert_eq!(
        (trouble.reason, &trouble.object, &*trouble.uid),
        ("NoFreeAddress", &Object::Pod(key("e")), "e")
    );

    delete(&mut store, "b");
    assert_eq!(address(&store, "e"), None, "the port of b may still be there");
    assert_eq!(settle(&mut store, "b"), changed("e"));
    assert_eq!(address(&store, "e").unwrap(), "10.244.1.4/29");

    let ended = Pod { phase: Phase::Ended, ..pod("c") };
    apply(&mut store, "f", pod("f"));
    assert_eq!(apply(&mut store, "c", ended), changed("c"));
    assert_eq!(settle(&mut store, "c"), changed("f"));
    assert_eq!(address(&store, "f").unwrap(), "10.244.1.5/29");
    assert_eq!(store.troubles().count(), 0);
}

#[test]
fn a_pod_that_comes_again_under_its_name_gets_its_own() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    apply(&mut store, "a", pod("u1"));
    store.take_annotations();
    assert_eq!(apply(&mut store, "a", pod("u2")), changed("a"));
    assert_eq!(address(&store, "a").unwrap(), "10.244.1.4/24");
    assert_eq!(&*store.take_annotations()[0].uid, "u2");
    apply(&mut store, "b", claiming("u3", "10.244.1.3/24"));
    assert_eq!(settle(&mut store, "a"), []);
    assert_eq!(
        (address(&store, "a").unwrap(), address(&store, "b").unwrap()),
        ("10.244.1.4/24".to_owned(), "10.244.1.5/24".to_owned()),
        "the port still has the first one's address when b claims it"
    );
}

#[test]
fn a_pod_waits_for_its_nodes_subnet_and_is_woken_by_it() {
    let mut store = complete(vec![], vec![(key("a"), pod("u1"))]);
    assert!(matches!(store.troubles().next(), Some((_, PodProblem::NodeWithoutSubnet(_)))));
    assert_eq!(store.take_problems(), [], "it is the node's trouble");
    let keys = observe(&mut store, WatchEvent::Nodes(Seen::Applied(Node::named("n1"))));
    assert_eq!(keys, [Key::Node("n1".into()), Key::Pod(key("a"))]);
    let keys = observe(&mut store, WatchEvent::Nodes(Seen::Applied(node("n1", "10.244.1.0/24"))));
    assert_eq!(keys, [Key::Node("n1".into()), Key::Pod(key("a"))]);
    assert_eq!(
        (address(&store, "a").unwrap(), store.troubles().count()),
        ("10.244.1.3/24".to_owned(), 0)
    );
}

#[test]
fn a_port_found_at_the_start_keeps_its_address_until_it_is_gone() {
    let mut store = Store::new(config());
    without_services(&mut store);
    store.found_port(
        &key("gone"),
        FoundPort { uid: None, mac: None, addresses: vec!["10.244.1.3".parse().unwrap()] },
    );
    observe(&mut store, WatchEvent::Nodes(Seen::All(vec![node("n1", "10.244.1.0/29")])));
    observe(&mut store, WatchEvent::Pods(Seen::All(vec![(key("a"), pod("u1"))])));
    assert_eq!(address(&store, "a").unwrap(), "10.244.1.4/29");
    apply(&mut store, "b", claiming("u2", "10.244.1.3/29"));
    assert_eq!(
        address(&store, "b").unwrap(),
        "10.244.1.5/29",
        "it has nothing to lose, and waits for nothing"
    );
    assert_eq!(settle(&mut store, "gone"), []);
}

#[test]
fn other_zones_pods_keep_their_records_and_get_nothing_here() {
    let mut far = node("n1", "10.244.1.0/24");
    far.zone = Some(Zone("far".to_owned()));
    let mut store = complete(
        vec![far],
        vec![(key("a"), pod("u1")), (key("b"), claiming("u2", "10.244.1.9/24"))],
    );
    assert_eq!(
        (address(&store, "a"), address(&store, "b").unwrap()),
        (None, "10.244.1.9/24".to_owned())
    );
    assert_eq!((store.troubles().count(), store.take_annotations()), (0, vec![]));
    let near = Node { zone: Some(Zone::default()), ..node("n1", "10.244.1.0/24") };
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(near)));
    assert_eq!(address(&store, "a").unwrap(), "10.244.1.10/24");
}

/// Two zones gave one address to two pods.
#[test]
fn pods_of_a_node_that_moves_get_their_addresses_of_one_zone_at_a_time() {
    let at = |zone: &str, next: Option<&str>| Node {
        zone: Some(Zone(zone.to_owned())),
        next_zone: next.map(|next| Zone(next.to_owned())),
        ..node("n1", "10.244.1.0/24")
    };
    let mut store = complete(vec![at("far", None)], vec![(key("a"), pod("u1"))]);
    Arc::make_mut(&mut store.config).interconnect = Interconnect::On;
    let mut see = |node: Node| {
        observe(&mut store, WatchEvent::Nodes(Seen::Applied(node)));
        (store.is_local("n1"), address(&store, "a"), store.take_annotations().len())
    };
    assert_eq!(see(at("far", Some("global"))), (true, None, 0), "its former zone does that");
    assert_eq!(see(at("global", None)), (true, Some("10.244.1.3/24".to_owned()), 1));
    assert!(see(at("global", Some("far"))).0, "it has not gone yet");
    apply(&mut store, "b", pod("u2"));
    assert_eq!((address(&store, "b").is_some(), store.take_annotations().len()), (true, 1));
    let leaving = Node { is_leaving: true, ..at("global", None) };
    observe(&mut store, WatchEvent::Nodes(Seen::Applied(leaving)));
    apply(&mut store, "c", pod("u3"));
    assert_eq!((address(&store, "c"), store.take_annotations().len()), (None, 0));
}

#[test]
fn unusable_and_other_networks_annotations() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    apply(
        &mut store,
        "a",
        Pod { annotated: Annotated::Unusable("no address".to_owned()), ..pod("u1") },
    );
    assert_eq!(
        store.take_problems()[0].note,
        "its annotation cannot be used: no address; the annotation does not count, and the pod gets a new address"
    );
    assert_eq!(store.take_annotations().len(), 1);
    let blue = r#"{"shop/blue":{"mac_address":"0a:58:0a:00:00:09","x":1}}"#;
    apply(&mut store, "b", Pod { other_networks: Some(blue.into()), ..pod("u2") });
    let text = &store.take_annotations()[0].annotations()[POD_NETWORKS];
    assert!(text.starts_with(r#"{"default":{"ip_addresses":["10.244.1.4/24"]"#), "{text}");
    assert!(text.ends_with(r#","shop/blue":{"mac_address":"0a:58:0a:00:00:09","x":1}}"#), "{text}");
}

#[test]
fn the_legacy_annotation_is_read_and_on_request_written() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    Arc::make_mut(&mut store.config).legacy_annotations = true;
    apply(&mut store, "a", pod("u1"));
    assert_eq!(
        store.take_annotations()[0].annotations()["ovn"],
        r#"{"gateway_ip":"10.244.1.1","ip_address":"10.244.1.3/24","mac_address":"0a:58:0a:f4:01:03"}"#
    );
    Arc::make_mut(&mut store.config).legacy_annotations = false;
    let Pod { annotated: Annotated::Network { network, .. }, .. } = claiming("u2", "10.244.1.9/24")
    else {
        panic!("a claim")
    };
    apply(
        &mut store,
        "b",
        Pod { annotated: Annotated::Network { network, spelled: Spelled::Legacy }, ..pod("u2") },
    );
    let annotations = store.take_annotations()[0].annotations();
    assert_eq!(annotations.keys().copied().collect::<Vec<_>>(), [POD_NETWORKS]);
}

#[test]
fn what_a_list_does_not_name_is_gone() {
    let mut store = complete(
        vec![node("n1", "10.244.1.0/24"), node("n2", "10.244.2.0/24")],
        vec![(key("a"), pod("u1")), (key("b"), pod("u2"))],
    );
    assert_eq!(
        observe(&mut store, WatchEvent::Pods(Seen::All(vec![(key("b"), pod("u2"))]))),
        changed("a")
    );
    let keys = observe(&mut store, WatchEvent::Nodes(Seen::All(vec![node("n1", "10.244.1.0/24")])));
    assert_eq!(keys, [Key::Gateway("n2".into()), Key::Node("n2".into())]);
    assert_eq!(
        store.keys().collect::<Vec<_>>(),
        [Key::Cluster, Key::Node("n1".into()), Key::Gateway("n1".into()), Key::Pod(key("b"))]
    );
    assert_eq!(store.pods_of("n1").collect::<Vec<_>>(), [&key("b")]);
}

#[test]
fn addresses_are_given_in_turn() {
    let mut store = complete(vec![node("n1", "10.244.1.0/29")], vec![]);
    let mut given = Vec::new();
    for turn in 0..6 {
        apply(&mut store, "a", pod(&format!("u{turn}")));
        given.extend(address(&store, "a"));
        delete(&mut store, "a");
        settle(&mut store, "a");
    }
    assert_eq!(
        given,
        [
            "10.244.1.3/29",
            "10.244.1.4/29",
            "10.244.1.5/29",
            "10.244.1.6/29",
            "10.244.1.3/29",
            "10.244.1.4/29"
        ]
    );
}

#[test]
fn both_families_are_given_and_freed_together() {
    let dual = Node { subnets: vec![net("10.244.1.0/29"), net("fd00::/125")], ..Node::named("n1") };
    let mut store = complete(vec![dual], vec![]);
    for name in ["a", "b", "c", "d", "e"] {
        apply(&mut store, name, pod(name));
    }
    let both = |store: &Store, name: &str| {
        store.assigned(&key(name)).map(|network| network.addresses.clone())
    };
    assert_eq!(both(&store, "a").unwrap(), [net("10.244.1.3/29"), net("fd00::3/125")]);
    assert_eq!(both(&store, "e"), None, "there are five of IPv6 and four of IPv4");
    delete(&mut store, "b");
    assert_eq!(settle(&mut store, "b"), changed("e"));
    assert_eq!(both(&store, "e").unwrap(), [net("10.244.1.4/29"), net("fd00::7/125")]);
}

#[test]
fn who_needs_nothing_here_any_more_does_not_wait() {
    let mut store = complete(vec![], vec![(key("a"), pod("u1"))]);
    observe(
        &mut store,
        WatchEvent::Nodes(Seen::Applied(Node {
            zone: Some(Zone("far".to_owned())),
            ..Node::named("n1")
        })),
    );
    assert_eq!(store.troubles().count(), 0, "the other zone's controller gives a its address");
    let unusable =
        Pod { annotated: Annotated::Unusable("no JSON".to_owned()), ..Pod::with_uid("u2") };
    apply(&mut store, "b", unusable);
    assert_eq!(store.troubles().count(), 0, "b is not scheduled");
}

#[test]
fn what_another_wrote_over_an_annotation_on_its_way_is_corrected() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![]);
    apply(&mut store, "a", pod("u1"));
    assert_eq!(store.take_annotations().len(), 1);
    apply(&mut store, "a", claiming("u1", "10.244.1.77/24"));
    assert_eq!(store.take_annotations().len(), 1);
    apply(&mut store, "a", Pod { created: 1, ..claiming("u1", "10.244.1.77/24") });
    assert_eq!(store.take_annotations(), [], "it is on its way");
    assert_eq!(address(&store, "a").unwrap(), "10.244.1.3/24");
}

#[test]
fn what_is_not_known_at_the_start_leaves_rows_as_they_are() {
    let unreadable = vec![Unreadable { annotation: ZONE, why: "no".to_owned() }];
    let nodes = vec![
        Node::named("n1"),
        Node { unreadable, ..node("n2", "10.244.2.0/24") },
        node("n3", "10.244.3.0/24"),
        Node { chassis: Some("c4".to_owned()), ..node("n4", "10.244.4.0/24") },
        Node { zone: Some(Zone("far".to_owned())), ..Node::named("n5") },
    ];
    let pods = (1..=6)
        .map(|n| (key(&format!("p{n}")), Pod { node: Some(format!("n{n}").into()), ..pod("u1") }))
        .collect();
    let store = complete(nodes, pods);
    let kept = |n: u32| {
        (
            store.kept(&Key::Node(format!("n{n}").into())),
            store.kept(&Key::Pod(key(&format!("p{n}")))),
        )
    };
    assert_eq!(kept(1), (Kept::ALL, Kept::ALL), "no subnet");
    assert_eq!(kept(2), (Kept::ALL, Kept::ALL), "a zone that cannot be read");
    assert_eq!(kept(3), (Kept::ROUTER_PORT, Kept::NOTHING), "no chassis");
    assert_eq!(
        [kept(4), kept(5), kept(6)],
        [(Kept::NOTHING, Kept::NOTHING); 3],
        "known; elsewhere; gone"
    );
    assert_eq!(store.assigned(&key("p2")), None, "nothing is given before the zone is known");
}

/// A running pod whose annotation was lost or garbled got another address at the next start of the
/// controller, or none.
#[test]
fn a_running_pod_whose_annotation_is_lost_has_what_its_port_has() {
    let found = |uid: &str, address: &str| FoundPort {
        uid: Some(uid.into()),
        mac: Some("0a:58:0a:f4:01:99".parse().unwrap()),
        addresses: vec![address.parse().unwrap()],
    };
    let unusable = || Pod { annotated: Annotated::Unusable("no".to_owned()), ..pod("u1") };
    let start = |port: FoundPort, pod: Pod| {
        let mut store = Store::new(config());
        without_services(&mut store);
        store.found_port(&key("a"), port);
        observe(&mut store, WatchEvent::Nodes(Seen::All(vec![node("n1", "10.244.1.0/24")])));
        observe(&mut store, WatchEvent::Pods(Seen::All(vec![(key("a"), pod)])));
        store
    };
    for lost in [pod("u1"), unusable()] {
        let mut store = start(found("u1", "10.244.1.77"), lost);
        assert_eq!(address(&store, "a").unwrap(), "10.244.1.77/24");
        let written = &store.take_annotations()[0].annotations()[POD_NETWORKS];
        assert!(
            written.contains("10.244.1.77/24") && written.contains("0a:58:0a:f4:01:99"),
            "{written}"
        );
        assert_eq!(store.take_problems(), []);
    }
    // The port of its predecessor, one with a reserved address, and one with an address of another
    // node.
    for (port, given) in [
        (found("u0", "10.244.1.77"), "10.244.1.3/24"),
        (found("u1", "10.244.1.1"), "10.244.1.3/24"),
        (found("u1", "10.244.2.77"), "10.244.1.3/24"),
    ] {
        assert_eq!(
            address(&start(port.clone(), pod("u1")), "a").as_deref(),
            Some(given),
            "{port:?}"
        );
        let is_its_own = port.uid.as_deref() == Some("u1");
        let expected = (!is_its_own).then_some("10.244.1.3/24");
        assert_eq!(address(&start(port, unusable()), "a").as_deref(), expected);
    }
}
