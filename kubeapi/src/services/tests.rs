use serde_json::{Value, json};

use super::*;
use crate::watch::Watched;

fn service(metadata: Value, spec: Value, status: Value) -> Service {
    let mut object =
        json!({"metadata": {"namespace": "shop", "name": "cart"}, "spec": spec, "status": status});
    object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value::<ServiceObject>(object).unwrap().value().unwrap().1
}

fn slice(object: Value) -> Slice {
    let mut whole = json!({"metadata": {"namespace": "shop", "name": "cart-x",
        "labels": {"kubernetes.io/service-name": "cart"}}, "addressType": "IPv4"});
    whole.as_object_mut().unwrap().extend(object.as_object().unwrap().clone());
    serde_json::from_value::<SliceObject>(whole).unwrap().value().unwrap().1
}

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// Whatever an API server of any release sends.
#[test]
fn objects_with_nothing_or_null_in_them_are_read() {
    for metadata in
        [json!({}), json!({"labels": null, "annotations": null}), json!({"labels": {}, "annotations": {}})]
    {
        assert_eq!(service(metadata.clone(), json!(null), json!(null)), Service::default());
        assert_eq!(
            service(metadata, json!({"ports": null, "clusterIPs": null}), json!({})),
            Service::default()
        );
    }
    let read = slice(json!({"endpoints": null, "ports": [{"name": null, "port": null}]}));
    assert_eq!((read.endpoints.len(), read.ports.len(), read.ports[0].port), (0, 1, None));
    let range =
        json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.1/16", "0.0.0.0/0", "x"]}});
    let range = serde_json::from_value::<RangeObject>(range).unwrap().value().unwrap().1;
    assert_eq!(*range, ["10.96.0.0/16".parse().unwrap()]);
}

/// The node flushed connections to Services that another proxy serves.
#[test]
fn a_service_that_is_left_to_others_has_no_addresses() {
    let spec = |kind: &str| json!({"type": kind, "clusterIPs": ["10.96.0.1"], "externalIPs": ["192.0.2.1"], "ports": [{"port": 80}]});
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"ip": "192.0.2.3", "ipMode": "Proxy"}, {}]}});
    let read = |metadata, kind| {
        let read = service(metadata, spec(kind), status.clone());
        (texts(&read.cluster_ips), texts(&read.external_ips))
    };
    let text = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let all = (text(&["10.96.0.1"]), text(&["192.0.2.1", "192.0.2.2"]));
    assert_eq!(read(json!({}), "ClusterIP"), all);
    assert_eq!(read(json!({"labels": {"app": "x"}}), "ClusterIP"), all);
    for (metadata, kind) in [
        (json!({}), "ExternalName"),
        (json!({"labels": {"service.kubernetes.io/headless": ""}}), "ClusterIP"),
        (json!({"labels": {"service.kubernetes.io/service-proxy-name": "other"}}), "ClusterIP"),
    ] {
        assert_eq!(read(metadata, kind), (vec![], vec![]));
    }
    assert_eq!(texts(&service(json!({}), json!({"clusterIP": "None"}), json!({})).cluster_ips), text(&[]));
}

#[test]
fn what_cannot_be_used_is_left_out_and_the_first_is_named() {
    let read = service(
        json!({}),
        json!({"clusterIPs": ["nonsense", "10.96.0.1"], "ports": [{"port": 70000}, {"port": 80, "protocol": "QUIC"},
            {"port": 81, "targetPort": "http", "nodePort": 0}]}),
        json!({}),
    );
    assert_eq!(
        read.unusable.unwrap().to_string(),
        r#"its clusterIPs has "nonsense", which is no address; it is left out"#
    );
    let port =
        |port| ServicePort { name: None, protocol: Protocol::Tcp, port, target: None, node_port: None };
    assert_eq!((texts(&read.cluster_ips), &*read.ports), (vec!["10.96.0.1".to_owned()], &[port(81)][..]));
    let read = slice(
        json!({"endpoints": [{"addresses": ["fd00::1"]}, {"addresses": ["10.244.1.4", "10.244.1.5"]}, {}]}),
    );
    assert_eq!(read.endpoints.len(), 1);
    assert_eq!(read.unusable.unwrap().reason(), "AddressOfOtherFamily");
}

