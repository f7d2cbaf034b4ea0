use serde_json::{Value, json};

use super::*;

fn read(kind: ClusterPolicyKind, spec: Value) -> ClusterPolicy {
    ClusterPolicy::new(kind, "uid", 1, spec)
}

fn with_rule(rule: Value) -> ClusterPolicy {
    let spec =
        json!({"tier": "Admin", "priority": 5, "subject": {"namespaces": {}}, "egress": [rule]});
    read(ClusterPolicyKind::ClusterNetworkPolicy, spec)
}

#[test]
fn the_older_kinds_are_the_same_policy() {
    let subject =
        json!({"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}});
    let peers = json!([{"namespaces": {"matchLabels": {"team": "a"}}}]);
    let new = read(
        ClusterPolicyKind::ClusterNetworkPolicy,
        json!({"tier": "Admin", "priority": 7, "subject": subject, "ingress": [{
            "action": "Accept", "from": peers,
            "protocols": [
                {"tcp": {"destinationPort": {"number": 80}}},
                {"udp": {"destinationPort": {"range": {"start": 5, "end": 9}}}},
                {"destinationNamedPort": "dns"},
            ],
        }]}),
    );
    let old = read(
        ClusterPolicyKind::AdminNetworkPolicy,
        json!({"priority": 7, "subject": subject, "ingress": [{
            "name": "a name", "action": "Allow", "from": peers,
            "ports": [
                {"portNumber": {"protocol": "TCP", "port": 80}},
                {"portRange": {"protocol": "UDP", "start": 5, "end": 9}},
                {"namedPort": "dns"},
            ],
        }]}),
    );
    assert_eq!(new.unusable, None);
    assert_eq!(old, new);
    let baseline = read(ClusterPolicyKind::BaselineAdminNetworkPolicy, json!({"subject": subject}));
    let effect = baseline.effect.unwrap();
    assert_eq!((effect.tier, effect.priority), (PolicyTier::Baseline, BEHIND_ALL));
}

/// A rule that cannot be read must not open what it would deny, nor allow what it does not name.
#[test]
fn a_rule_that_cannot_be_used_is_left_out_if_it_accepts_and_else_denies_all() {
    let deny_all = [ClusterRule { action: RuleAction::Deny, peers: None, ports: None }];
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]});
    let wrong = [
        (json!({"to": [{"somethings": {}}]}), "UnusablePeer"),
        (json!({"to": [{"nodes": "all"}]}), "UnusablePeer"),
        (json!({"to": [{"nodes": {}, "networks": ["10.0.0.0/8"]}]}), "UnusablePeer"),
        (json!({"to": [{"nodes": selector}]}), "UnusableSelector"),
        (json!({"to": [{}]}), "UnusablePeer"),
        (json!({"to": [{"namespaces": {}, "networks": ["10.0.0.0/8"]}]}), "UnusablePeer"),
        (json!({"to": []}), "UnusablePeer"),
        (json!({}), "UnusablePeer"),
        (json!({"to": [{"networks": ["10.0.0.0/8", "ten"]}]}), "NoNetwork"),
        (json!({"to": [{"namespaces": selector}]}), "UnusableSelector"),
        (
            json!({"to": [{"namespaces": {}}], "protocols": [{"tcp": {"destinationPort": {"number": 0}}}]}),
            "NoPort",
        ),
        (json!({"to": [{"namespaces": {}}], "protocols": [{"icmp": {}}]}), "NoPort"),
    ];
    for (rule, reason) in wrong {
        let with = |action: &str| {
            let mut rule = rule.clone();
            rule["action"] = json!(action);
            with_rule(rule)
        };
        for action in ["Accept", "Deny", "Pass"] {
            let policy = with(action);
            assert_eq!(policy.unusable.as_ref().unwrap().reason(), reason, "{rule}");
            let expected: &[ClusterRule] = if action == "Accept" { &[] } else { &deny_all };
            assert_eq!(policy.rules(Direction::Egress), expected, "{action} {rule}");
        }
    }
    let unknown = with_rule(json!({"action": "Allow", "to": [{"namespaces": {}}]}));
    assert_eq!(unknown.unusable.as_ref().unwrap().reason(), "UnknownAction");
    assert_eq!(unknown.rules(Direction::Egress), deny_all);
}

