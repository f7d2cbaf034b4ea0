use contract::node_annotation::{JOIN_ADDRESSES, TRANSIT_ADDRESSES};
use proptest::{collection::vec, prelude::*};
use serde_json::json;

use crate::{
    config::{ClusterSubnet, Interconnect},
    kinds::node::wire::NodeObject,
    problem::ProblemText as _,
};

use super::*;

fn config(ranges: &[(&str, u8)]) -> ClusterConfig {
    ClusterConfig {
        cluster_subnets: ranges
            .iter()
            .map(|(cidr, host_length)| ClusterSubnet {
                cidr: cidr.parse().unwrap(),
                host_length: *host_length,
            })
            .collect(),
        service_cidrs: Vec::new(),
        join_subnets: vec!["100.64.0.0/16".parse().unwrap(), "fd98::/64".parse().unwrap()],
        hairpin_addresses: Vec::new(),
        ..ClusterConfig::default()
    }
}

fn assignments(ranges: &[(&str, u8)]) -> NodeAssignments {
    NodeAssignments::new(config(ranges), NodeRules::default())
}

/// A node object with these annotations, created at this second.
fn node(name: &str, created: u8, annotations: &[(&str, &str)]) -> Node {
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    let object = json!({"metadata": {"name": name, "uid": format!("{name}-{created}"), "annotations": annotations,
        "labels": {"name": name}, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")}});
    serde_json::from_value::<NodeObject>(object).unwrap().into_node()
}

/// The node after these annotations have been written on it.
fn with(node: &Node, annotations: &BTreeMap<&'static str, String>) -> Node {
    let mut all: BTreeMap<String, String> = (*node.annotations).clone();
    all.extend(annotations.iter().map(|(name, text)| ((*name).to_owned(), text.clone())));
    let object = json!({"metadata": {"name": &*node.name, "uid": &*node.uid, "annotations": all, "labels": &*node.labels}});
    Node {
        created: node.created,
        ..serde_json::from_value::<NodeObject>(object).unwrap().into_node()
    }
}

fn subnets(assignments: &mut NodeAssignments) -> Vec<String> {
    assignments
        .take_annotations()
        .into_iter()
        .map(|wish| {
            format!(
                "{} {}",
                wish.node,
                wish.annotations.get(NODE_SUBNETS).map_or("-", String::as_str)
            )
        })
        .collect()
}

#[test]
fn a_node_gets_everything_at_once_and_only_once() {
    let mut all = assignments(&[("10.244.0.0/16", 24), ("fd00:10:244::/48", 64)]);
    let plain = node("n1", 1, &[]);
    all.observe(Seen::Applied(plain.clone()));
    assert_eq!(all.take_annotations(), [], "nothing before the first list");
    all.observe(Seen::All(vec![plain.clone()]));
    let [NodeAnnotation { node: name, uid, version: _, annotations }] = &all.take_annotations()[..]
    else {
        panic!("one node")
    };
    assert_eq!((&**name, &**uid), ("n1", "n1-1"));
    let texts: Vec<(&str, &str)> =
        annotations.iter().map(|(name, text)| (*name, text.as_str())).collect();
    assert_eq!(
        texts,
        [
            (
                "k8s.ovn.org/node-gateway-router-lrp-ifaddrs",
                r#"{"default":{"ipv4":"100.64.0.2/16","ipv6":"fd98::2/64"}}"#
            ),
            ("k8s.ovn.org/node-id", "2"),
            ("k8s.ovn.org/node-subnets", r#"{"default":["10.244.0.0/24","fd00:10:244::/64"]}"#),
            ("k8s.ovn.org/node-transit-switch-port-ifaddr", r#"{"ipv4":"100.88.0.2/16"}"#),
        ]
    );
    all.observe(Seen::Applied(plain.clone()));
    assert_eq!(all.take_annotations(), [], "it is on its way");
    let written = with(&plain, annotations);
    all.observe(Seen::Applied(written.clone()));
    assert_eq!(all.take_annotations(), []);
    all.observe(Seen::Applied(plain));
    assert_eq!(
        all.take_annotations()[0].annotations.len(),
        4,
        "another program removed them: the node has what it had"
    );
    let mut again = assignments(&[("10.244.0.0/16", 24), ("fd00:10:244::/48", 64)]);
    again.observe(Seen::All(vec![written]));
    assert_eq!(
        (again.take_annotations(), again.troubles().count()),
        (vec![], 0),
        "a restart writes nothing"
    );
}

#[test]
fn records_are_read_before_anything_is_given() {
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    let taken = [
        ("k8s.ovn.org/node-subnets", r#"{"default":"10.244.0.0/24","blue":["10.9.0.0/24"]}"#),
        ("k8s.ovn.org/node-id", "2"),
    ];
    all.observe(Seen::All(vec![
        node("a", 1, &[]),
        node("b", 2, &taken),
        node("c", 3, &[("ovn_host_subnet", "10.244.2.0/24")]),
    ]));
    assert_eq!(
        subnets(&mut all),
        [r#"a {"default":["10.244.3.0/24"]}"#, "b -", r#"c {"default":["10.244.2.0/24"]}"#]
    );
    all.observe(Seen::Applied(node(
        "d",
        4,
        &[("k8s.ovn.org/node-subnets", r#"{"blue":["10.9.1.0/24"]}"#)],
    )));
    assert_eq!(subnets(&mut all), [r#"d {"blue":["10.9.1.0/24"],"default":["10.244.4.0/24"]}"#]);
}

/// The annotation was removed while no cluster manager ran: the next one gave the node another
/// subnet, and its pods were cut off.
#[test]
fn a_node_whose_record_was_lost_while_nobody_looked_gets_the_subnet_that_its_pods_are_in() {
    let recorded = |name: &str, created, subnet: &str, id: &str| {
        let subnets = format!(r#"{{"default":["{subnet}"]}}"#);
        node(name, created, &[("k8s.ovn.org/node-subnets", &subnets), ("k8s.ovn.org/node-id", id)])
    };
    let lost = |name: &str, created| node(name, created, &[("k8s.ovn.org/node-id", "7")]);
    let nodes = || vec![lost("a", 1), recorded("b", 2, "10.244.1.0/24", "3"), node("new", 3, &[])];

    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    assert_eq!(
        all.without_record(&nodes()),
        ["a".into()],
        "a node that was never assigned anything has none"
    );
    all.recall("a".into(), vec![net("10.244.0.0/24")]);
    all.observe(Seen::All(nodes()));
    assert_eq!(
        subnets(&mut all),
        [r#"a {"default":["10.244.0.0/24"]}"#, "b -", r#"new {"default":["10.244.2.0/24"]}"#]
    );
    assert_eq!(all.without_record(&nodes()), [], "later, what was assigned is known");

    // Whoever creates a pod chooses its annotation: such a network must not take what is another
    // node's, nor what no node would get.
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    all.recall(
        "a".into(),
        ["10.244.0.0/16", "10.244.1.0/24", "192.168.0.0/24", "10.244.9.0/25"].map(net).into(),
    );
    all.observe(Seen::All(nodes()));
    assert_eq!(
        subnets(&mut all),
        [r#"a {"default":["10.244.2.0/24"]}"#, "b -", r#"new {"default":["10.244.3.0/24"]}"#]
    );
}

#[test]
fn a_subnet_is_free_when_its_node_goes_and_another_of_its_name_gets_its_own() {
    let mut all = assignments(&[("10.244.0.0/23", 24)]);
    all.observe(Seen::All(vec![node("a", 1, &[]), node("b", 2, &[]), node("c", 3, &[])]));
    assert_eq!(
        subnets(&mut all),
        [r#"a {"default":["10.244.0.0/24"]}"#, r#"b {"default":["10.244.1.0/24"]}"#, "c -"]
    );
    let [trouble] = &all.take_problems()[..] else { panic!("one trouble") };
    assert_eq!(
        (trouble.object.name(), &*trouble.uid, trouble.reason),
        ("c", "c-3", "NoFreeSubnet")
    );
    assert_eq!(
        trouble.note,
        "no free IPv4 subnet is left in the cluster subnets; add one to --cluster-subnets or remove nodes"
    );
    all.observe(Seen::Applied(node("c", 3, &[])));
    assert_eq!(all.take_problems(), [], "it is told once");
    all.observe(Seen::Deleted("a".into()));
    assert_eq!(all.due(), ["a".into()], "c waits for a subnet");
    all.left(&"a".into(), &[]);
    assert_eq!(subnets(&mut all), [r#"c {"default":["10.244.0.0/24"]}"#]);
    all.observe(Seen::Applied(node("b", 9, &[])));
    assert_eq!(subnets(&mut all), [r#"b {"default":["10.244.1.0/24"]}"#]);
    all.observe(Seen::All(vec![node("c", 3, &[])]));
    assert_eq!(all.subnets.give(&"x".into(), Family::V4), None, "it is kept for b");
    all.at(KEPT);
    all.left(&"b".into(), &["10.244.7.0/24".parse().unwrap()]);
    assert_eq!(all.subnets.give(&"x".into(), Family::V4).unwrap().to_string(), "10.244.1.0/24");
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// `kubectl delete node`, and its kubelet registered it again: it got another subnet, and the pods
/// that ran there were cut off.
#[test]
fn a_node_that_comes_back_gets_the_subnet_that_it_had() {
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    all.at(1_000);
    all.observe(Seen::All(vec![node("a", 1, &[]), node("b", 2, &[])]));
    all.take_annotations();
    all.observe(Seen::Deleted("a".into()));
    all.observe(Seen::Applied(node("other", 3, &[])));
    assert_eq!(subnets(&mut all), [r#"other {"default":["10.244.2.0/24"]}"#]);
    all.observe(Seen::Applied(node("a", 4, &[])));
    assert_eq!(subnets(&mut all), [r#"a {"default":["10.244.0.0/24"]}"#]);
    // As long as pods have addresses in it, and no other node is given it.
    all.observe(Seen::Deleted("a".into()));
    assert_eq!(all.due(), [] as [NodeName; 0]);
    for round in 1..4 {
        all.at(1_000 + round * KEPT);
        assert_eq!(all.due(), ["a".into()]);
        all.left(&"a".into(), &[net("10.244.0.0/24")]);
        assert_eq!(all.due(), [] as [NodeName; 0], "for ten minutes more");
    }
    assert!(all.subnets.claim(&"x".into(), net("10.244.0.0/24")).is_err());
    all.at(1_000 + 4 * KEPT);
    all.left(&"a".into(), &[]);
    assert!(all.subnets.claim(&"x".into(), net("10.244.0.0/24")).is_ok());
}

#[test]
fn the_next_leader_knows_the_subnets_of_nodes_that_are_gone() {
    let range = [("10.244.0.0/16", 24)];
    let mut all = assignments(&range);
    all.at(1_000);
    all.observe(Seen::All(vec![node("a", 1, &[]), node("b", 2, &[])]));
    assert_eq!(all.take_former(), None, "nothing is written while no node goes");
    all.observe(Seen::Deleted("b".into()));
    let record = serde_json::to_string(&all.take_former().unwrap()).unwrap();
    assert_eq!(record, r#"{"b":{"subnets":["10.244.1.0/24"],"until":1600}}"#);
    assert_eq!(all.take_former(), None);

    let with_first = ("k8s.ovn.org/node-subnets", r#"{"default":["10.244.0.0/24"]}"#);
    let mut next = assignments(&range);
    next.at(1_100);
    next.restore(serde_json::from_str(&record).unwrap());
    // The pods of a node that went while no leader ran.
    next.recall("c".into(), vec![net("10.244.2.0/24")]);
    next.observe(Seen::All(vec![node("a", 1, &[with_first]), node("new", 5, &[])]));
    assert!(subnets(&mut next).contains(&r#"new {"default":["10.244.3.0/24"]}"#.to_owned()));
    next.observe(Seen::Applied(node("b", 6, &[])));
    next.observe(Seen::Applied(node("c", 7, &[])));
    assert_eq!(
        subnets(&mut next),
        [r#"b {"default":["10.244.1.0/24"]}"#, r#"c {"default":["10.244.2.0/24"]}"#]
    );
}

/// A record that is wrong, or that came later than the nodes' own, takes nothing from a node.
#[test]
fn what_a_node_claims_goes_before_what_is_kept_for_one_that_is_gone() {
    let claim = ("k8s.ovn.org/node-subnets", r#"{"default":["10.244.0.0/24"]}"#);
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    all.restore(BTreeMap::from([(
        "gone".to_owned(),
        FormerNode::due(vec![net("10.244.0.0/24")], i64::MAX),
    )]));
    all.observe(Seen::All(vec![node("a", 1, &[claim])]));
    assert_eq!((all.troubles().count(), all.take_former()), (0, Some(FormerNodes::new())));
    all.observe(Seen::Deleted("a".into()));
    all.observe(Seen::Applied(node("b", 2, &[claim])));
    assert_eq!((all.troubles().count(), all.nodes["b"].subnets[0]), (0, net("10.244.0.0/24")));
}

#[test]
fn only_so_many_nodes_that_are_gone_are_remembered() {
    let mut all = assignments(&[("10.0.0.0/8", 24)]);
    all.observe(Seen::All(Vec::new()));
    for number in 0..former::MOST + 3 {
        let name = format!("n{number}");
        all.at(i64::try_from(number).unwrap());
        all.observe(Seen::Applied(node(&name, 1, &[])));
        all.observe(Seen::Deleted(name.as_str().into()));
    }
    let record = all.take_former().unwrap();
    assert_eq!(
        (record.len(), record.contains_key("n2"), record.contains_key("n3")),
        (former::MOST, false, true)
    );
    assert!(all.subnets.claim(&"x".into(), net("10.0.2.0/24")).is_ok(), "n2's is free");
}

#[test]
fn who_claims_what_another_has_is_told_and_left_as_it_is() {
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    let claim = [
        ("k8s.ovn.org/node-subnets", r#"{"default":["10.244.0.0/24"]}"#),
        ("k8s.ovn.org/node-id", "7"),
    ];
    all.observe(Seen::All(vec![node("a", 2, &claim), node("b", 1, &claim)]));
    let wishes: Vec<_> =
        all.take_annotations().into_iter().map(|wish| wish.node.to_string()).collect();
    assert_eq!(wishes, ["b"], "for join and transit");
    let troubles: Vec<String> = all
        .take_problems()
        .iter()
        .map(|trouble| format!("{}: {}", trouble.object.name(), trouble.note))
        .collect();
    assert_eq!(
        troubles,
        [
            "a: its annotation k8s.ovn.org/node-subnets claims 10.244.0.0/24, which overlaps 10.244.0.0/24 of node b; delete the annotation of one of both",
            "a: its annotation k8s.ovn.org/node-id claims 7, which node b has; delete the annotation of one of both",
        ]
    );
    all.observe(Seen::Deleted("b".into()));
    assert_eq!(
        (all.troubles().count(), all.nodes["a"].id, all.nodes["a"].subnets.len()),
        (0, Some(7), 1)
    );
}

/// Its pods have addresses of the subnet that it had, which went to the next node otherwise.
#[test]
fn a_node_whose_annotation_claims_what_another_has_keeps_its_own() {
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    let [first, second, third] = [node("n1", 1, &[]), node("n2", 2, &[]), node("n3", 3, &[])];
    all.observe(Seen::All(vec![first.clone(), second.clone()]));
    for NodeAnnotation { node, annotations, .. } in all.take_annotations() {
        let shown = if &*node == "n1" { &first } else { &second };
        all.observe(Seen::Applied(version(&with(shown, &annotations), "2")));
    }
    let theirs = with(
        &first,
        &BTreeMap::from([(NODE_SUBNETS, r#"{"default":["10.244.1.0/24"]}"#.to_owned())]),
    );
    all.observe(Seen::Applied(version(&theirs, "3")));
    assert!(subnets(&mut all).iter().all(|wish| wish.ends_with('-')), "an administrator decides");
    assert_eq!(all.nodes["n1"].subnets[0].to_string(), "10.244.0.0/24");
    assert!(
        all.troubles()
            .any(|(name, why)| &**name == "n1" && matches!(why, NodeProblem::SubnetTaken { .. }))
    );
    all.observe(Seen::Applied(third));
    assert_eq!(subnets(&mut all), [r#"n3 {"default":["10.244.2.0/24"]}"#]);
    all.observe(Seen::Deleted("n2".into()));
    assert_eq!(
        (all.troubles().count(), all.nodes["n1"].subnets[0].to_string()),
        (0, "10.244.1.0/24".to_owned())
    );
    let former = [("k8s.ovn.org/node-subnets", r#"{"default":["10.244.0.0/24"]}"#)];
    all.observe(Seen::Applied(node("n4", 4, &former)));
    assert_eq!(all.troubles().count(), 0, "n1's former subnet is free");
}

/// A list tells of both at once, and the first one is read first.
#[test]
fn a_claim_to_what_a_later_node_of_the_list_gives_up_is_granted() {
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    let claim = |subnet: u8| format!(r#"{{"default":["10.244.{subnet}.0/24"]}}"#);
    let with_subnet = |name: &str, created: u8, subnet: u8| {
        node(name, created, &[("k8s.ovn.org/node-subnets", &claim(subnet))])
    };
    all.observe(Seen::All(vec![with_subnet("n2", 2, 1)]));
    all.observe(Seen::All(vec![
        with_subnet("n1", 1, 1),
        with_subnet("n2", 2, 7),
        node("n3", 3, &[]),
    ]));
    assert_eq!(all.troubles().count(), 0);
    assert_eq!(all.nodes["n1"].subnets[0].to_string(), "10.244.1.0/24");
}

#[test]
fn nodes_without_subnet_and_unreadable_ones() {
    let rules = NodeRules { without_subnet: Some(kubeapi::selector::parse("name=w").unwrap()) };
    let mut all = NodeAssignments::new(config(&[("10.244.0.0/16", 24)]), rules);
    let unreadable = [("k8s.ovn.org/node-subnets", "{"), ("k8s.ovn.org/node-id", "-1")];
    all.observe(Seen::All(vec![node("w", 1, &[]), node("x", 2, &unreadable)]));
    assert_eq!(subnets(&mut all), ["w -"]);
    let reasons: Vec<_> =
        all.troubles().map(|(name, trouble)| (name.to_string(), trouble.reason())).collect();
    assert_eq!(
        reasons,
        [("x".to_owned(), "UnreadableAnnotation"), ("x".to_owned(), "UnreadableAnnotation")]
    );
}

/// A typo in an annotation kept its node without a subnet until an administrator corrected it.
#[test]
fn what_was_readable_before_is_written_over_what_cannot_be_read() {
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    let subnets = r#"{"blue":["10.9.0.0/24"],"default":["10.244.7.0/24"]}"#;
    let first = node("n1", 1, &[(NODE_SUBNETS, subnets), (NODE_ID, "7")]);
    all.observe(Seen::All(vec![first.clone()]));
    let rest = all.take_annotations().remove(0).annotations;
    let whole = with(&first, &rest);
    all.observe(Seen::Applied(whole.clone()));
    assert_eq!(all.take_annotations(), []);
    for garbled in ["{", r#"{"blue":["10.9.0.0/24"],"default":["10.244.7.0/240"]}"#] {
        let join = "k8s.ovn.org/node-gateway-router-lrp-ifaddrs";
        let garble = BTreeMap::from([
            (NODE_SUBNETS, garbled.to_owned()),
            (NODE_ID, "seven".to_owned()),
            (join, "nothing".to_owned()),
        ]);
        let garbled = with(&whole, &garble);
        all.observe(Seen::Applied(garbled.clone()));
        assert_eq!(all.troubles().count(), 0);
        let repaired = with(&garbled, &all.take_annotations().remove(0).annotations);
        assert_eq!(repaired.annotations, whole.annotations);
        all.observe(Seen::Applied(repaired));
        assert_eq!((all.take_annotations(), all.troubles().count()), (vec![], 0));
    }
}

/// Two nodes with one number have one tunnel key and one address between zones.
#[test]
fn between_zones_a_number_that_is_anothers_or_no_nodes_is_replaced_and_a_former_one_comes_last() {
    let config =
        ClusterConfig { interconnect: Interconnect::On, ..config(&[("10.244.0.0/16", 24)]) };
    let mut all = NodeAssignments::new(config, NodeRules::default());
    let with_id = |name, created, id| node(name, created, &[("k8s.ovn.org/node-id", id)]);
    // A key of a tunnel is less than 32768.
    let nodes = [with_id("a", 1, "2"), with_id("b", 2, "2"), with_id("c", 3, "40000")];
    all.observe(Seen::All(nodes.to_vec()));
    let ids = |all: &mut NodeAssignments| -> Vec<(String, Option<String>)> {
        let annotations = all.take_annotations().into_iter();
        annotations
            .map(|wish| (wish.node.to_string(), wish.annotations.get(NODE_ID).cloned()))
            .collect()
    };
    let id = |id: &str| Some(id.to_owned());
    assert_eq!(
        ids(&mut all),
        [("a".to_owned(), None), ("b".to_owned(), id("3")), ("c".to_owned(), id("4"))]
    );
    assert_eq!(all.troubles().count(), 0);
    // The event shows the node as it was before.
    all.observe(Seen::Applied(nodes[1].clone()));
    assert_eq!(all.nodes["b"].id, Some(3));
    all.observe(Seen::Deleted("a".into()));
    all.observe(Seen::Applied(node("d", 5, &[])));
    assert_eq!(all.nodes["d"].id, Some(5), "2 was another node's a moment ago");
}

/// A free number was not given while others had never been: a join subnet of 254 addresses was used
/// up by nodes that had gone.
#[test]
fn a_number_is_given_again_at_once_in_a_single_zone_and_before_there_is_no_room_between_zones() {
    for (interconnect, last) in [(Interconnect::Off, 2), (Interconnect::On, 255)] {
        let join_subnets = vec!["100.64.0.0/24".parse().unwrap()];
        let config =
            ClusterConfig { interconnect, join_subnets, ..config(&[("10.244.0.0/16", 24)]) };
        let mut all = NodeAssignments::new(config, NodeRules::default());
        all.observe(Seen::All(Vec::new()));
        let mut given = BTreeSet::new();
        for number in 0..600 {
            let name = format!("n{number}");
            all.observe(Seen::Applied(node(&name, 1, &[])));
            given.insert(all.nodes[name.as_str()].id.unwrap());
            all.observe(Seen::Deleted(name.as_str().into()));
        }
        assert_eq!(given, (2..=last).collect(), "{interconnect:?}");
    }
}

/// Id 1 is the cluster router's address on the join switch: a node and the router had it.
#[test]
fn ids_that_are_not_for_nodes_are_refused_and_told() {
    for id in ["0", "1"] {
        let mut all = assignments(&[("10.244.0.0/16", 24)]);
        all.observe(Seen::All(vec![node("n1", 1, &[(NODE_ID, id)]), node("n2", 2, &[])]));
        let reasons: Vec<_> =
            all.troubles().map(|(name, trouble)| (name.to_string(), trouble.reason())).collect();
        assert_eq!(reasons, [("n1".to_owned(), "NodeIdReserved")]);
        let written = all.take_annotations();
        assert!(!written[0].annotations.contains_key(NODE_ID), "{written:?}");
        assert_eq!(written[1].annotations[NODE_ID], "2");
    }
}

/// Other `--gateway-v4-join-subnet` or `--cluster-manager-v4-transit-subnet`: all nodes got other
/// addresses at once.
#[test]
fn nodes_keep_join_and_transit_addresses_of_other_subnets_until_somebody_deletes_the_annotation() {
    let first = |number: u8, id: &str| node(&format!("n{number}"), number, &[(NODE_ID, id)]);
    let mut before = assignments(&[("10.244.0.0/16", 24)]);
    before.observe(Seen::All(vec![first(1, "4"), first(2, "5")]));
    let wishes = before.take_annotations();
    let nodes = [
        with(&first(1, "4"), &wishes[0].annotations),
        with(&first(2, "5"), &wishes[1].annotations),
    ];

    let other = ClusterConfig {
        join_subnets: vec!["100.72.0.0/16".parse().unwrap(), "fd98::/64".parse().unwrap()],
        transit_subnets: vec!["100.99.0.0/16".parse().unwrap()],
        ..config(&[("10.244.0.0/16", 24)])
    };
    let mut after = NodeAssignments::new(other, NodeRules::default());
    after.observe(Seen::All([&nodes[..], &[first(3, "6")]].concat()));
    let wishes = after.take_annotations();
    assert_eq!(wishes.iter().map(|wish| &*wish.node).collect::<Vec<_>>(), ["n3"]);
    assert!(wishes[0].annotations[JOIN_ADDRESSES].contains("100.72.0.6/16"), "{wishes:?}");
    let told: Vec<String> = after
        .take_problems()
        .iter()
        .map(|trouble| format!("{}: {}", trouble.object.name(), trouble.note))
        .collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].starts_with("n1: its address 100.64.0.4/16 in the annotation"), "{told:?}");

    // Node by node.
    let mut annotations: BTreeMap<String, String> = (*nodes[0].annotations).clone();
    annotations.retain(|name, _| ![JOIN_ADDRESSES, TRANSIT_ADDRESSES].contains(&&**name));
    after.observe(Seen::Applied(Node {
        annotations: annotations.into(),
        join: vec![],
        transit: vec![],
        ..nodes[0].clone()
    }));
    let wish = &after.take_annotations()[0];
    assert_eq!(&*wish.node, "n1");
    assert!(wish.annotations[JOIN_ADDRESSES].contains("100.72.0.4/16"), "{wish:?}");
    assert!(wish.annotations[TRANSIT_ADDRESSES].contains("100.99.0.4/16"), "{wish:?}");

    // An address of no earlier start is no reason to wait.
    let garbled = with(
        &nodes[1],
        &BTreeMap::from([(TRANSIT_ADDRESSES, r#"{"ipv4":"10.1.1.1/16"}"#.to_owned())]),
    );
    after.observe(Seen::Applied(garbled));
    let wish = &after.take_annotations()[0];
    assert!(wish.annotations[TRANSIT_ADDRESSES].contains("100.99.0.5/16"), "{wish:?}");
}

/// A change of `--cluster-subnets` was silently ignored for existing nodes.
#[test]
fn nodes_outside_of_the_cluster_subnets_keep_what_they_have_and_are_told() {
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    let old = r#"{"default":["10.9.3.0/24","fd00:9::/64"]}"#;
    all.observe(Seen::All(vec![node("n1", 1, &[(NODE_SUBNETS, old)]), node("n2", 2, &[])]));
    let troubles: Vec<_> = all
        .take_problems()
        .into_iter()
        .map(|trouble| (trouble.object.name().to_owned(), trouble.reason))
        .collect();
    assert_eq!(
        troubles,
        [
            ("n1".to_owned(), "OutsideOfClusterSubnets"),
            ("n1".to_owned(), "OutsideOfClusterSubnets")
        ]
    );
    let written = all.take_annotations();
    let of_n1 = written.iter().find(|annotation| &*annotation.node == "n1").unwrap();
    assert!(of_n1.annotations.get(NODE_SUBNETS).is_none_or(|text| text.contains("10.9.3.0/24")));
}

#[test]
fn the_legacy_annotation_is_written_on_request() {
    let mut all = NodeAssignments::new(
        ClusterConfig { legacy_annotations: true, ..config(&[("10.244.0.0/16", 24)]) },
        NodeRules::default(),
    );
    all.observe(Seen::All(vec![node("a", 1, &[])]));
    assert_eq!(all.take_annotations()[0].annotations["ovn_host_subnet"], "10.244.0.0/24");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_two_nodes_have_the_same_and_whoever_lacks_something_is_told(steps in vec((0_u8..5, 0_u8..6, 0_u8..10), 0..40)) {
        let mut all = assignments(&[("10.0.0.0/22", 24)]);
        let mut world: BTreeMap<NodeName, Node> = BTreeMap::new();
        all.observe(Seen::All(vec![]));
        for (kind, number, other) in steps {
            let name: NodeName = format!("n{number}").into();
            match kind {
                0 => { world.insert(Arc::clone(&name), node(&name, other, &[])); }
                1 => {
                    let text = format!(r#"{{"default":["10.0.{other}.0/24"]}}"#);
                    world.insert(Arc::clone(&name), node(&name, other, &[("k8s.ovn.org/node-subnets", &text), ("k8s.ovn.org/node-id", &other.to_string())]));
                }
                2 => { world.remove(&name); }
                3 => for NodeAnnotation { node, uid, version: _, annotations } in all.take_annotations() {
                    if let Some(known) = world.get_mut(&node).filter(|known| known.uid == uid) {
                        *known = with(known, &annotations);
                        let seen = known.clone();
                        all.observe(Seen::Applied(seen));
                    }
                },
                _ => {
                    all = assignments(&[("10.0.0.0/22", 24)]);
                    all.observe(Seen::All(world.values().cloned().collect()));
                }
            }
            match world.get(&name) {
                Some(node) => all.observe(Seen::Applied(node.clone())),
                None => all.observe(Seen::Deleted(name)),
            }
            let mut subnets = BTreeSet::new();
            let mut ids = BTreeSet::new();
            for (name, known) in &all.nodes {
                prop_assert!(known.subnets.iter().all(|subnet| subnets.insert(*subnet)));
                prop_assert!(known.id.is_none_or(|id| ids.insert(id)));
let lacks = known.subnets.is_empty() || known.id.is_none();
                prop_assert!(!lacks || !known.troubles.is_empty(), "{} {:?}", name, known);
            }
        }
    }
}

/// The node with another resource version.
fn version(node: &Node, version: &str) -> Node {
    Node { version: version.into(), ..node.clone() }
}

#[test]
fn what_is_on_its_way_to_an_older_version_of_a_node_is_sent_again() {
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    let plain = node("n1", 1, &[]);
    all.observe(Seen::All(vec![version(&plain, "1")]));
    let first = all.take_annotations();
    assert_eq!(&*first[0].version, "1");
    all.observe(Seen::Applied(version(&plain, "1")));
    assert_eq!(all.take_annotations(), []);
    all.observe(Seen::Applied(version(&plain, "2")));
    let [again] = &all.take_annotations()[..] else {
        panic!("the node has changed before it was written")
    };
    assert_eq!((&*again.version, &again.annotations), ("2", &first[0].annotations));
    all.observe(Seen::Applied(version(&with(&plain, &again.annotations), "3")));
    all.observe(Seen::Applied(version(&with(&plain, &again.annotations), "4")));
    assert_eq!(all.take_annotations(), [], "nothing is missing");
}

/// Such a request has the whole set. The id in it stayed: after a restart the younger node had
/// none, and a third node got its number and its address on the join switch.
#[test]
fn a_claim_of_a_former_leader_that_came_late_is_overwritten() {
    let mut all = assignments(&[("10.244.0.0/16", 24)]);
    let [first, second] = [node("n1", 1, &[]), node("n2", 2, &[])];
    all.observe(Seen::All(vec![first.clone(), second.clone()]));
    let [of_first, of_second] = &all.take_annotations()[..] else { panic!("two nodes") };
    let names: Vec<&str> = of_first.annotations.keys().copied().collect();
    assert_eq!(names, [JOIN_ADDRESSES, NODE_ID, NODE_SUBNETS, TRANSIT_ADDRESSES]);
    // The former leader had assigned to the first node what the second has, and its request arrives
    // now.
    let late = with(&first, &of_second.annotations);
    all.observe(Seen::Applied(version(&late, "2")));
    let again = all.take_annotations();
    let again: Vec<_> = again.iter().map(|wish| (&*wish.node, &wish.annotations)).collect();
    assert_eq!(again, [("n1", &of_first.annotations)]);
    assert_eq!(all.troubles().count(), 0);
    let written = with(&late, &of_first.annotations);
    all.observe(Seen::Applied(version(&written, "3")));
    assert_eq!((all.take_annotations(), all.troubles().count()), (vec![], 0));

    // After a restart a third node gets what is free.
    let second = with(&second, &of_second.annotations);
    let mut restarted = assignments(&[("10.244.0.0/16", 24)]);
    restarted.observe(Seen::All(vec![written.clone(), second, node("n3", 3, &[])]));
    let [of_third] = &restarted.take_annotations()[..] else { panic!("one node lacks something") };
    assert_eq!((&*of_third.node, of_third.annotations[NODE_ID].as_str()), ("n3", "4"));
    assert!(of_third.annotations[JOIN_ADDRESSES].contains("100.64.0.4/16"), "{of_third:?}");
    assert_eq!(restarted.troubles().count(), 0);

    // The same claim later is an administrator's, and is reported instead of being overwritten.
    all.observe(Seen::Applied(version(&late, "4")));
    let told: Vec<&NodeProblem> = all.troubles().map(|(_, trouble)| trouble).collect();
    assert!(
        matches!(told[..], [NodeProblem::SubnetTaken { .. }, NodeProblem::IdTaken { .. }]),
        "{told:?}"
    );
}
