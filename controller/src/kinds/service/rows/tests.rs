//! Which backends a connection may get, seen in the rows.

use kubeapi::{
    services::{ServiceObject, SliceObject},
    watch::Watched,
};
use serde_json::{Value as Json, json};

use crate::{
    config::ClusterSubnet,
    key::Key,
    kinds::{node::wire::NodeObject, service::template_use::TemplateUse},
    rows::{DesiredRow, Value},
    watch_event::{Seen, WatchEvent},
};

use super::*;

mod templates;

/// Nodes n1 and n2 in the zones east and west.
fn store(objects: &[Json]) -> Store {
    let cidr = |text: &str, host_length| ClusterSubnet { cidr: text.parse().unwrap(), host_length };
    let mut store = Store::new(ClusterConfig {
        cluster_subnets: vec![cidr("10.244.0.0/16", 24), cidr("fd00:10:244::/48", 64)],
        ..ClusterConfig::default()
    });
    let node = |number: u8, zone: &str| {
        let subnets =
            format!(r#"{{"default":["10.244.{number}.0/24","fd00:10:244:{number}::/64"]}}"#);
        let hosts = format!(r#"["172.18.0.{number}/16"]"#);
        let annotations =
            json!({"k8s.ovn.org/node-subnets": subnets, "k8s.ovn.org/host-cidrs": hosts});
        let labels = json!({"topology.kubernetes.io/zone": zone});
        let name = format!("n{number}");
        let object =
            json!({"metadata": {"name": name, "annotations": annotations, "labels": labels}});
        serde_json::from_value::<NodeObject>(object).unwrap().into_node()
    };
    store.observe(
        WatchEvent::Nodes(Seen::All(vec![node(1, "east"), node(2, "west")])),
        &mut |_, _| (),
    );
    for object in objects {
        let object = object.clone();
        let observation = if object.get("addressType").is_some() {
            let slice: SliceObject = serde_json::from_value(object).unwrap();
            WatchEvent::Slices(Seen::Applied(slice.value().unwrap()))
        } else {
            let service: ServiceObject = serde_json::from_value(object).unwrap();
            WatchEvent::Services(Seen::Applied(service.value().unwrap()))
        };
        store.observe(observation, &mut |_, _| ());
    }
    store
}

/// The Service shop/cart at 10.96.0.7, with this specification beside it.
fn cart(spec: Json) -> Json {
    let mut service = json!({
        "metadata": {"namespace": "shop", "name": "cart", "uid": "u1"},
        "spec": {"clusterIPs": ["10.96.0.7"], "ports": [{"port": 80, "targetPort": 8080}]},
    });
    merge(&mut service["spec"], spec);
    service
}

fn merge(into: &mut Json, from: Json) {
    let Json::Object(from) = from else { panic!("an object") };
    into.as_object_mut().unwrap().extend(from);
}

/// A slice of it, with this port.
fn slice(name: &str, ports: Json, endpoints: &[Json]) -> Json {
    json!({
        "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": "cart"}},
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    })
}

fn endpoint(address: &str, node: &str) -> Json {
    json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true}})
}

fn http() -> Json {
    json!([{"port": 8080, "protocol": "TCP"}])
}

/// The load balancers: name, addresses with their backends, and what they are on; one line for each
/// address.
fn rows(objects: &[Json]) -> Vec<String> {
    lines(&store(objects))
}

fn lines(store: &Store) -> Vec<String> {
    let key = Key::Service("shop/cart".parse().unwrap());
    let mut lines = Vec::new();
    for DesiredRow { id, columns, member_of, .. } in crate::kinds::desired(store, &key) {
        let on: Vec<&str> = member_of.iter().map(|set| &*set.of.name).collect();
        for (_, value) in columns {
            let (Value::Lists(vips) | Value::Entries(vips)) = value else { continue };
            for (vip, backends) in vips {
                let name = id.name.strip_prefix("Service_shop/cart_").unwrap();
                lines.push(format!("{name} on {}: {vip} = {backends}", on.join(" ")));
            }
        }
    }
    lines
}

#[test]
fn a_service_is_one_row_in_the_group_of_all_switches_and_routers() {
    let two = slice("a", http(), &[endpoint("10.244.2.5", "n2"), endpoint("10.244.1.4", "n1")]);
    assert_eq!(
        rows(&[cart(json!({})), two]),
        ["TCP_cluster on clusterLBGroup: 10.96.0.7:80 = 10.244.1.4:8080,10.244.2.5:8080"]
    );
}

