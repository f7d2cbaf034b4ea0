use std::path::Path;

use kubeapi::{
    services::{RangeObject, ServiceObject, SliceObject},
    watch::Watched as _,
};
use serde_json::{Value, json};

use super::*;

fn known() -> Known {
    let net = |text: &str| text.parse().unwrap();
    let mut known = Known::new(&ServicesConfig {
        node: "n1",
        ranges: &[net("10.96.0.0/16")],
        reserved: &[net("100.64.0.0/16")],
        local_traffic: local_traffic(),
        ovs_run_dir: Path::new("/nonexistent"),
    });
    known.pods_are_in(vec![net("10.244.0.0/16"), net("fd00:10:244::/48")]);
    known
}

fn local_traffic() -> [IpAddr; 2] {
    ["169.254.169.3", "fd69::3"].map(|text| text.parse().unwrap())
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name).unwrap()
}

fn service(name: &str, spec: Value) -> (ServiceKey, Service) {
    let object = json!({"metadata": {"namespace": "shop", "name": name, "resourceVersion": "1"}, "spec": spec});
    serde_json::from_value::<ServiceObject>(object).unwrap().value().unwrap()
}

/// A slice of `service`. `endpoints`: address, node and conditions.
fn slice(
    name: &str,
    service: &str,
    ports: Value,
    endpoints: &[(&str, &str, Value)],
) -> (SliceKey, Slice) {
    let family = if endpoints.first().is_some_and(|(address, ..)| address.contains(':')) {
        "IPv6"
    } else {
        "IPv4"
    };
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(address, node, conditions)| json!({"addresses": [address], "nodeName": node, "conditions": conditions}))
        .collect();
    let object = json!({
        "metadata": {"namespace": "shop", "name": name, "resourceVersion": "1", "labels": {"kubernetes.io/service-name": service}},
        "addressType": family, "ports": ports, "endpoints": endpoints,
    });
    serde_json::from_value::<SliceObject>(object).unwrap().value().unwrap()
}

fn dns() -> (ServiceKey, Service) {
    service(
        "dns",
        json!({"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ports": [
        {"name": "dns", "protocol": "UDP", "port": 53, "nodePort": 30053},
        {"name": "dns-tcp", "protocol": "TCP", "port": 53}]}),
    )
}

fn dns_ports() -> Value {
    json!([{"name": "dns", "protocol": "UDP", "port": 5353}, {"name": "dns-tcp", "protocol": "TCP", "port": 5353}])
}

fn ready() -> Value {
    json!({"ready": true, "serving": true, "terminating": false})
}

fn stale(address: &str, port: u16, endpoint: &str) -> Stale {
    let end = endpoint.parse().map_or(StaleEnd::Any, StaleEnd::Endpoint);
    Stale { address: address.parse().ok(), port, end }
}

/// What is stale, of whatever Service.
fn all(moves: &Moves) -> BTreeSet<Stale> {
    moves.stale.keys().copied().collect()
}

fn put(known: &mut Known, (key, service): (ServiceKey, Service)) -> Moves {
    known.service(&key, Some(service))
}

fn put_slice(known: &mut Known, (key, slice): (SliceKey, Slice)) -> Moves {
    known.slice(&key, Some(slice))
}

/// A server that was away has seen no change: what there is tells.
#[test]
fn connections_are_stale_that_nothing_known_explains() {
    let mut known = known();
    assert!(!known.is_complete());
    known.all_slices(vec![slice("dns-a", "dns", dns_ports(), &[("10.244.1.5", "n1", ready())])]);
    assert!(!known.is_complete(), "a Service may seem to have no endpoint");
    known.all_services(vec![dns()]);
    assert!(known.is_complete());

    let pair = |to: &str, by: &str| Translated { to: to.parse().unwrap(), by: by.parse().unwrap() };
    let right = [
        pair("10.96.0.10:53", "10.244.1.5:5353"),
        pair("192.0.2.7:30053", "10.244.1.5:5353"),
        pair("192.0.2.7:30053", "10.96.0.10:53"),
        // Of other programs.
        pair("192.0.2.7:8053", "172.17.0.2:53"),
        pair("198.51.100.1:53", "172.17.0.2:53"),
    ];
    assert_eq!(known.stale_among(&right.into()), [].into());
    let wrong = [
        pair("10.96.0.10:53", "10.244.2.5:5353"),
        pair("192.0.2.7:30053", "10.244.2.5:5353"),
        // A port, and a Service, that are gone.
        pair("10.96.0.10:54", "10.244.1.5:5353"),
        pair("10.96.0.77:53", "10.244.1.5:5353"),
    ];
    let expected = [
        stale("10.96.0.10", 53, "10.244.2.5:5353"),
        stale("", 30053, "10.244.2.5:5353"),
        stale("10.96.0.10", 54, ""),
        stale("10.96.0.77", 53, ""),
    ];
    assert_eq!(known.stale_among(&wrong.into()), expected.into());
}

