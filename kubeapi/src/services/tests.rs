use contract::limits::{Exceeded, Limit, PORT_BACKENDS, SERVICE_BACKENDS, SERVICE_FRONT_ENDS};
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
    for metadata in [
        json!({}),
        json!({"labels": null, "annotations": null}),
        json!({"labels": {}, "annotations": {}}),
    ] {
        assert_eq!(service(metadata.clone(), json!(null), json!(null)), Service::default());
        assert_eq!(
            service(metadata, json!({"ports": null, "clusterIPs": null}), json!({})),
            Service::default()
        );
    }
    let read = slice(json!({"endpoints": null, "ports": [{"name": null, "port": null}]}));
    assert_eq!((read.endpoints.len(), read.ports.len(), read.ports[0].port), (0, 1, None));
    let range = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.1/16", "0.0.0.0/0", "x"]}});
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
        (texts(&read.cluster_ips), texts(&read.external_ips), texts(&read.ingress_ips))
    };
    let text = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let all = (text(&["10.96.0.1"]), text(&["192.0.2.1"]), text(&["192.0.2.2"]));
    assert_eq!(read(json!({}), "ClusterIP"), all);
    assert_eq!(read(json!({"labels": {"app": "x"}}), "ClusterIP"), all);
    for (metadata, kind) in [
        (json!({}), "ExternalName"),
        (json!({"labels": {"service.kubernetes.io/headless": ""}}), "ClusterIP"),
        (json!({"labels": {"service.kubernetes.io/service-proxy-name": "other"}}), "ClusterIP"),
    ] {
        assert_eq!(read(metadata, kind), (vec![], vec![], vec![]));
    }
    assert_eq!(
        texts(&service(json!({}), json!({"clusterIP": "None"}), json!({})).cluster_ips),
        text(&[])
    );
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
    let port = |port| ServicePort {
        name: None,
        protocol: Protocol::Tcp,
        port,
        target: None,
        node_port: None,
    };
    assert_eq!(
        (texts(&read.cluster_ips), &*read.ports),
        (vec!["10.96.0.1".to_owned()], &[port(81)][..])
    );
    let read = slice(
        json!({"endpoints": [{"addresses": ["fd00::1"]}, {"addresses": ["10.244.1.4", "10.244.1.5"]}, {}]}),
    );
    assert_eq!(read.endpoints.len(), 1);
    assert_eq!(read.unusable.unwrap().reason(), "AddressOfOtherFamily");
}