#[test]
fn an_address_without_backends_is_there_to_refuse() {
    assert_eq!(rows(&[cart(json!({}))]), ["TCP_cluster on clusterLBGroup: 10.96.0.7:80 = "]);
}

/// Found by `tests/laws/reference.rs`: of two endpoints with one address, the first counted alone.
#[test]
fn an_endpoint_that_is_there_twice_is_on_the_node_that_one_of_both_names() {
    let local = cart(json!({"internalTrafficPolicy": "Local"}));
    let nowhere = json!({"addresses": ["10.244.1.4"], "conditions": {"ready": true}});
    let twice = slice("a", http(), &[nowhere, endpoint("10.244.1.4", "n1")]);
    let lines = rows(&[local, twice]);
    let backends = |node: &str| -> Vec<&str> {
        let of_node = lines.iter().filter(|line| line.contains(&format!("node_switch_{node} on")));
        of_node.filter_map(|line| Some(line.split_once(" = ")?.1)).collect()
    };
    assert_eq!((backends("n1"), backends("n2")), (vec!["10.244.1.4:8080"], vec![""]), "{lines:#?}");
}

#[test]
fn labels_leave_a_service_to_another_proxy_or_to_none() {
    for label in ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"] {
        let mut service = cart(json!({}));
        service["metadata"]["labels"] = json!({label: ""});
        assert_eq!(rows(&[service, slice("a", http(), &[endpoint("10.244.1.4", "n1")])]), [""; 0]);
    }
    let mut labelled = slice("a", http(), &[endpoint("10.244.1.4", "n1")]);
    labelled["metadata"]["labels"]["service.kubernetes.io/headless"] = json!("");
    assert_eq!(
        rows(&[cart(json!({})), labelled]),
        ["TCP_cluster on clusterLBGroup: 10.96.0.7:80 = "]
    );
}

#[test]
fn headless_and_external_names_have_no_rows() {
    for spec in [
        json!({"clusterIPs": ["None"], "clusterIP": "None"}),
        json!({"clusterIPs": []}),
        json!({"type": "ExternalName", "externalName": "example.org"}),
    ] {
        assert_eq!(
            rows(&[cart(spec), slice("a", http(), &[endpoint("10.244.1.4", "n1")])]),
            [""; 0]
        );
    }
}

/// Upstream's defect: one number of one slice was used for all endpoints.
#[test]
fn a_named_target_port_is_the_number_of_each_endpoint() {
    let named = cart(json!({"ports": [{"name": "web", "port": 80, "targetPort": "http"}]}));
    let a = slice("a", json!([{"name": "web", "port": 8080}]), &[endpoint("10.244.1.4", "n1")]);
    let b = slice("b", json!([{"name": "web", "port": 9090}]), &[endpoint("10.244.2.5", "n2")]);
    assert_eq!(
        rows(&[named, a, b]),
        ["TCP_cluster on clusterLBGroup: 10.96.0.7:80 = 10.244.1.4:8080,10.244.2.5:9090"]
    );
}

#[test]
fn an_unnamed_port_takes_all_ports_of_a_slice_and_a_named_one_only_its_own() {
    let endpoints = [endpoint("10.244.1.4", "n1")];
    let two = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
    let of = |service: Json, ports: Json| rows(&[service, slice("a", ports, &endpoints)]);
    let named = || cart(json!({"ports": [{"name": "b", "port": 80}]}));
    let line =
        |backends: &str| [format!("TCP_cluster on clusterLBGroup: 10.96.0.7:80 = {backends}")];
    assert_eq!(of(cart(json!({})), json!([{"name": "x", "port": 7}])), line("10.244.1.4:7"));
    assert_eq!(of(cart(json!({})), two.clone()), line("10.244.1.4:1,10.244.1.4:2"));
    assert_eq!(of(named(), two), line("10.244.1.4:2"));
    assert_eq!(of(named(), json!([{"name": "x", "port": 7}])), line(""));
    assert_eq!(of(named(), json!([{"name": "b", "port": 7, "protocol": "UDP"}])), line(""));
}