#[test]
fn a_policy_that_does_not_tell_its_pods_or_its_place_has_no_effect() {
    let subject = json!({"namespaces": {}});
    let wrong = [
        (json!("text"), "UnreadableSpec"),
        (Value::Null, "UnreadableSpec"),
        (json!({"tier": "Top", "priority": 0, "subject": subject}), "UnknownTier"),
        (json!({"priority": 0, "subject": subject}), "UnknownTier"),
        (json!({"tier": "Admin", "priority": 1001, "subject": subject}), "UnusablePriority"),
        (json!({"tier": "Admin", "priority": -1, "subject": subject}), "UnusablePriority"),
        (json!({"tier": "Admin", "subject": subject}), "UnusablePriority"),
        (json!({"tier": "Admin", "priority": 0}), "NoSubject"),
        (json!({"tier": "Admin", "priority": 0, "subject": {}}), "NoSubject"),
    ];
    for (spec, reason) in wrong {
        let policy = read(ClusterPolicyKind::ClusterNetworkPolicy, spec.clone());
        assert_eq!(policy.effect, None, "{spec}");
        assert_eq!(policy.unusable.unwrap().reason(), reason, "{spec}");
    }
}

/// Neighbours with one action share a level; each change needs one more. Policies with more than 31
/// had no effect.
#[test]
fn levels_follow_the_changes_of_the_action() {
    let rules = |actions: &[&str]| {
        let rules: Vec<Value> = actions
            .iter()
            .map(|action| json!({"action": action, "from": [{"namespaces": {}}]}))
            .collect();
        let spec = json!({"tier": "Admin", "priority": 0, "subject": {"namespaces": {}}, "ingress": rules});
        read(ClusterPolicyKind::ClusterNetworkPolicy, spec)
    };
    let policy = rules(&["Deny", "Deny", "Accept", "Pass", "Pass", "Deny"]);
    let effect = policy.effect.unwrap();
    let levels: Vec<usize> = effect.levels(Direction::Ingress).map(|(level, _)| level).collect();
    assert_eq!((levels, effect.depth()), (vec![0, 0, 1, 2, 2, 3], 4));
    let changes = |count: usize| rules(&["Deny", "Accept"].repeat(count)[..count]);
    // As many as v1alpha1 has rules.
    let deep = changes(100);
    assert_eq!((deep.effect.unwrap().depth(), deep.unusable), (100, None));
}

fn egress(kind: ClusterPolicyKind, action: &str, peer: &Value) -> ClusterPolicy {
    let rule = json!({"action": action, "to": [peer]});
    let spec =
        json!({"tier": "Admin", "priority": 5, "subject": {"namespaces": {}}, "egress": [rule]});
    read(kind, spec)
}

/// The peers of the only rule, and what of the policy cannot be used.
fn peers(policy: &ClusterPolicy) -> (Vec<ClusterPeer>, Option<&'static str>) {
    let reason = policy.unusable.as_ref().map(|unusable| unusable.reason());
    (policy.peers().cloned().collect(), reason)
}

#[test]
fn nodes_and_names_are_peers_of_egress_rules_of_every_kind_that_has_them() {
    use ClusterPolicyKind::{AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy};
    let (nodes, names) = (
        json!({"nodes": {"matchLabels": {"a": "b"}}}),
        json!({"domainNames": ["a.example", "_b.c."]}),
    );
    for (kind, accept) in [
        (ClusterNetworkPolicy, "Accept"),
        (AdminNetworkPolicy, "Allow"),
        (BaselineAdminNetworkPolicy, "Allow"),
    ] {
        for action in [accept, "Deny"] {
            let policy = egress(kind, action, &nodes);
            let (peers, reason) = peers(&policy);
            assert_eq!(reason, None, "{kind:?} {action}");
            let [ClusterPeer::Nodes(NodePeer { nodes, text })] = &peers[..] else {
                panic!("{peers:?}")
            };
            assert_eq!((nodes.to_string(), &**text), ("*/a in (b)".to_owned(), "LS{ML:{a: b,},}"));
        }
        let policy = egress(kind, accept, &names);
        let expected = ["a.example", "_b.c"].map(|name| ClusterPeer::Name(name.into())).to_vec();
        let expected = match kind {
            BaselineAdminNetworkPolicy => (vec![], Some("UnusablePeer")),
            ClusterNetworkPolicy | AdminNetworkPolicy => (expected, None),
        };
        assert_eq!(peers(&policy), expected, "{kind:?}");
    }
}

