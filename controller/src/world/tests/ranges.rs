//! The ranges of Services' addresses come and go with their objects.

use contract::{annotation::POD_NETWORKS, names::ServiceKey};

use crate::kinds::{
    desired,
    service::{problem::ServiceProblem, ranges::RangeName},
};

use super::*;

fn range(name: &str, nets: &[&str]) -> (RangeName, Box<[IpNet]>) {
    (name.into(), nets.iter().map(|text| net(text)).collect())
}

fn put(store: &mut Store, name: &str, nets: &[&str]) {
    assert_eq!(observe(store, WatchEvent::Ranges(Seen::Applied(range(name, nets)))), []);
}

fn ranges(store: &Store) -> Vec<String> {
    store.service_ranges().iter().map(ToString::to_string).collect()
}

fn service(address: &str) -> (ServiceKey, Service) {
    let port = ServicePort {
        name: None,
        protocol: kubeapi::services::Protocol::Tcp,
        port: 80,
        target: None,
        node_port: None,
    };
    let service = Service {
        cluster_ips: [address.parse().unwrap()].into(),
        ports: [port].into(),
        ..Service::default()
    };
    ("shop/cart".parse().unwrap(), service)
}

#[test]
fn ranges_are_those_of_the_objects_and_without_any_those_of_the_options() {
    let mut store = complete(vec![], vec![]);
    assert!(store.is_complete(), "an account that may not read them does not hold up pods");
    assert_eq!(ranges(&store), ["10.96.0.0/16"]);
    put(&mut store, "a", &["192.168.128.0/24", "10.100.0.0/16"]);
    put(&mut store, "kubernetes", &["10.96.0.0/16"]);
    assert_eq!(ranges(&store), ["10.96.0.0/16", "10.100.0.0/16", "192.168.128.0/24"]);
    observe(&mut store, WatchEvent::Ranges(Seen::Deleted("a".into())));
    assert_eq!(ranges(&store), ["10.96.0.0/16"]);
    observe(&mut store, WatchEvent::Ranges(Seen::All(vec![range("b", &["10.200.0.0/16"])])));
    assert_eq!(ranges(&store), ["10.200.0.0/16"]);
    observe(&mut store, WatchEvent::Ranges(Seen::All(vec![])));
    assert_eq!(ranges(&store), ["10.96.0.0/16"]);
}

/// All annotations would be written again with each range.
#[test]
fn a_later_pod_has_a_route_to_a_range_and_an_earlier_one_keeps_its_annotation() {
    let mut store = complete(vec![node("n1", "10.244.1.0/24")], vec![(key("a"), pod("u1"))]);
    let written = |store: &mut Store| {
        let annotations = store.take_annotations();
        assert_eq!(annotations.len(), 1);
        annotations[0].annotations()[POD_NETWORKS].clone()
    };
    let first = written(&mut store);
    put(&mut store, "kubernetes", &["10.96.0.0/16"]);
    put(&mut store, "more", &["192.168.128.0/24"]);
    assert_eq!(apply(&mut store, "a", annotated(pod("u1"), &first)), []);
    assert_eq!(store.take_annotations(), [], "it has the annotation that it got");
    apply(&mut store, "b", pod("u2"));
    let second = written(&mut store);
    assert!(!first.contains("192.168.128.0/24") && second.contains("192.168.128.0/24"), "{second}");
    assert_eq!(apply(&mut store, "b", annotated(pod("u2"), &second)), []);
    assert_eq!(store.take_annotations(), []);
    // A pod may not claim a Service's address.
    apply(&mut store, "c", claiming("u3", "192.168.128.9/24"));
    assert_eq!(store.take_problems()[0].reason, "AddressNotForPods");
    assert_ne!(address(&store, "c").unwrap(), "192.168.128.9/24");
}

#[test]
fn a_service_outside_of_all_ranges_is_named_and_served() {
    let mut store = complete(vec![], vec![]);
    let told = |store: &mut Store| -> Vec<String> {
        store.take_problems().into_iter().map(|trouble| trouble.note).collect()
    };
    observe(&mut store, WatchEvent::Services(Seen::Applied(service("192.168.128.9"))));
    assert_eq!(told(&mut store), [""; 0], "the options may be wrong");
    put(&mut store, "kubernetes", &["10.96.0.0/16"]);
    let outside = ServiceProblem::OutsideOfRanges { address: "192.168.128.9".parse().unwrap() };
    let outside = outside.to_string();
    assert_eq!(told(&mut store), std::slice::from_ref(&outside));
    assert_eq!(desired(&store, &Key::Service("shop/cart".parse().unwrap())).len(), 1);
    put(&mut store, "more", &["192.168.128.0/24"]);
    assert_eq!(told(&mut store), [""; 0]);
    observe(&mut store, WatchEvent::Ranges(Seen::Deleted("more".into())));
    assert_eq!(told(&mut store), [outside]);
}

#[test]
fn ranges_of_another_cluster_are_ignored() {
    let mut store = complete(vec![], vec![]);
    store.found_cluster("own".into());
    observe(&mut store, WatchEvent::Cluster(Some("other".into())));
    put(&mut store, "kubernetes", &["10.200.0.0/16"]);
    observe(&mut store, WatchEvent::Ranges(Seen::All(vec![range("b", &["10.200.0.0/16"])])));
    assert_eq!(ranges(&store), ["10.96.0.0/16"]);
}