/// A slice may say that its endpoints have every port; upstream ended with a panic.
#[test]
fn endpoints_of_all_ports_are_used_with_the_target_port() {
    let all = slice(
        "a",
        json!([{"name": null, "port": null, "protocol": null}]),
        &[endpoint("10.244.1.4", "n1")],
    );
    let line =
        |port: u16| [format!("TCP_cluster on clusterLBGroup: 10.96.0.7:80 = 10.244.1.4:{port}")];
    assert_eq!(rows(&[cart(json!({})), all.clone()]), line(8080));
    assert_eq!(rows(&[cart(json!({"ports": [{"port": 80}]})), all]), line(80));
}

#[test]
fn terminating_backends_that_serve_are_the_last_resort() {
    let conditions = |address: &str, ready: Json, serving: Json, terminating: Json| json!({"addresses": [address], "conditions": {"ready": ready, "serving": serving, "terminating": terminating}});
    let of = |spec: Json, endpoints: &[Json]| {
        rows(&[cart(spec), slice("a", http(), endpoints)])
            .remove(0)
            .split(" = ")
            .nth(1)
            .unwrap()
            .to_owned()
    };
    let ready = conditions("10.244.1.1", Json::Null, Json::Null, Json::Null);
    let leaving = conditions("10.244.1.2", json!(false), json!(true), json!(true));
    let dead = conditions("10.244.1.3", json!(false), json!(false), json!(true));
    let starting = conditions("10.244.1.4", json!(false), json!(true), json!(false));
    let all = [ready, leaving.clone(), dead.clone(), starting.clone()];
    assert_eq!(of(json!({}), &all), "10.244.1.1:8080");
    assert_eq!(of(json!({}), &[leaving, dead.clone(), starting.clone()]), "10.244.1.2:8080");
    assert_eq!(of(json!({}), &[dead, starting]), "");
    let published = of(json!({"publishNotReadyAddresses": true}), &all);
    assert_eq!(published, "10.244.1.1:8080,10.244.1.2:8080,10.244.1.3:8080,10.244.1.4:8080");
}

#[test]
fn each_family_has_its_own_backends_and_each_protocol_its_own_row() {
    let spec = json!({
        "clusterIPs": ["10.96.0.7", "fd00:10:96::7"],
        "ports": [{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}, {"name": "s", "port": 9, "protocol": "SCTP"}],
    });
    let ports = json!([{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 5353, "protocol": "UDP"}, {"name": "s", "port": 9, "protocol": "SCTP"}]);
    let mut six = slice("b", ports.clone(), &[endpoint("fd00:10:244:1::4", "n1")]);
    six["addressType"] = json!("IPv6");
    assert_eq!(
        rows(&[cart(spec), slice("a", ports, &[endpoint("10.244.1.4", "n1")]), six]),
        [
            "TCP_cluster on clusterLBGroup: 10.96.0.7:53 = 10.244.1.4:53",
            "TCP_cluster on clusterLBGroup: [fd00:10:96::7]:53 = [fd00:10:244:1::4]:53",
            "UDP_cluster on clusterLBGroup: 10.96.0.7:53 = 10.244.1.4:5353",
            "UDP_cluster on clusterLBGroup: [fd00:10:96::7]:53 = [fd00:10:244:1::4]:5353",
            "SCTP_cluster on clusterLBGroup: 10.96.0.7:9 = 10.244.1.4:9",
            "SCTP_cluster on clusterLBGroup: [fd00:10:96::7]:9 = [fd00:10:244:1::4]:9",
        ]
    );
}

#[test]
fn external_addresses_are_addresses_like_others() {
    let mut service = cart(json!({"externalIPs": ["192.0.2.1"]}));
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.2", "ipMode": "VIP"}, {"ip": "192.0.2.3", "ipMode": "Proxy"}, {"hostname": "x"}]}});
    assert_eq!(
        rows(&[service, slice("a", http(), &[endpoint("10.244.1.4", "n1")])]),
        ["10.96.0.7", "192.0.2.1", "192.0.2.2"]
            .map(|vip| format!("TCP_cluster on clusterLBGroup: {vip}:80 = 10.244.1.4:8080"))
    );
}

#[test]
fn endpoints_that_are_hosts_make_a_row_of_nodes_which_all_share() {
    let host = slice("a", http(), &[endpoint("172.18.0.1", "n1")]);
    assert_eq!(
        rows(&[cart(json!({})), host]),
        ["TCP_node_switch_n1_merged on clusterSwitchLBGroup: 10.96.0.7:80 = 172.18.0.1:8080"]
    );
}

