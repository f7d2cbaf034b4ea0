//! What is said beside the verdict. The verdict itself is compared with OVN in random worlds
//! (`controller/tests/laws/policies.rs`).

use super::*;
use crate::{
    Protocol, Selector,
    cluster_policy::{ClusterPeer, ClusterRule, Kind},
    network_policy::{Number, Peer, Port, Rule},
    selector::Labels,
};

fn all() -> Selector<'static> {
    Selector { match_labels: Vec::new(), match_expressions: Vec::new() }
}

fn of_app(app: &'static str) -> Selector<'static> {
    Selector { match_labels: vec![("app", app)], ..all() }
}

fn policy(name: &str, peer: &'static str, port: u16) -> NetworkPolicy<'static> {
    let rule = Rule {
        peers: vec![Peer::Selectors { namespaces: None, pods: Some(of_app(peer)) }],
        ports: vec![Port { protocol: None, number: Some(Number::Of(port)) }],
    };
    NetworkPolicy {
        namespace: "shop",
        name: name.to_owned(),
        pod_selector: of_app("db"),
        policy_types: Vec::new(),
        ingress: vec![rule],
        egress: Vec::new(),
    }
}

fn cluster(kind: Kind, action: Action) -> ClusterPolicy<'static> {
    let rule =
        ClusterRule { action, peers: vec![ClusterPeer::Namespaces(all())], ports: Vec::new() };
    ClusterPolicy {
        kind,
        name: "c".to_owned(),
        subject: (all(), None),
        ingress: vec![rule],
        egress: Vec::new(),
    }
}

/// The ingress of `db`, from `web` at port 80.
fn ingress<'a>(policies: &Policies<'a>) -> Side<'a> {
    ingress_from(Origin::Elsewhere, policies)
}

fn ingress_from<'a>(origin: Origin, policies: &Policies<'a>) -> Side<'a> {
    let (web, db): (Labels<'_>, Labels<'_>) = (vec![("app", "web")], vec![("app", "db")]);
    let end = |labels, address: &str| End {
        pod: Some(Pod { namespace: "shop", labels, ports: &[] }),
        address: address.parse().unwrap(),
    };
    let (client, server) = (end(&web, "10.0.0.1"), end(&db, "10.0.0.2"));
    let place = Place { is_ipv6: false, protocol: Protocol::Tcp, port: 80 };
    policies.side(Direction::Ingress, Connection { client, server, place, origin })
}

static NAMESPACES: [Namespace<'static>; 1] = [Namespace { name: "shop", labels: Vec::new() }];

fn nothing() -> Policies<'static> {
    Policies {
        namespaces: &NAMESPACES,
        nodes: &[],
        names: &[],
        policies: &[],
        cluster_policies: &[],
    }
}

#[test]
fn the_rule_that_decides_is_named_and_of_others_what_does_not_fit() {
    let policies = [
        policy("other-peer", "cart", 80),
        policy("other-port", "web", 81),
        policy("fits", "web", 80),
    ];
    let policies = Policies { policies: &policies, ..nothing() };
    let side = ingress(&policies);
    assert_eq!((side.allows, side.by), (true, By::Rule { policy: 2, rule: 0 }));
    let fits: Vec<(bool, bool)> =
        side.selecting.iter().map(|of| (of.rules[0].peer, of.rules[0].port)).collect();
    assert_eq!(fits, [(false, true), (true, false), (true, true)]);

    let policies = Policies { policies: &policies.policies[..2], ..policies };
    assert_eq!((ingress(&policies).allows, ingress(&policies).by), (false, By::Isolation));
    let nothing = Policies { policies: &[], ..policies };
    assert_eq!((ingress(&nothing).allows, ingress(&nothing).by), (true, By::Nothing));
}

#[test]
fn the_tiers_are_asked_in_their_order_and_a_rule_that_passes_ends_its_own() {
    let network = [policy("fits", "web", 80)];
    let admin = |priority, action| cluster(Kind::AdminNetworkPolicy(priority), action);
    let baseline = |action| cluster(Kind::BaselineAdminNetworkPolicy, action);
    let decided = |network: &[NetworkPolicy<'_>], cluster: &[ClusterPolicy<'_>]| {
        let side = ingress(&Policies { policies: network, cluster_policies: cluster, ..nothing() });
        (side.allows, side.by)
    };
    let first = By::Rule { policy: 0, rule: 0 };
    let deny = admin(9, Action::Deny);
    assert_eq!(decided(&network, std::slice::from_ref(&deny)), (false, first));
    // It passes over the one that denies behind it.
    let both = [deny, admin(3, Action::Pass)];
    assert_eq!(decided(&network, &both), (true, By::Rule { policy: 2, rule: 0 }));
    assert_eq!(decided(&[], &both), (true, By::Nothing));
    assert_eq!(decided(&[], &[baseline(Action::Deny)]), (false, first));
    assert_eq!(decided(&network, &[baseline(Action::Deny)]), (true, first));
    assert_eq!(decided(&[], &[baseline(Action::Pass)]), (true, By::Nothing));
}

/// A kubelet probes pods that policies isolate.
#[test]
fn what_comes_from_the_pods_own_node_is_allowed_and_the_policies_are_still_said() {
    let network = [policy("closed", "nobody", 80)];
    let policies = Policies { policies: &network, ..nothing() };
    let side = ingress_from(Origin::OwnNode, &policies);
    assert_eq!((side.allows, side.by, side.selecting.len()), (true, By::OwnNode, 1));
    assert_eq!(ingress_from(Origin::Elsewhere, &policies).by, By::Isolation);
}