#[test]
fn connections_to_an_endpoint_that_went_or_serves_no_more_are_stale() {
    let mut known = known();
    put(&mut known, dns());
    let both = [("10.244.1.5", "n1", ready()), ("10.244.2.5", "n2", ready())];
    assert_eq!(all(&put_slice(&mut known, slice("dns-a", "dns", dns_ports(), &both))), [].into());

    let gone = put_slice(&mut known, slice("dns-a", "dns", dns_ports(), &both[..1]));
    let expected =
        [stale("10.96.0.10", 53, "10.244.2.5:5353"), stale("", 30053, "10.244.2.5:5353")];
    assert_eq!(all(&gone), expected.into());
    assert!(gone.valid.contains(&stale("10.96.0.10", 53, "10.244.1.5:5353")));

    // One that terminates goes on with what it has until it no longer serves.
    let terminating = |serving: bool| {
        let conditions = json!({"ready": false, "serving": serving, "terminating": true});
        slice("dns-a", "dns", dns_ports(), &[("10.244.1.5", "n1", conditions)])
    };
    assert_eq!(all(&put_slice(&mut known, terminating(true))), [].into());
    let expected =
        [stale("10.96.0.10", 53, "10.244.1.5:5353"), stale("", 30053, "10.244.1.5:5353")];
    assert_eq!(all(&put_slice(&mut known, terminating(false))), expected.into());
}

#[test]
fn connections_to_a_service_that_went_are_stale_whatever_their_endpoint() {
    let mut known = known();
    let (key, _) = dns();
    put(&mut known, dns());
    put_slice(&mut known, slice("dns-a", "dns", dns_ports(), &[("10.244.1.5", "n1", ready())]));
    let gone = known.service(&key, None);
    // The host's kernel translates the node port to the cluster's address, OVN to the endpoint.
    let expected = [
        stale("10.96.0.10", 53, ""),
        stale("", 30053, "10.96.0.10:53"),
        stale("", 30053, "10.244.1.5:5353"),
    ];
    assert_eq!(all(&gone), expected.into());
    // In a list that lacks it, too.
    put(&mut known, dns());
    assert_eq!(known.all_services(Vec::new()).stale, gone.stale);
}

/// Its client would get no answer from the Service for as long as it sends.
#[test]
fn connections_to_an_address_or_node_port_from_before_there_was_the_service_are_stale() {
    let mut known = known();
    let (key, service) = dns();
    // What the first list has was there before.
    assert_eq!(all(&known.all_services(vec![(key.clone(), service.clone())])), [].into());
    let itself =
        |address: &str, port| Stale { address: address.parse().ok(), port, end: StaleEnd::Itself };
    let untranslated = [itself("", 30053), itself("10.96.0.10", 53)];
    let gone = known.service(&key, None);
    assert!(untranslated.iter().all(|one| gone.valid.contains(one)), "{gone:?}");
    let came = known.service(&key, Some(service));
    assert_eq!(all(&came), untranslated.into());
    assert!(!untranslated.iter().any(|one| came.valid.contains(one)), "{came:?}");
}

#[test]
fn an_endpoint_that_moves_from_one_slice_to_another_is_not_gone() {
    let mut known = known();
    put(&mut known, dns());
    let endpoints = [("10.244.1.5", "n1", ready())];
    put_slice(&mut known, slice("dns-a", "dns", dns_ports(), &endpoints));
    let moved = known.all_slices(vec![slice("dns-b", "dns", dns_ports(), &endpoints)]);
    assert_eq!(all(&moved), [].into());
}

