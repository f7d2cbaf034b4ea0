use super::*;
use crate::services::ServicePort;

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name).unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addresses(texts: &[&str]) -> Box<[IpAddr]> {
    texts.iter().map(|text| address(text)).collect()
}

/// A Service with port 80 of this age and address in the cluster.
fn service(created: i64, cluster_ip: &str) -> Service {
    let port = ServicePort {
        name: None,
        protocol: Protocol::Tcp,
        port: 80,
        target: None,
        node_port: None,
    };
    Service {
        created,
        uid: format!("uid-{created}").into(),
        cluster_ips: addresses(&[cluster_ip]),
        ports: [port].into(),
        ..Service::default()
    }
}

fn at(text: &str) -> Claim {
    Claim { address: address(text), protocol: Protocol::Tcp, port: 80 }
}

fn claims() -> Claims {
    Claims::new(["10.244.0.0/16", "100.64.0.0/16"].map(|net| net.parse().unwrap()).into())
}

/// The first that serves the claim.
fn server(claims: &Claims, all: &[&str], text: &str) -> Option<String> {
    let mut serving = all.iter().filter(|name| claims.serves(&key(name), &at(text)));
    let first = serving.next().map(ToString::to_string);
    assert_eq!(serving.next(), None, "two serve {text}");
    first
}

/// Somebody else's namespace sorted before the victim's.
#[test]
fn the_order_is_cluster_ip_then_load_balancer_then_external_ip_whatever_the_names_and_ages_are() {
    let mut claims = claims();
    let mut thief = service(1, "10.96.0.1");
    thief.external_ips = addresses(&["10.96.0.9", "192.0.2.9"]);
    let mut balanced = service(2, "10.96.0.2");
    balanced.ingress_ips = addresses(&["192.0.2.9"]);
    let victim = service(3, "10.96.0.9");
    let all = ["a-thief", "balanced", "victim"];
    claims.change(&key("a-thief"), None, Some(&thief));
    assert_eq!(server(&claims, &all, "192.0.2.9").as_deref(), Some("a-thief"));
    assert_eq!(claims.change(&key("balanced"), None, Some(&balanced)), [key("a-thief")].into());
    claims.change(&key("victim"), None, Some(&victim));
    assert_eq!(server(&claims, &all, "192.0.2.9").as_deref(), Some("balanced"));
    assert_eq!(server(&claims, &all, "10.96.0.9").as_deref(), Some("victim"));
    let refusal = claims.refusal(&key("a-thief"), &thief);
    assert_eq!(refusal, Some(Refusal::Taken { claim: at("10.96.0.9"), by: key("victim") }));
}

#[test]
fn the_older_of_two_services_serves_and_the_other_one_takes_over_when_it_goes() {
    let external = |created, cluster_ip: &str| Service {
        external_ips: addresses(&["192.0.2.1"]),
        ..service(created, cluster_ip)
    };
    let (old, young) = (external(1, "10.96.0.1"), external(2, "10.96.0.2"));
    for order in [[("z-old", &old), ("a-young", &young)], [("a-young", &young), ("z-old", &old)]] {
        let mut claims = claims();
        for (name, service) in order {
            claims.change(&key(name), None, Some(service));
        }
        let all = ["z-old", "a-young"];
        assert_eq!(server(&claims, &all, "192.0.2.1").as_deref(), Some("z-old"));
        assert_eq!(claims.refusal(&key("z-old"), &old), None);
        assert_eq!(claims.change(&key("z-old"), Some(&old), None), [key("a-young")].into());
        assert_eq!(server(&claims, &all, "192.0.2.1").as_deref(), Some("a-young"));
        assert_eq!(claims.refusal(&key("a-young"), &young), None);
        claims.change(&key("a-young"), Some(&young), None);
        assert!(claims.claimants.is_empty() && claims.external.is_empty());
    }
}