/// `serving` without a value counted as `ready` on nodes, and as true in the control plane.
#[test]
fn conditions_without_a_value_are_those_of_a_running_pod() {
    let condition = |conditions: Value| {
        slice(json!({"endpoints": [{"addresses": ["10.244.1.4"], "conditions": conditions}]})).endpoints[0]
            .condition
    };
    assert_eq!(condition(json!(null)), Condition::Ready);
    assert_eq!(condition(json!({"ready": false})), Condition::Neither);
    assert_eq!(condition(json!({"ready": false, "terminating": true})), Condition::Serving);
    assert_eq!(condition(json!({"ready": false, "serving": false, "terminating": true})), Condition::Neither);
}

#[test]
fn a_health_check_has_a_meaning_for_a_load_balancer_with_local_traffic_alone() {
    let check = |kind: &str, policy: &str| {
        let spec = json!({"type": kind, "externalTrafficPolicy": policy, "healthCheckNodePort": 31000});
        service(json!({}), spec, json!({})).health_check
    };
    assert_eq!(check("LoadBalancer", "Local"), Some(31000));
    assert_eq!([check("LoadBalancer", "Cluster"), check("NodePort", "Local")], [None; 2]);
}

#[test]
fn source_ranges_limit_addresses_of_load_balancers_and_no_others() {
    let spec = |ranges: Value| {
        json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.1"], "externalIPs": ["192.0.2.1", "192.0.2.2"],
            "loadBalancerSourceRanges": ranges})
    };
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}, {"ip": "192.0.2.3"}, {"ip": "2001:db8::3"}]}});
    let read = |ranges: Value| service(json!({}), spec(ranges), status.clone());
    for none in [json!(null), json!([])] {
        assert_eq!(read(none).source_ranges, None);
    }
    assert_eq!(service(json!({}), spec(json!(["10.0.0.0/8"])), json!({})).source_ranges, None);
    // Networks of both families; some within others, and with bits of a host.
    let ranges = json!(["10.0.0.0/8", " 10.1.0.0/16 ", "203.0.113.7/25", "2001:db8::/64", "nonsense"]);
    let limited = read(ranges);
    let ranges = limited.source_ranges.unwrap();
    assert_eq!(texts(&ranges.addresses), ["192.0.2.3", "2001:db8::3"]);
    let clients = |address: &str| {
        let found = ranges.of(address.parse().unwrap());
        found.map(|clients| clients.map(|client| client.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(clients("192.0.2.2"), None);
    assert_eq!(clients("192.0.2.3").unwrap(), ["10.0.0.0/8", "203.0.113.0/25"]);
    assert_eq!(clients("2001:db8::3").unwrap(), ["2001:db8::/64"]);
    assert_eq!(limited.unusable.unwrap().reason(), "NoNetwork");
    // Not even a typing error lets others in; all networks are one.
    assert_eq!(read(json!(["nonsense"])).source_ranges.unwrap().clients.len(), 0);
    let all = read(json!(["0.0.0.0/0", "::/0", "192.0.2.0/24"])).source_ranges.unwrap();
    assert_eq!(*all.clients, ["0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap()));
}

#[test]
fn endpoints_that_terminate_get_connections_only_while_none_is_ready() {
    let of = |all: &[Condition]| chosen(all.iter().copied(), |condition| *condition).count();
    use Condition::{Neither, Ready, Serving};
    assert_eq!(of(&[Ready, Serving, Neither, Ready]), 2);
    assert_eq!(of(&[Serving, Neither, Serving, Serving]), 3);
    assert_eq!(of(&[Neither]), 0);
    assert!(Traffic::Cluster.admits(None, "n1") && Traffic::Local.admits(Some("n1"), "n1"));
    assert!(!Traffic::Local.admits(None, "n1") && !Traffic::Local.admits(Some("n2"), "n1"));
}