/// Two slices of one Service may have different numbers for one port.
#[test]
fn each_slice_has_its_own_number_of_a_port() {
    let mut known = known();
    put(&mut known, dns());
    let number = |port: u16| json!([{"name": "dns", "protocol": "UDP", "port": port}]);
    put_slice(&mut known, slice("dns-a", "dns", number(5353), &[("10.244.1.5", "n1", ready())]));
    put_slice(&mut known, slice("dns-b", "dns", number(5454), &[("10.244.1.6", "n1", ready())]));
    let gone = known.slice(&SliceKey::new("shop", "dns-b").unwrap(), None);
    assert!(gone.stale.contains_key(&stale("10.96.0.10", 53, "10.244.1.6:5454")), "{gone:?}");
}

#[test]
fn what_no_part_of_the_node_needs_is_not_kept() {
    let mut known = known();
    let tcp = json!([{"name": "", "protocol": "TCP", "port": 80}]);
    let kept =
        |known: &Known| -> usize { known.slices.values().map(|slice| slice.endpoints.len()).sum() };
    put_slice(&mut known, slice("web-a", "web", tcp.clone(), &[("10.244.2.5", "n2", ready())]));
    assert_eq!(kept(&known), 0);
    for endpoint in [("10.244.1.5", "n1", ready()), ("192.0.2.7", "n2", ready())] {
        put_slice(&mut known, slice("web-a", "web", tcp.clone(), &[endpoint]));
        assert_eq!(kept(&known), 1);
    }
    put_slice(&mut known, slice("web-a", "web", tcp, &[("10.244.2.5", "n2", ready())]));
    // What it costs is known all the same.
    let known_slice = known.slices.values().next().unwrap();
    assert_eq!((kept(&known), known_slice.endpoints_count), (0, 1));
}

/// The controller gives it each port of its protocol, the node wanted an equal name.
#[test]
fn a_port_without_a_name_has_the_endpoints_of_a_slices_port_of_any_name() {
    let mut known = known();
    put(&mut known, service("web", json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]})));
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 8080}]);
    put_slice(&mut known, slice("web-a", "web", ports, &[("192.0.2.7", "n2", ready())]));
    (known.are_all_services, known.are_all_slices) = (true, true);
    assert_eq!(served(&mut known), ["10.96.0.7:80 -> 192.0.2.7:8080"]);
}

/// Each destination that is not a node port.
fn served(known: &mut Known) -> Vec<String> {
    let all = known.facts().destinations.expect("all is known");
    let targets =
        |to: &Destination| to.targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let text = |to: &Destination| Some(format!("{}:{} -> {}", to.address?, to.port, targets(to)));
    all.iter().filter_map(text).collect()
}

/// A Service with this age, address in the cluster and `externalIPs`.
fn external(
    name: &str,
    created: u8,
    cluster_ip: &str,
    external_ips: &[&str],
) -> (ServiceKey, Service) {
    let object = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1",
            "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
        "spec": {"clusterIPs": [cluster_ip], "externalIPs": external_ips, "ports": [{"port": 80}]},
    });
    serde_json::from_value::<ServiceObject>(object).unwrap().value().unwrap()
}

/// A namespace that sorts earlier took an address of another one's Service, at once and on all
/// nodes.
#[test]
fn an_address_that_two_services_want_is_the_older_ones_until_it_goes() {
    let mut known = known();
    known.all_slices(Vec::new());
    known.all_services(vec![
        external("a-thief", 2, "10.96.0.6", &["198.51.100.7"]),
        external("shop", 1, "10.96.0.7", &["198.51.100.7"]),
    ]);
    known.all_nodes(Vec::new());
    assert_eq!(served(&mut known), ["198.51.100.7:80 -> 10.96.0.7:80"]);
    known.service(&key("shop"), None);
    assert_eq!(served(&mut known), ["198.51.100.7:80 -> 10.96.0.6:80"]);
}

