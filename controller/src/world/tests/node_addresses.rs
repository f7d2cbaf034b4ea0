//! Addresses of nodes in rules, where a start meets nodes whose annotations cannot be read.

use contract::{
    definition::CustomKind,
    names::{ClusterPolicyKey, ClusterPolicyKind},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::json;

use crate::{
    key::SetId,
    select::node_addresses::{NodePeer, RuleNodes},
};

use super::*;

const KIND: ClusterPolicyKind = ClusterPolicyKind::ClusterNetworkPolicy;
/// The canonical text of the selector of all nodes.
const ALL: &str = "LS{}";

fn address(host: u8) -> IpAddr {
    IpAddr::from([172, 18, 0, host])
}

fn nodes_set() -> SetId {
    SetId::Nodes(ALL.into())
}

/// A node with this address; none: its annotations cannot be read.
fn with_address(number: u8, host: Option<u8>) -> Node {
    let unreadable =
        Unreadable { annotation: "k8s.ovn.org/host-cidrs", why: "not JSON".to_owned() };
    Node {
        host_addresses: host.map(address).into_iter().collect(),
        unreadable: if host.is_none() { vec![unreadable] } else { Vec::new() },
        ..node(&format!("n{number}"), &format!("10.244.{number}.0/24"))
    }
}

/// A store that has found these addresses of nodes in the database, with a rule and a policy about
/// all nodes.
fn started(found: &[u8], nodes: Vec<Node>) -> Store {
    let mut store = Store::new(config());
    if !found.is_empty() {
        store.found_list(("shop".into(), 0), found.iter().copied().map(address));
        store.found_sets([(nodes_set(), found.iter().copied().map(address).collect())]);
    }
    observe(&mut store, WatchEvent::Nodes(Seen::All(nodes)));
    observe(&mut store, WatchEvent::Pods(Seen::All(Vec::new())));
    without_services(&mut store);
    let rule = json!({"type": "Allow", "to": {"nodeSelector": {}}});
    let firewall = EgressFirewall::new("uid", json!({"egress": [rule]}), json!({}));
    observe(&mut store, WatchEvent::custom(Seen::Applied(("shop".into(), firewall))));
    let spec = json!({
        "tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
        "egress": [{"action": "Accept", "to": [{"nodes": {}}]}],
    });
    let policy =
        (ClusterPolicyKey::new(KIND, "p").unwrap(), ClusterPolicy::new(KIND, "uid", 1, spec));
    observe(&mut store, WatchEvent::ClusterPolicies(KIND, Seen::Applied(policy)));
    store.decide_on_lists_of_nodes();
    store
}

/// The last numbers of the addresses of the rule, which are those of the set, too.
fn known(store: &Store) -> Vec<u8> {
    let last =
        |address: &IpAddr| address.to_string().rsplit('.').next().unwrap().parse::<u8>().unwrap();
    let of_set: BTreeSet<IpAddr> = store.set_addresses(&nodes_set()).collect();
    match of_rule(store) {
        RuleNodes::List(list) => assert_eq!(list, of_set),
        RuleNodes::Set(set) => assert_eq!(set, nodes_set()),
        RuleNodes::None => assert!(of_set.is_empty()),
    }
    of_set.iter().map(last).collect()
}

fn of_rule(store: &Store) -> RuleNodes {
    store.nodes_of_rule(&"shop".into(), 0, &NodePeer::new(&LabelSelector::default()).unwrap())
}

fn put(store: &mut Store, node: Node) -> Vec<Key> {
    let keys = observe(store, WatchEvent::Nodes(Seen::Applied(node)));
    let of_rules = |key: &Key| matches!(key, Key::Custom(_) | Key::Set(_));
    keys.into_iter().filter(of_rules).collect()
}

fn both() -> [Key; 2] {
    [Key::custom(CustomKind::EgressFirewall, "shop".into()), Key::Set(nodes_set())]
}

fn set_alone() -> [Key; 1] {
    [Key::Set(nodes_set())]
}

/// Of two nodes only the one was kept that could be read, unless neither could.
#[test]
fn addresses_of_a_node_that_cannot_be_read_at_a_start_stay_beside_those_of_others() {
    let mut store = started(&[1, 2, 3], vec![with_address(1, Some(1)), with_address(2, None)]);
    // Nothing tells whose the third one is.
    assert_eq!(known(&store), [1, 2, 3]);
    let mut dirty = put(&mut store, with_address(3, Some(3)));
    dirty.dedup();
    assert_eq!((&dirty[..], known(&store)), (&set_alone()[..], vec![1, 2, 3]));
    assert!(matches!(of_rule(&store), RuleNodes::List(_)), "the list is right");
    observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n3".into())));
    assert_eq!(known(&store), [1, 2], "a node has been read that had it, and is gone");
    put(&mut store, with_address(2, Some(4)));
    assert_eq!(known(&store), [1, 4], "what the node has now counts");
    put(&mut store, with_address(5, None));
    assert_eq!(known(&store), [1, 4], "a node that comes later has nothing in the database");
}

#[test]
fn addresses_that_no_node_has_leave_when_all_nodes_can_be_read() {
    let store = started(&[1, 9], vec![with_address(1, Some(1)), with_address(2, Some(2))]);
    assert_eq!(known(&store), [1, 2]);
    let mut store = started(&[1, 9], vec![with_address(1, Some(1)), with_address(2, None)]);
    assert_eq!(known(&store), [1, 9]);
    observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n2".into())));
    assert_eq!(known(&store), [1], "the node that could not be read is gone");
}

#[test]
fn a_node_of_a_set_comes_changes_and_leaves() {
    let mut store = started(&[], vec![with_address(1, Some(1))]);
    assert_eq!(known(&store), [1]);
    assert_eq!(put(&mut store, with_address(2, Some(2))), set_alone());
    assert_eq!(put(&mut store, with_address(2, Some(3))), set_alone());
    assert_eq!(known(&store), [1, 3]);
    assert_eq!(put(&mut store, with_address(2, Some(3))), [], "nothing has changed");
    let gone = ClusterPolicyKey::new(KIND, "p").unwrap();
    observe(&mut store, WatchEvent::custom::<EgressFirewall>(Seen::Deleted("shop".into())));
    store.settled(&Key::custom(CustomKind::EgressFirewall, "shop".into()), &mut |_, _| ());
    assert!(store.is_set(&nodes_set()), "the policy names it");
    observe(&mut store, WatchEvent::ClusterPolicies(KIND, Seen::Deleted(gone.clone())));
    assert!(store.is_set(&nodes_set()), "the rule that names it may still be there");
    let dirty = dirtied(|dirty| store.settled(&Key::from(gone), dirty));
    assert_eq!((dirty, store.is_set(&nodes_set())), (vec![Key::Set(nodes_set())], false));
    assert!(store.set_addresses(&nodes_set()).next().is_none());
}

/// Every EgressFirewall of the cluster was written again for each node.
#[test]
fn a_node_that_joins_changes_the_set_of_a_hundred_egress_firewalls_and_none_of_their_rules() {
    let mut store = started(&[], vec![with_address(1, Some(1))]);
    for number in 0..100 {
        let rule = json!({"type": "Deny", "to": {"nodeSelector": {}}});
        let firewall = EgressFirewall::new("uid", json!({"egress": [rule]}), json!({}));
        let applied = Seen::Applied((format!("other{number}").into(), firewall));
        observe(&mut store, WatchEvent::custom(applied));
    }
    assert_eq!(put(&mut store, with_address(2, Some(2))), set_alone());
}

/// What upstream wrote is right until the nodes change.
#[test]
fn a_list_of_the_database_stays_while_it_is_right_and_the_rule_names_the_set_ever_after() {
    let mut store = started(&[1], vec![with_address(1, Some(1))]);
    assert_eq!(of_rule(&store), RuleNodes::List(BTreeSet::from([address(1)])));
    let mut dirty = put(&mut store, with_address(2, Some(2)));
    dirty.sort();
    let mut expected = both();
    expected.sort();
    assert_eq!(dirty, expected);
    assert_eq!(of_rule(&store), RuleNodes::Set(nodes_set()));
    observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n2".into())));
    assert_eq!(of_rule(&store), RuleNodes::Set(nodes_set()), "the database has no list any more");
    let store = started(&[1, 2], vec![with_address(1, Some(1))]);
    assert_eq!(
        of_rule(&store),
        RuleNodes::Set(nodes_set()),
        "a node has gone while no controller ran"
    );
}

/// A set that only rules without rows would name is none.
#[test]
fn rules_about_no_node_have_neither_rows_nor_a_set_until_a_node_comes() {
    let mut store = started(&[], Vec::new());
    let gone = ClusterPolicyKey::new(KIND, "p").unwrap();
    observe(&mut store, WatchEvent::ClusterPolicies(KIND, Seen::Deleted(gone.clone())));
    store.settled(&Key::from(gone), &mut |_, _| ());
    assert_eq!((of_rule(&store), store.is_set(&nodes_set())), (RuleNodes::None, false));
    let mut dirty = put(&mut store, with_address(1, Some(1)));
    dirty.sort();
    let mut expected = both();
    expected.sort();
    assert_eq!((&dirty[..], of_rule(&store)), (&expected[..], RuleNodes::Set(nodes_set())));
    assert!(store.is_set(&nodes_set()));
    observe(&mut store, WatchEvent::Nodes(Seen::Deleted("n1".into())));
    assert_eq!(of_rule(&store), RuleNodes::None);
    assert!(store.is_set(&nodes_set()), "the row that names it is still there");
    let dirty = dirtied(|dirty| {
        store.settled(&Key::custom(CustomKind::EgressFirewall, "shop".into()), dirty)
    });
    assert!(dirty.contains(&Key::Set(nodes_set())) && !store.is_set(&nodes_set()), "{dirty:?}");
}