/// Kubernetes 1.34 takes them, and kube-proxy serves them.
#[test]
fn addresses_with_leading_zeros_are_served() {
    let read = service(
        json!({}),
        json!({"clusterIPs": ["10.096.011.211"], "externalIPs": ["172.031.000.091"],
            "loadBalancerSourceRanges": ["010.000.000.000/8"]}),
        json!({"loadBalancer": {"ingress": [{"ip": "192.000.002.002"}]}}),
    );
    assert_eq!(texts(&read.cluster_ips), ["10.96.11.211"]);
    assert_eq!(texts(&read.external_ips), ["172.31.0.91"]);
    assert_eq!(texts(&read.ingress_ips), ["192.0.2.2"]);
    assert_eq!(*read.source_ranges.unwrap().clients, ["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(read.unusable, None);
    let read = slice(json!({"endpoints": [{"addresses": ["010.244.000.003"]}]}));
    assert_eq!(
        (read.endpoints[0].address.to_string(), read.unusable),
        ("10.244.0.3".to_owned(), None)
    );
}

/// A Service with a thousand addresses and ports cost the nodes and the database what they had.
#[test]
fn a_service_is_served_as_far_as_it_fits_into_its_bounds() {
    let ports = |count: u16| {
        (1..=count).map(|port| json!({"name": format!("p{port}"), "port": port, "nodePort": port}))
    };
    let of = |addresses: u32, count: u16, endpoints: usize| {
        let external: Vec<String> = (0..addresses)
            .map(|number| IpAddr::from((0xc612_0000 + number).to_be_bytes()).to_string())
            .collect();
        let spec = json!({"clusterIPs": ["10.96.0.1"], "externalIPs": external,
            "ports": ports(count).collect::<Vec<_>>()});
        let slice_ports: Vec<Value> = ports(count).collect();
        let endpoints: Vec<Value> = (0..endpoints)
            .map(|number| json!({"addresses": [format!("10.244.{}.{}", number / 250, number % 250 + 1)]}))
            .collect();
        let slice = slice(json!({"ports": slice_ports, "endpoints": endpoints}));
        Priced::of(&service(json!({}), spec, json!({})), std::iter::once(&slice))
    };
    let priced = |front_ends, backends, ports, exceeded: Option<(&'static Limit, usize)>| Priced {
        cost: Cost { front_ends, backends },
        ports,
        exceeded: exceeded.map(|(limit, value)| Exceeded { limit, value }),
    };
    // The slice counts as one more.
    assert_eq!(of(0, 2, 3), priced(4, 16, 2, None));
    let front_ends = |value| Some((&SERVICE_FRONT_ENDS, value));
    assert_eq!(of(1000, 1000, 0), priced(4 * 1002, 4 * 1002, 4, front_ends(1000 * 1002)));
    assert_eq!(of(0, 3000, 1), priced(5000, 10_000, 2500, front_ends(6000)));
    assert_eq!(of(0, 1000, 249), priced(130, 32_500, 65, Some((&SERVICE_BACKENDS, 33_000))));
    assert_eq!(of(5000, 1, 0), priced(0, 0, 0, front_ends(5002)));
    assert_eq!(of(0, 2, 2048).ports, 2);
    assert_eq!(of(0, 2, 2049), priced(0, 0, 0, Some((&PORT_BACKENDS, 2049))));
}

/// Rules of OVN list the networks of all other clients: of every second address, as many as there
/// are ranges.
#[test]
fn source_ranges_that_leave_out_many_networks_cost_as_many() {
    let of = |ranges: u32| {
        let ranges: Vec<String> = (0..ranges)
            .map(|number| {
                IpAddr::from((0xc612_0000 + 2 * number).to_be_bytes()).to_string() + "/32"
            })
            .collect();
        let spec = json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.1"], "loadBalancerSourceRanges": ranges,
            "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]});
        let status =
            json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]}});
        Priced::of(&service(json!({}), spec, status), std::iter::empty())
    };
    // Four networks at each of two addresses; 4 + 29 others of IPv4, and all of IPv6.
    let priced = of(4);
    assert_eq!((priced.ports, priced.cost.backends), (2, 2 * (2 * 4 + 33 + 1)));
    let priced = of(10_000);
    assert_eq!((priced.ports, priced.exceeded.map(|it| it.limit)), (1, Some(&SERVICE_BACKENDS)));
    assert_eq!(of(60_000).ports, 0);
}

/// `serving` without a value counted as `ready` on nodes, and as true in the control plane.
#[test]
fn conditions_without_a_value_are_those_of_a_running_pod() {
    let condition = |conditions: Value| {
        slice(json!({"endpoints": [{"addresses": ["10.244.1.4"], "conditions": conditions}]}))
            .endpoints[0]
            .condition
    };
    assert_eq!(condition(json!(null)), Condition::Ready);
    assert_eq!(condition(json!({"ready": false})), Condition::Neither);
    assert_eq!(condition(json!({"ready": false, "terminating": true})), Condition::Serving);
    assert_eq!(
        condition(json!({"ready": false, "serving": false, "terminating": true})),
        Condition::Neither
    );
}

#[test]
fn a_health_check_has_a_meaning_for_a_load_balancer_with_local_traffic_alone() {
    let check = |kind: &str, policy: &str| {
        let spec =
            json!({"type": kind, "externalTrafficPolicy": policy, "healthCheckNodePort": 31000});
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
    let ranges =
        json!(["10.0.0.0/8", " 10.1.0.0/16 ", "203.0.113.7/25", "2001:db8::/64", "nonsense"]);
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