/// Another port or protocol of the same address is another claim.
#[test]
fn services_share_an_address_with_different_ports() {
    let mut claims = claims();
    let mut other = service(2, "10.96.0.2");
    other.external_ips = addresses(&["192.0.2.1"]);
    other.ports[0].port = 81;
    let one = Service { external_ips: addresses(&["192.0.2.1"]), ..service(1, "10.96.0.1") };
    claims.change(&key("one"), None, Some(&one));
    assert_eq!(claims.change(&key("other"), None, Some(&other)), [].into());
    assert_eq!(claims.refusal(&key("other"), &other), None);
}

#[test]
fn external_ips_of_the_cluster_itself_have_no_effect() {
    let mut claims = claims();
    claims.set_ranges(vec!["10.96.0.0/16".parse().unwrap()]);
    claims.change_own(&[], &[address("172.31.0.1"), address("172.31.0.2")]);
    claims.change_own(&[], &[address("172.31.0.2")]);
    let own = ["10.96.0.77", "10.244.1.5", "100.64.0.2", "127.0.0.1", "172.31.0.1", "172.31.0.2"];
    for own in own {
        let service =
            Service { external_ips: addresses(&[own, "192.0.2.1"]), ..service(1, "10.96.0.1") };
        claims.change(&key("x"), None, Some(&service));
        assert!(!claims.serves(&key("x"), &at(own)), "{own}");
        assert!(
            claims.serves(&key("x"), &at("192.0.2.1"))
                && claims.serves(&key("x"), &at("10.96.0.1"))
        );
        let refusal = claims.refusal(&key("x"), &service);
        assert_eq!(refusal, Some(Refusal::Reserved { address: address(own) }));
        claims.change(&key("x"), Some(&service), None);
    }
    // A load balancer may have the address of a node, and one in a range.
    let ingress = addresses(&["10.96.0.77", "172.31.0.1"]);
    let balanced = Service { ingress_ips: ingress, ..service(1, "10.96.0.1") };
    claims.change(&key("x"), None, Some(&balanced));
    assert_eq!(claims.refusal(&key("x"), &balanced), None);
}

#[test]
fn a_service_is_told_of_when_an_external_ip_becomes_the_clusters_own_or_is_that_no_longer() {
    let mut claims = claims();
    let one = Service { external_ips: addresses(&["172.31.0.2"]), ..service(1, "10.96.0.1") };
    claims.change(&key("one"), None, Some(&one));
    let (node, other) = ([address("172.31.0.2")], [address("172.31.0.3")]);
    assert_eq!(claims.change_own(&[], &node), [key("one")].into());
    assert_eq!(claims.change_own(&[], &node), [].into());
    assert!(!claims.serves(&key("one"), &at("172.31.0.2")));
    assert_eq!(claims.change_own(&node, &other), [].into(), "another object has it still");
    assert_eq!(claims.change_own(&node, &[]), [key("one")].into());
    assert_eq!(claims.set_ranges(vec!["172.31.0.0/24".parse().unwrap()]), [key("one")].into());
    assert!(!claims.serves(&key("one"), &at("172.31.0.2")));
    assert_eq!(claims.set_ranges(Vec::new()), [key("one")].into());
    assert!(claims.serves(&key("one"), &at("172.31.0.2")));
}

/// A thousand addresses times a thousand ports.
#[test]
fn a_service_claims_no_more_than_it_may_have_front_ends() {
    let mut claims = claims();
    let mut huge = service(1, "10.96.0.1");
    huge.external_ips =
        (0..1000_u32).map(|number| IpAddr::from((0xc612_0000 + number).to_be_bytes())).collect();
    huge.ports = (1..=1000).map(|port| ServicePort { port, ..huge.ports[0].clone() }).collect();
    claims.change(&key("huge"), None, Some(&huge));
    assert_eq!(claims.claimants.len(), 4 * 1001);
    let at = |port| Claim { address: huge.external_ips[7], protocol: Protocol::Tcp, port };
    assert!(claims.serves(&key("huge"), &at(4)) && !claims.serves(&key("huge"), &at(5)));
}