#[test]
fn external_ips_of_nodes_and_api_servers_are_not_translated() {
    let mut known = known();
    let api = json!({
        "metadata": {"namespace": "default", "name": "kubernetes", "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4", "ports": [{"name": "https", "port": 6443}],
        "endpoints": [{"addresses": ["192.0.2.6"]}],
    });
    let api = serde_json::from_value::<SliceObject>(api).unwrap().value().unwrap();
    let api_key = api.0.clone();
    known.all_slices(vec![api]);
    let all = ["192.0.2.6", "192.0.2.7", "10.96.0.99", "10.244.9.9", "100.64.0.9", "198.51.100.7"];
    known.all_services(vec![external("thief", 1, "10.96.0.6", &all)]);
    assert!(
        known.awaits_nodes() && known.facts().destinations.is_none(),
        "no node may lose its address"
    );
    let addresses = |text: &str| -> Box<[IpAddr]> { [text.parse().unwrap()].into() };
    known.all_nodes(vec![("n2".into(), addresses("192.0.2.7"))]);
    let free = "198.51.100.7:80 -> 10.96.0.6:80".to_owned();
    assert_eq!(served(&mut known), std::slice::from_ref(&free));
    // Both are not the cluster's any more.
    known.node("n2".into(), addresses("192.0.2.8"));
    known.slice(&api_key, None);
    let two = ["192.0.2.6", "192.0.2.7"].map(|address| format!("{address}:80 -> 10.96.0.6:80"));
    assert_eq!(served(&mut known), [two.to_vec(), vec![free]].concat());
}

/// Without permission to list nodes, `externalIPs` were to wait for ever.
#[test]
fn external_ips_are_served_where_the_api_server_does_not_tell_of_nodes() {
    let mut known = known();
    known.all_slices(Vec::new());
    known.all_services(vec![external("web", 1, "10.96.0.6", &["198.51.100.7"])]);
    known.no_nodes();
    assert_eq!(served(&mut known).len(), 1);
}

/// It made a million destinations on each node.
#[test]
fn a_service_with_a_thousand_addresses_and_ports_costs_a_node_next_to_nothing() {
    let addresses: Vec<String> =
        (0..1000).map(|number| format!("198.18.{}.{}", number / 250, number % 250)).collect();
    let ports: Vec<Value> = (1..=1000)
        .map(|port| json!({"name": format!("p{port}"), "port": port, "protocol": "UDP"}))
        .collect();
    let spec = json!({"clusterIPs": ["10.96.0.7"], "externalIPs": addresses, "ports": ports});
    let mut known = known();
    known.all_services(Vec::new());
    known.all_slices(Vec::new());
    let began = std::time::Instant::now();
    let moves = put(&mut known, service("big", spec));
    known.all_nodes(Vec::new());
    assert_eq!(known.facts().destinations.unwrap().len(), 4 * 1000);
    assert!(moves.stale.len() <= 4 * 1001, "{}", moves.stale.len());
    assert!(began.elapsed().as_millis() < 1000, "{:?}", began.elapsed());
}

#[test]
fn a_service_on_hosts_has_the_ready_endpoints_of_each_family() {
    let mut known = known();
    put(
        &mut known,
        service(
            "api",
            json!({"clusterIPs": ["10.96.0.1", "fd00:10:96::1"], "ports": [
        {"name": "https", "port": 443}, {"name": "other", "port": 444}]}),
        ),
    );
    let ports = json!([{"name": "https", "protocol": "TCP", "port": 6443}]);
    let unready = json!({"ready": false, "serving": false, "terminating": false});
    put_slice(
        &mut known,
        slice(
            "api-4",
            "api",
            ports.clone(),
            &[
                ("192.0.2.7", "n1", ready()),
                ("192.0.2.8", "n2", unready),
                ("10.244.1.5", "n1", json!(null)),
            ],
        ),
    );
    put_slice(&mut known, slice("api-6", "api", ports, &[("2001:db8::7", "n1", ready())]));
    assert!(known.facts().destinations.is_none(), "the lists are not there yet");
    (known.are_all_services, known.are_all_slices) = (true, true);
    let found: Vec<(String, String)> = known
        .facts()
        .destinations
        .unwrap()
        .iter()
        .map(|to| (format!("{} {}", to.cluster, to.port), format!("{:?}", to.targets)))
        .collect();
    let expected = [
        ("10.96.0.1 443", "[10.244.1.5:6443, 192.0.2.7:6443]"),
        ("fd00:10:96::1 443", "[[2001:db8::7]:6443]"),
    ];
    assert_eq!(
        found,
        expected.map(|(service, endpoints)| (service.to_owned(), endpoints.to_owned()))
    );
}

#[test]
fn each_range_has_a_service_in_it_if_there_is_one() {
    let mut known = known();
    assert!(!known.facts().are_all_ranges);
    let object = |name: &str, cidrs: Value| {
        let object =
            json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": {"cidrs": cidrs}});
        serde_json::from_value::<RangeObject>(object).unwrap().value().unwrap()
    };
    known.all_ranges(vec![object("kubernetes", json!(["10.96.0.0/16", "fd00:10:96::/112"]))]);
    let (more, nets) = object("more", json!(["192.168.128.0/24", "0.0.0.0/0", "nonsense"]));
    known.range(more, Some(nets));
    put(&mut known, service("web", json!({"clusterIP": "192.168.128.7", "ports": [{"port": 80}]})));
    let Facts { ranges, are_all_ranges, .. } = known.facts();
    let found: Vec<String> =
        ranges.iter().map(|(range, sample)| format!("{range} {sample:?}")).collect();
    assert_eq!(
        found,
        ["10.96.0.0/16 []", "192.168.128.0/24 [192.168.128.7]", "fd00:10:96::/112 []"]
    );
    assert!(are_all_ranges);
    known.service(&key("web"), None);
    known.range("more".into(), None);
    assert_eq!(known.facts().ranges.len(), 2);
}

#[test]
fn a_health_check_counts_the_ready_endpoints_of_this_node() {
    let mut known = known();
    let spec = |policy: &str| {
        json!({"type": "LoadBalancer", "clusterIP": "10.96.0.7", "externalTrafficPolicy": policy,
        "healthCheckNodePort": 31000, "ports": [{"port": 80}]})
    };
    put(&mut known, service("web", spec("Local")));
    let unready = json!({"ready": false, "serving": true, "terminating": true});
    let ports = json!([{"name": "", "protocol": "TCP", "port": 80}]);
    put_slice(
        &mut known,
        slice(
            "web-a",
            "web",
            ports,
            &[
                ("10.244.1.5", "n1", ready()),
                ("10.244.1.6", "n1", unready),
                ("10.244.2.5", "n2", ready()),
            ],
        ),
    );
    let check = HealthCheck { service: key("web"), local_endpoints: 1 };
    assert_eq!(known.health_checks(), [(31000, check)].into());
    put(&mut known, service("web", spec("Cluster")));
    assert_eq!(known.health_checks(), [].into());
}

/// A load balancer that is a proxy answers for itself.
#[test]
fn addresses_of_load_balancers_that_the_node_must_not_serve_are_left_out() {
    let spec = json!({"clusterIP": "10.96.0.7", "externalIPs": ["198.51.100.1"]});
    let ingress = json!([{"ip": "198.51.100.2"}, {"ip": "198.51.100.3", "ipMode": "Proxy"}, {"hostname": "a"}]);
    let addresses =
        |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    let object = json!({"metadata": {"namespace": "shop", "name": "web", "resourceVersion": "1"},
        "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}});
    let read = serde_json::from_value::<ServiceObject>(object).unwrap().value().unwrap().1;
    assert_eq!(read.outside().collect::<Vec<_>>(), addresses(&["198.51.100.2", "198.51.100.1"]));
}

/// The server did not know the node's zone, and took hosts of all zones.
#[test]
fn a_service_on_hosts_follows_the_nodes_zone() {
    let mut known = known();
    let api = json!({"clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ports": [{"protocol": "TCP", "port": 443}]});
    put(&mut known, service("api", api));
    let at = |address: &str, zone: &str| json!({"addresses": [address], "conditions": ready(), "hints": {"forZones": [{"name": zone}]}});
    let object = json!({
        "metadata": {"namespace": "shop", "name": "api-a", "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": "api"}},
        "addressType": "IPv4", "ports": [{"protocol": "TCP", "port": 6443}],
        "endpoints": [at("192.0.2.8", "a"), at("192.0.2.9", "b")],
    });
    put_slice(&mut known, serde_json::from_value::<SliceObject>(object).unwrap().value().unwrap());
    let targets = |known: &Known| -> Vec<String> {
        known
            .destinations(&key("api"))
            .iter()
            .flat_map(|of| &of.targets)
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(targets(&known), ["192.0.2.8:6443", "192.0.2.9:6443"], "the zone is not known");
    known.zone(Some("b".into()));
    assert_eq!(targets(&known), ["192.0.2.9:6443"]);
    known.zone(None);
    assert_eq!(targets(&known).len(), 2, "the label was removed");
}
