//! Addresses of nodes in rules, where a start meets nodes whose annotations cannot be read.

use contract::names::{ClusterPolicyKey, ClusterPolicyKind};
use serde_json::json;

use super::*;
use crate::{
    key::SetId,
    store::{NodesOf, selector::Selector},
};

const KIND: ClusterPolicyKind = ClusterPolicyKind::ClusterNetworkPolicy;
/// The canonical text of the selector of all nodes.
const ALL: &str = "LS{}";

fn address(host: u8) -> IpAddr {
    IpAddr::from([172, 18, 0, host])
}

fn of_rule() -> NodesOf {
    NodesOf::Rule("shop".into(), 0)
}

fn of_set() -> NodesOf {
    NodesOf::Set(ALL.into())
}

fn nodes_set() -> SetId {
    SetId::Nodes(ALL.into())
}

/// A node with this address; none: its annotations cannot be read.
fn with_address(number: u8, host: Option<u8>) -> Node {
    let unreadable = Unreadable { annotation: "k8s.ovn.org/host-cidrs", why: "not JSON".to_owned() };
    Node {
        host_addresses: host.map(address).into_iter().collect(),
        unreadable: if host.is_none() { vec![unreadable] } else { Vec::new() },
        ..node(&format!("n{number}"), &format!("10.244.{number}.0/24"))
    }
}

/// A store that has found these addresses of nodes in the database, with a rule and a policy about all nodes.
fn started(found: &[u8], nodes: Vec<Node>) -> Store {
    let mut store = Store::new(config());
    for of in [of_rule(), of_set()] {
        store.found_addresses(of, found.iter().copied().map(address));
    }
    observe(&mut store, Observation::Nodes(Seen::All(nodes)));
    observe(&mut store, Observation::Pods(Seen::All(Vec::new())));
    without_services(&mut store);
    let rule = json!({"type": "Allow", "to": {"nodeSelector": {}}});
    let firewall = EgressFirewall::new("uid", json!({"egress": [rule]}), json!({}));
    observe(&mut store, Observation::EgressFirewalls(Seen::Applied(("shop".into(), firewall))));
    let spec = json!({
        "tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
        "egress": [{"action": "Accept", "to": [{"nodes": {}}]}],
    });
    let policy = (ClusterPolicyKey::new(KIND, "p").unwrap(), ClusterPolicy::new(KIND, "uid", 1, spec));
    observe(&mut store, Observation::ClusterPolicies(KIND, Seen::Applied(policy)));
    store
}

/// The last numbers of the addresses of the rule, which are those of the set, too.
fn known(store: &Store) -> Vec<u8> {
    let last = |address: &IpAddr| address.to_string().rsplit('.').next().unwrap().parse::<u8>().unwrap();
    let of_rule = store.addresses_of_rule("shop", 0, &Selector::default());
    let of_set: BTreeSet<IpAddr> = store.set_addresses(&nodes_set()).collect();
    assert_eq!(of_rule, of_set);
    of_rule.iter().map(last).collect()
}

fn put(store: &mut Store, node: Node) -> Vec<Key> {
    let keys = observe(store, Observation::Nodes(Seen::Applied(node)));
    let of_rules = |key: &Key| matches!(key, Key::EgressFirewall(_) | Key::Set(_));
    keys.into_iter().filter(of_rules).collect()
}

fn both() -> [Key; 2] {
    [Key::EgressFirewall("shop".into()), Key::Set(nodes_set())]
}

/// Of two nodes only the one was kept that could be read, unless neither could.
#[test]
fn addresses_of_a_node_that_cannot_be_read_at_a_start_stay_beside_those_of_others() {
    let mut store = started(&[1, 2, 3], vec![with_address(1, Some(1)), with_address(2, None)]);
    // Nothing tells whose the third one is.
    assert_eq!(known(&store), [1, 2, 3]);
    let mut dirty = put(&mut store, with_address(3, Some(3)));
    dirty.sort();
    dirty.dedup();
    let mut expected = both();
    expected.sort();
    assert_eq!((dirty, known(&store)), (expected.to_vec(), vec![1, 2, 3]));
    observe(&mut store, Observation::Nodes(Seen::Deleted("n3".into())));
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
    observe(&mut store, Observation::Nodes(Seen::Deleted("n2".into())));
    assert_eq!(known(&store), [1], "the node that could not be read is gone");
}

#[test]
fn a_node_of_a_set_comes_changes_and_leaves() {
    let mut store = started(&[], vec![with_address(1, Some(1))]);
    assert_eq!(known(&store), [1]);
    assert_eq!(put(&mut store, with_address(2, Some(2))), both());
    assert_eq!(put(&mut store, with_address(2, Some(3))), both());
    assert_eq!(known(&store), [1, 3]);
    assert_eq!(put(&mut store, with_address(2, Some(3))), [], "nothing has changed");
    let gone = ClusterPolicyKey::new(KIND, "p").unwrap();
    observe(&mut store, Observation::ClusterPolicies(KIND, Seen::Deleted(gone.clone())));
    assert!(store.is_set(&nodes_set()), "the rule that names it may still be there");
    let dirty = dirtied(|dirty| store.settled(&Key::from(gone), dirty));
    assert_eq!((dirty, store.is_set(&nodes_set())), (vec![Key::Set(nodes_set())], false));
    assert!(store.set_addresses(&nodes_set()).next().is_none());
}