/// Nobody can list the names below a domain, and an empty list of names is not all of them.
#[test]
fn names_that_cannot_be_asked_for_allow_nothing_and_only_rules_that_accept_have_names() {
    let wrong = [
        ("*.example.org", "Wildcard"),
        ("a.*.example.org", "Wildcard"),
        ("", "NoName"),
        ("a..b", "NoName"),
        ("a b", "NoName"),
    ];
    for (name, reason) in wrong {
        let peer = json!({"domainNames": ["good.example", name]});
        let policy = egress(ClusterPolicyKind::ClusterNetworkPolicy, "Accept", &peer);
        assert_eq!(peers(&policy), (vec![], Some(reason)), "{name:?}");
        assert_eq!(policy.rules(Direction::Egress), [], "the rule is left out");
    }
    for names in [json!([]), json!("a.example"), json!([1]), json!(null)] {
        let policy = egress(
            ClusterPolicyKind::ClusterNetworkPolicy,
            "Accept",
            &json!({ "domainNames": names }),
        );
        assert_eq!(peers(&policy), (vec![], Some("UnusablePeer")), "{names}");
    }
    let deny_all = [ClusterRule { action: RuleAction::Deny, peers: None, ports: None }];
    for action in ["Deny", "Pass"] {
        let peer = json!({"domainNames": ["a.example"]});
        let policy = egress(ClusterPolicyKind::ClusterNetworkPolicy, action, &peer);
        assert_eq!(policy.rules(Direction::Egress), deny_all, "{action}");
        let why = policy.unusable.unwrap().to_string();
        assert_eq!(
            why,
            "its egress rule 0 has domainNames, which only rules that accept may have; the rule denies all"
        );
    }
    let spec = json!({"tier": "Admin", "priority": 5, "subject": {"namespaces": {}}, "ingress": [
        {"action": "Accept", "from": [{"nodes": {}}]}, {"action": "Accept", "from": [{"domainNames": ["a.example"]}]}]});
    let policy = read(ClusterPolicyKind::ClusterNetworkPolicy, spec);
    assert_eq!(policy.rules(Direction::Ingress), [], "there are none of ingress");
}

/// A field of a later or an earlier version may limit what a rule is about: without it, a rule that
/// accepts was wider than its author wrote, and that of a selector selected everything.
#[test]
fn a_field_that_is_not_known_makes_the_rule_one_that_cannot_be_used() {
    let wrong = [
        (json!({"to": [{"namespaces": {"sameLabels": ["tenant"]}}]}), "UnusablePeer"),
        (
            json!({"to": [{"namespaces": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}]}),
            "UnusablePeer",
        ),
        (
            json!({"to": [{"pods": {"namespaces": {"namespaceSelector": {}}, "podSelector": {}}}]}),
            "UnusablePeer",
        ),
        (json!({"to": [{"nodes": {"matchFields": []}}]}), "UnusablePeer"),
        (json!({"to": [{"nodes": []}]}), "UnusablePeer"),
        (json!({"to": [{"pods": []}]}), "UnusablePeer"),
        (json!({"to": [{"pods": {"namespaceSelector": [], "podSelector": {}}}]}), "UnusablePeer"),
        (json!({"to": [{"namespaces": {}}], "onlyOnMondays": true}), "UnreadableRule"),
        (
            json!({"to": [{"namespaces": {"matchExpressions": [{"key": "a", "operator": "Exists", "not": true}]}}]}),
            "UnusablePeer",
        ),
    ];
    for (rule, reason) in wrong {
        for action in ["Accept", "Deny", "Pass"] {
            let mut rule = rule.clone();
            rule["action"] = json!(action);
            let policy = with_rule(rule.clone());
            assert_eq!(policy.unusable.as_ref().unwrap().reason(), reason, "{rule}");
            let deny_all = ClusterRule { action: RuleAction::Deny, peers: None, ports: None };
            let expected = if action == "Accept" { vec![] } else { vec![deny_all] };
            assert_eq!(policy.rules(Direction::Egress), expected, "{action} {rule}");
        }
    }
    let subject = json!({"namespaces": {"sameLabels": ["tenant"]}});
    let policy = read(
        ClusterPolicyKind::ClusterNetworkPolicy,
        json!({"tier": "Admin", "priority": 5, "subject": subject}),
    );
    assert_eq!(policy.effect, None);
    // Its name has no effect.
    let named = with_rule(json!({"name": "n", "action": "Accept", "to": [{"namespaces": {}}]}));
    assert_eq!(named.unusable, None);
}
