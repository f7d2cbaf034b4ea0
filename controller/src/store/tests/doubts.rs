use super::*;

/// A store at its start, with ports of the pods `old-0` to `old-99` in the database of the cluster `own`.
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
    observe(&mut store, Observation::Cluster(api_server.map(Into::into)));
    observe(&mut store, Observation::Services(Seen::All(Vec::new())));
    observe(&mut store, Observation::Slices(Seen::All(Vec::new())));
    observe(&mut store, Observation::Namespaces(Seen::All(Vec::new())));
    observe(&mut store, Observation::Policies(Seen::All(Vec::new())));
    Observation::no_optional_kinds().into_iter().for_each(|list| drop(observe(&mut store, list)));
    observe(&mut store, Observation::Nodes(Seen::All(vec![node("n1", "10.244.1.0/24")])));
    store
}

fn list(store: &mut Store, pods: impl IntoIterator<Item = (PodKey, Pod)>) {
    observe(store, Observation::Pods(Seen::All(pods.into_iter().collect())));
}

fn pods(prefix: &str, number: usize) -> Vec<(PodKey, Pod)> {
    (0..number).map(|number| format!("{prefix}-{number}")).map(|name| (key(&name), pod(&name))).collect()
}

/// Where 200 pods a second come and go, all are others after 15 s without a leader: the next one waited for a
/// second look, and new pods for it.
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

/// The identity is that of the API server at the start: a kubeconfig that is replaced later leads elsewhere.
#[test]
fn later_lists_with_as_many_others_are_doubted() {
    let mut store = with_ports(Some("own"));
    list(&mut store, pods("old", 100));
    assert_eq!(store.doubted(), None);
    list(&mut store, pods("foreign", 100));
    assert!(store.doubted().is_some());
}

/// With the kubeconfig of another cluster, a patch was answered with 404, and the pod counted as gone: once
/// the right API server was back, it never got its annotation.
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