/// Each node that joined before its gateway was set up moved such load balancers from the group to
/// a link for each switch and router, and back: with 60 nodes, 118 rows were written twice.
#[test]
fn a_node_that_joins_before_its_gateway_router_moves_no_load_balancer() {
    let mut store = store(&[cart(json!({})), slice("a", http(), &[endpoint("172.18.0.9", "n9")])]);
    for routers in [&["n1"][..], &["n1", "n2"]] {
        store.gateway_routers(routers.iter().map(|name| (*name).into()).collect(), &mut |_, _| ());
        let line =
            "TCP_node_router+switch_n1_merged on clusterLBGroup: 10.96.0.7:80 = 172.18.0.9:8080";
        assert_eq!(lines(&store), [line]);
    }
}

#[test]
fn a_gateway_router_takes_its_own_host_from_the_masquerade_address() {
    let mut store = store(&[cart(json!({})), slice("a", http(), &[endpoint("172.18.0.1", "n1")])]);
    store.gateway_routers(["n1".into(), "n2".into()].into(), &mut |_, _| ());
    assert_eq!(
        lines(&store),
        [
            "TCP_node_router_n1 on GR_n1: 10.96.0.7:80 = 169.254.169.2:8080",
            "TCP_node_switch_n1_merged on n1 n2 GR_n2: 10.96.0.7:80 = 172.18.0.1:8080",
        ]
    );
}

#[test]
fn an_internal_policy_keeps_connections_on_their_node() {
    let local = cart(json!({"internalTrafficPolicy": "Local"}));
    let one = slice("a", http(), &[endpoint("10.244.1.4", "n1")]);
    assert_eq!(
        rows(&[local, one]),
        [
            "TCP_node_switch_n1 on n1: 10.96.0.7:80 = 10.244.1.4:8080",
            "TCP_node_switch_n2 on n2: 10.96.0.7:80 = ",
        ]
    );
}

#[test]
fn an_external_policy_leaves_the_address_in_the_cluster_alone() {
    let local = cart(json!({"externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.1"]}));
    let mut store = store(&[local, slice("a", http(), &[endpoint("10.244.1.4", "n1")])]);
    store.gateway_routers(["n1".into(), "n2".into()].into(), &mut |_, _| ());
    assert_eq!(
        lines(&store),
        [
            "TCP_cluster on clusterLBGroup: 10.96.0.7:80 = 10.244.1.4:8080",
            "TCP_node_local_router_n1 on GR_n1: 192.0.2.1:80 = 10.244.1.4:8080",
            "TCP_node_switch_n1_merged on clusterSwitchLBGroup: 192.0.2.1:80 = 10.244.1.4:8080",
            "TCP_node_router_n2 on GR_n2: 192.0.2.1:80 = ",
        ]
    );
}

#[test]
fn a_node_port_is_at_each_nodes_own_addresses() {
    let ports = json!([{"port": 80, "targetPort": 8080, "nodePort": 30080}]);
    let one = slice("a", http(), &[endpoint("10.244.1.4", "n1")]);
    assert_eq!(
        rows(&[cart(json!({"ports": ports})), one.clone()]),
        [
            "TCP_cluster on clusterLBGroup: 10.96.0.7:80 = 10.244.1.4:8080",
            "TCP_node_switch_n1 on n1: 172.18.0.1:30080 = 10.244.1.4:8080",
            "TCP_node_switch_n2 on n2: 172.18.0.2:30080 = 10.244.1.4:8080",
        ]
    );
    assert_eq!(
        rows(&[cart(json!({"ports": ports, "externalTrafficPolicy": "Local"})), one]),
        [
            "TCP_cluster on clusterLBGroup: 10.96.0.7:80 = 10.244.1.4:8080",
            "TCP_node_switch_n1 on n1: 169.254.169.3:30080 = 10.244.1.4:8080",
            "TCP_node_switch_n1 on n1: 172.18.0.1:30080 = 10.244.1.4:8080",
            "TCP_node_switch_n2 on n2: 169.254.169.3:30080 = ",
            "TCP_node_switch_n2 on n2: 172.18.0.2:30080 = 10.244.1.4:8080",
        ]
    );
}

