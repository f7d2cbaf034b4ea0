use contract::names::PolicyKey;

use super::*;

/// A store at its start, with ports of the pods `old-0` to `old-99` in the database of the cluster
/// `own`.
fn with_ports(api_server: Option<&str>) -> Store {
    let mut store = Store::new(config());
    store.found_cluster("own".into());
    for number in 0..100_u8 {
        let port = FoundPort {
            uid: Some(format!("old-{number}").into()),
            addresses: vec![format!("10.244.1.{}", number + 10).parse().unwrap()],
            mac: None,
        };
        store.found_port(&key(&format!("old-{number}")), port);
    }
    observe(&mut store, WatchEvent::Cluster(api_server.map(Into::into)));
    observe(&mut store, WatchEvent::Services(Seen::All(Vec::new())));
    observe(&mut store, WatchEvent::Slices(Seen::All(Vec::new())));
    observe(&mut store, namespaces());
    observe(&mut store, WatchEvent::Policies(Seen::All(Vec::new())));
    WatchEvent::no_optional_kinds().into_iter().for_each(|list| drop(observe(&mut store, list)));
    observe(&mut store, WatchEvent::Nodes(Seen::All(vec![node("n1", "10.244.1.0/24")])));
    store
}

fn list(store: &mut Store, pods: impl IntoIterator<Item = (PodKey, Pod)>) {
    observe(store, WatchEvent::Pods(Seen::All(pods.into_iter().collect())));
}

fn pods(prefix: &str, number: usize) -> Vec<(PodKey, Pod)> {
    (0..number)
        .map(|number| format!("{prefix}-{number}"))
        .map(|name| (key(&name), pod(&name)))
        .collect()
}

/// Where 200 pods a second come and go, all are others after 15 s without a leader: the next one
/// waited for a second look, and new pods for it.
#[test]
fn pods_that_have_taken_the_places_of_others_while_nobody_led_are_no_reason_for_doubt() {
    let mut store = with_ports(Some("own"));
    list(&mut store, pods("new", 100));
    assert_eq!(store.doubted(), None);
    assert!(address(&store, "new-0").is_some());
}

#[test]
fn a_list_without_successors_or_of_a_cluster_that_is_not_known_to_be_the_own_is_doubted() {
    let of_the_host = |number| {
        let host = |(key, pod)| (key, Pod { host_network: true, ..pod });
        pods("host", number).into_iter().map(host).collect::<Vec<_>>()
    };
    for (api_server, listed) in [
        (Some("own"), pods("new", 40)),
        (Some("own"), of_the_host(100)),
        (Some("own"), vec![]),
        (None, pods("new", 100)),
        (Some("other"), pods("new", 1000)),
    ] {
        let mut store = with_ports(api_server);
        let number = listed.len();
        list(&mut store, listed);
        assert!(store.doubted().is_some(), "{api_server:?} {number}");
    }
}

/// The identity is that of the API server at the start: a kubeconfig that is replaced later leads
/// elsewhere.
#[test]
fn later_lists_with_as_many_others_are_doubted() {
    let mut store = with_ports(Some("own"));
    list(&mut store, pods("old", 100));
    assert_eq!(store.doubted(), None);
    list(&mut store, pods("foreign", 100));
    assert!(store.doubted().is_some());
}

/// Where pods come and go all the time, a list that came after the API server had forgotten the
/// version of before was doubted again and again: no new pod for half a minute.
#[test]
fn a_second_look_at_pods_that_have_taken_the_places_of_others_is_believed() {
    let mut store = with_ports(Some("own"));
    list(&mut store, pods("old", 200));
    assert_eq!(store.doubted(), None);
    // 60 have gone, and others have come; until the second look, all have.
    list(&mut store, pods("old", 140).into_iter().chain(pods("new", 60)));
    assert!(store.doubted().is_some());
    observe(&mut store, WatchEvent::Cluster(Some("own".into())));
    list(&mut store, pods("newer", 200));
    assert_eq!(store.doubted(), None);
    assert!(store.pod(&key("newer-0")).is_some());
}

/// The page said that new pods wait, and they did not: one of a namespace whose policies came while
/// a list of these was held back had its port, and was open.
#[test]
fn no_port_begins_while_a_list_of_what_denies_is_held_back() {
    let key = |name: &str| PolicyKey::new("shop", name).unwrap();
    let policies = |names: &[&str]| {
        let policy = |name: &&str| {
            (key(name), Policy::new(&key(name), name, serde_json::json!({"podSelector": {}})))
        };
        WatchEvent::Policies(Seen::All(names.iter().map(policy).collect()))
    };
    let mut store =
        complete(vec![node("n1", "10.244.1.0/24")], vec![(doubts::key("a"), pod("u1"))]);
    observe(&mut store, policies(&["p1", "p2", "p3"]));
    let port = Key::Pod(doubts::key("a"));
    assert!(store.may_begin(&port));
    observe(&mut store, policies(&[]));
    assert!(store.doubted().is_some() && !store.may_begin(&port));
    assert!(
        store.may_begin(&Key::Node("n1".into())) && store.kept(&port) == Kept::NOTHING,
        "others go on"
    );
    let dirty = observe(&mut store, policies(&["p1", "p2", "p3"]));
    assert!(dirty.contains(&port) && store.may_begin(&port), "{dirty:?}");
}

/// Its namespace's labels decide which policies of the cluster are about it: it was about none.
#[test]
fn a_pod_whose_namespace_is_not_known_gets_no_port_and_keeps_the_one_that_it_has() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![(key("a"), pod("u1"))]);
    let port = Key::Pod(key("a"));
    let rows = |store: &Store| desired(store, &port).len();
    assert_eq!((rows(&store), store.kept(&port)), (1, Kept::NOTHING));
    observe(&mut store, WatchEvent::Namespaces(Seen::Deleted("shop".into())));
    assert_eq!((rows(&store), store.kept(&port)), (0, Kept::ALL));
    let dirty = observe(
        &mut store,
        WatchEvent::Namespaces(Seen::Applied(("shop".into(), Namespace::default()))),
    );
    assert!(dirty.contains(&port), "{dirty:?}");
    assert_eq!((rows(&store), store.kept(&port)), (1, Kept::NOTHING));
    let again = observe(
        &mut store,
        WatchEvent::Namespaces(Seen::Applied(("shop".into(), Namespace::default()))),
    );
    assert!(!again.contains(&port), "it was known");
}

/// With the kubeconfig of another cluster, a patch was answered with 404, and the pod counted as
/// gone: once the right API server was back, it never got its annotation.
#[test]
fn a_pod_that_a_list_shows_without_the_annotation_that_was_sent_gets_it_again() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![(key("a"), pod("u1"))]);
    let first = &store.take_annotations()[0];
    list(&mut store, [(key("a"), pod("u1"))]);
    let again = store.take_annotations();
    assert_eq!(again, std::slice::from_ref(first));
    let text = &first.annotations()[POD_NETWORKS];
    list(&mut store, [(key("a"), annotated(pod("u1"), text))]);
    assert_eq!(store.take_annotations(), []);
}