#[test]
fn hints_keep_connections_in_their_zone_or_on_their_node() {
    let hinted = |address: &str, node: &str, hints: Json| {
        let mut endpoint = endpoint(address, node);
        endpoint["hints"] = hints;
        endpoint
    };
    let zone = |name: &str| json!({"forZones": [{"name": name}]});
    let (a, b) =
        (hinted("10.244.1.4", "n1", zone("east")), hinted("10.244.2.5", "n2", zone("west")));
    assert_eq!(
        rows(&[cart(json!({})), slice("a", http(), &[a.clone(), b])]),
        [
            "TCP_node_switch_n1 on n1: 10.96.0.7:80 = 10.244.1.4:8080",
            "TCP_node_switch_n2 on n2: 10.96.0.7:80 = 10.244.2.5:8080",
        ]
    );
    let without = endpoint("10.244.2.5", "n2");
    let all = "10.244.1.4:8080,10.244.2.5:8080";
    assert_eq!(
        rows(&[cart(json!({})), slice("a", http(), &[a.clone(), without])]),
        [format!("TCP_cluster on clusterLBGroup: 10.96.0.7:80 = {all}")],
        "one endpoint without hints, and none counts"
    );
    assert_eq!(
        rows(&[cart(json!({})), slice("a", http(), &[a])]),
        ["TCP_node_switch_n1_merged on clusterSwitchLBGroup: 10.96.0.7:80 = 10.244.1.4:8080"],
        "a zone without endpoints uses all"
    );
    let own = |name: &str| json!({"forZones": [{"name": "east"}], "forNodes": [{"name": name}]});
    let (a, b) = (hinted("10.244.1.4", "n1", own("n1")), hinted("10.244.2.5", "n2", own("n2")));
    assert_eq!(
        rows(&[cart(json!({})), slice("a", http(), &[a, b])]),
        [
            "TCP_node_switch_n1 on n1: 10.96.0.7:80 = 10.244.1.4:8080",
            "TCP_node_switch_n2 on n2: 10.96.0.7:80 = 10.244.2.5:8080",
        ]
    );
}

#[test]
fn affinity_is_a_hash_and_what_upstream_has_for_its_timeout_stays() {
    let columns = |timeout: u32| {
        let spec = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": timeout}}});
        let store = store(&[cart(spec)]);
        let row =
            crate::kinds::desired(&store, &Key::Service("shop/cart".parse().unwrap())).remove(0);
        [row.columns, row.or_columns].map(|columns| {
            let column =
                |name: &str| columns.iter().find(|(column, _)| *column == name).unwrap().1.clone();
            let Value::Pairs(options) = column("options") else { panic!("pairs") };
            let Value::Datum(fields) = column("selection_fields") else { panic!("a set") };
            (options.with.get("affinity_timeout").cloned(), fields.atoms().len())
        })
    };
    assert_eq!(columns(600), [(None, 2), (Some("600".to_owned()), 0)]);
    assert_eq!(columns(86_400), [(None, 2), (None, 2)]);
}

#[test]
fn what_cannot_be_used_is_left_out_and_named() {
    let bad = cart(json!({
        "clusterIPs": ["10.96.0.7"], "externalIPs": ["nonsense"],
        "ports": [{"port": 80, "targetPort": 8080}, {"name": "x", "port": 70000}, {"name": "y", "port": 1, "protocol": "DCCP"}],
    }));
    let slice = slice("a", http(), &[endpoint("fd00::1", "n1"), endpoint("10.244.1.4", "n1")]);
    let mut store = store(&[bad, slice]);
    assert_eq!(lines(&store), ["TCP_cluster on clusterLBGroup: 10.96.0.7:80 = 10.244.1.4:8080"]);
    let troubles: Vec<&str> = store.take_problems().iter().map(|trouble| trouble.reason).collect();
    assert_eq!(troubles, ["NoAddress"]);
}

#[test]
fn a_service_with_too_many_backends_loses_ports_and_says_which() {
    let ports: Vec<Json> =
        (1..=5_000).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    let of_slice: Vec<Json> =
        (1..=5_000).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    let endpoints: Vec<Json> =
        (1..=200).map(|host| endpoint(&format!("10.244.1.{host}"), "n1")).collect();
    let of = |endpoints: &[Json]| {
        let slice = slice("a", json!(of_slice), endpoints);
        let mut store = store(&[cart(json!({"ports": ports})), slice]);
        let troubles: Vec<String> =
            store.take_problems().iter().map(|trouble| trouble.note.clone()).collect();
        (lines(&store).len(), troubles)
    };
    assert_eq!(of(&endpoints[..1]), (5_000, Vec::new()), "many ports alone are served");
    let (rows, troubles) = of(&endpoints);
    // The slice counts as one more.
    assert_eq!(rows, 163);
    assert_eq!(
        troubles,
        [
            "it has 32964 backends, source ranges and EndpointSlices over all of its addresses and ports, and 32768 can \
             be used; ports from the first one beyond it on are not served; the first of these is 164"
        ]
    );
}

#[test]
#[ignore = "a measurement, for a release build: cargo test --release -p controller -- --ignored --nocapture rate"]
fn rate() {
    let mut store = store(&[]);
    for number in 0..10_000_u32 {
        let (high, low) = (number / 250, number % 250 + 1);
        let mut service = cart(json!({"clusterIPs": [format!("10.96.{high}.{low}")]}));
        service["metadata"]["name"] = json!(format!("s{number}"));
        let endpoints: Vec<Json> =
            (0..5).map(|host| endpoint(&format!("10.244.{}.{}", high, 50 + host), "n1")).collect();
        let mut slice = slice(&format!("s{number}-x"), http(), &endpoints);
        slice["metadata"]["labels"]["kubernetes.io/service-name"] = json!(format!("s{number}"));
        let service: ServiceObject = serde_json::from_value(service).unwrap();
        let slice: SliceObject = serde_json::from_value(slice).unwrap();
        store
            .observe(WatchEvent::Services(Seen::Applied(service.value().unwrap())), &mut |_, _| ());
        store.observe(WatchEvent::Slices(Seen::Applied(slice.value().unwrap())), &mut |_, _| ());
    }
    let keys: Vec<Key> = store.keys().filter(|key| matches!(key, Key::Service(_))).collect();
    let begun = std::time::Instant::now();
    let rows: usize = keys.iter().map(|key| crate::kinds::desired(&store, key).len()).sum();
    let took = begun.elapsed();
    assert_eq!(rows, 10_000);
    println!("{:.0} services a second", 10_000.0 / took.as_secs_f64());
}

#[test]
fn pods_outside_of_the_source_ranges_do_not_reach_the_balancers_address() {
    let limits = |ranges: Json| {
        let spec = json!({
            "type": "LoadBalancer", "loadBalancerSourceRanges": ranges,
            "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}, {"name": "c", "port": 53, "protocol": "UDP"}],
        });
        let mut service = cart(spec);
        service["status"] =
            json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}, {"ip": "2001:db8::7"}]}});
        let store = store(&[service]);
        let key: ServiceKey = "shop/cart".parse().unwrap();
        let rules = source_ranges::rules(&store, &key, store.service(&key).unwrap().0);
        let rows = crate::kinds::desired(&store, &Key::Service(key));
        assert_eq!(rows.iter().filter(|row| row.id.table == Table::Acl).count(), rules.len());
        rules.into_iter().map(|rule| rule.matching).collect::<Vec<_>>()
    };
    assert!(limits(json!([])).is_empty());
    assert!(limits(json!(["0.0.0.0/0", "::/0"])).is_empty());
    assert_eq!(
        limits(json!(["0.0.0.0/2", "192.0.0.0/3"])),
        [
            "ip4.dst == {198.51.100.7} && (tcp.dst == {80, 81} || udp.dst == {53}) \
             && ip4.src == {64.0.0.0/2, 128.0.0.0/2, 224.0.0.0/3}",
            "ip6.dst == {2001:db8::7} && (tcp.dst == {80, 81} || udp.dst == {53})",
        ]
    );
}

/// Somebody else's Service with the address of a load balancer, too, limited its clients.
#[test]
fn an_address_that_another_service_serves_has_no_rows_of_this_one() {
    let balanced = |name: &str, created: &str, cluster_ip: &str| {
        json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "creationTimestamp": created},
            "spec": {"type": "LoadBalancer", "clusterIPs": [cluster_ip], "loadBalancerSourceRanges": ["192.0.2.0/24"],
                "ports": [{"port": 80, "targetPort": 8080}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}},
        })
    };
    let mut store = store(&[
        balanced("cart", "2026-01-01T00:00:01Z", "10.96.0.7"),
        balanced("shop", "2026-01-01T00:00:00Z", "10.96.0.8"),
    ]);
    assert_eq!(lines(&store), ["TCP_cluster on clusterLBGroup: 10.96.0.7:80 = "]);
    let key: ServiceKey = "shop/cart".parse().unwrap();
    assert_eq!(source_ranges::rules(&store, &key, store.service(&key).unwrap().0), []);
    let troubles: Vec<&str> = store.take_problems().iter().map(|trouble| trouble.reason).collect();
    assert_eq!(troubles, ["AddressTaken"]);
}
