use super::*;
use crate::{
    config::{ClusterConfig, Interconnect, Zone},
    key::Key,
    kinds::node::{remote_chassis::remote_chassis, rows},
    rows::Table,
    watch_event::{Seen, WatchEvent},
    world::Kept,
};

fn node(name: &str, id: u16, zone: &str) -> Node {
    Node {
        uid: name.into(),
        created: id.into(),
        zone: Some(Zone(zone.to_owned())),
        id: Some(id),
        subnets: vec![format!("10.128.{}.0/24", id % 256).parse().unwrap()],
        transit: vec![ovn::nth(&"100.88.0.0/16".parse().unwrap(), id.into()).unwrap()],
        chassis: Some(format!("c-{name}")),
        ..Node::named(name)
    }
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Zone `a` with these nodes, after a start with what it had of them.
fn store(interconnect: Interconnect, found: &[(&str, &str)], nodes: &[&Node]) -> Store {
    let zone = Zone("a".to_owned());
    let mut store = Store::new(ClusterConfig { zone, interconnect, ..ClusterConfig::default() });
    for (node, chassis) in found {
        store.found_chassis_of((*node).into(), (*chassis).to_owned());
    }
    let nodes = nodes.iter().map(|node| (*node).clone()).collect();
    store.observe(WatchEvent::Nodes(Seen::All(nodes)), &mut |_, _| ());
    store
}

/// The tables with rows of node `n2`, and what stays of the rows that there are.
fn of_n2(store: &Store) -> (usize, Kept) {
    (transit(store, "n2").len(), store.kept(&Key::Transit("n2".into())))
}

#[test]
fn what_cannot_be_right_of_a_node_changes_nothing_of_it() {
    let right = node("n2", 2, "b");
    assert_eq!(of_n2(&store(Interconnect::On, &[], &[&right])), (3, Kept::NOTHING));
    let with_subnet = |subnet: &str| Node { subnets: nets(&[subnet]), ..right.clone() };
    let cases = [
        // Of a tunnel's key, OVN's database takes less than 32768: ovn-northd wrote nothing more.
        node("n2", 40_000, "b"),
        // The cluster router's own address on the join switch.
        node("n2", 1, "b"),
        // That of number 258 in the cluster's subnet.
        Node { transit: vec!["100.88.1.2/24".parse().unwrap()], ..right.clone() },
        Node { transit: vec!["100.88.0.3/16".parse().unwrap()], ..right.clone() },
        // Its routes went.
        Node { subnets: Vec::new(), ..right.clone() },
        // These drew what pods send to the world, to Services and to other nodes' gateways.
        with_subnet("192.0.2.0/24"),
        with_subnet("10.0.0.0/8"),
        with_subnet("172.16.1.0/24"),
        with_subnet("100.64.0.0/24"),
        Node { chassis: None, ..right.clone() },
    ];
    for case in cases {
        let store = store(Interconnect::On, &[], &[&case]);
        assert_eq!(of_n2(&store), (0, Kept::ALL), "{case:?}");
    }
}

/// A node port of one node leads to pods of all: their answers go back to that node's host.
#[test]
fn the_source_of_what_a_host_of_another_zone_forwards_has_a_route() {
    let told = Node { forwarded_source: true, ..node("n2", 2, "b") };
    let prefixes = |node: &Node| -> Vec<String> {
        let store = store(Interconnect::On, &[], &[node]);
        let routes = transit(&store, "n2");
        let prefixes = routes
            .iter()
            .filter(|row| row.id.table == Table::StaticRoute)
            .flat_map(|row| row.columns.iter().filter(|(column, _)| *column == "ip_prefix"));
        prefixes.map(|(_, prefix)| format!("{prefix:?}")).collect()
    };
    let is_to = |to: &str| prefixes(&told).iter().any(|name| name.contains(to));
    // The last address of the join subnet less the node's number.
    assert!(is_to("100.64.255.253"), "{:?}", prefixes(&told));
    assert!(is_to("100.64.0.2") && is_to("10.128.2.0"), "{:?}", prefixes(&told));
    // Upstream's hosts have none, and nothing is written for them.
    assert_eq!(prefixes(&node("n2", 2, "b")).len(), 2);
}

/// After a restart, packets for the pods of a node went to an older one that had named its subnet
/// meanwhile.
#[test]
fn a_node_whose_subnet_another_one_names_keeps_its_routes_over_a_start() {
    let right = node("n2", 2, "b");
    let thief = Node { subnets: right.subnets.clone(), created: 1, ..node("a-thief", 3, "c") };
    for (found, rows) in [(true, [3, 0]), (false, [0, 3])] {
        let mut store = store(Interconnect::On, &[], &[]);
        if found {
            store.found_network_of(&right.name, right.subnets[0]);
        }
        let nodes = vec![thief.clone(), right.clone()];
        store.observe(WatchEvent::Nodes(Seen::All(nodes)), &mut |_, _| ());
        let of = ["n2", "a-thief"].map(|name| transit(&store, name).len());
        // Without a database the older one has it.
        assert_eq!(of, rows);
    }
}

/// Packets for the pods of another node went to the one that named its chassis.
#[test]
fn a_node_whose_chassis_another_one_names_keeps_it_over_a_start_or_has_no_rows() {
    let thief = Node { chassis: Some("c-n2".to_owned()), created: 1, ..node("a-thief", 3, "c") };
    let nodes = [&thief, &node("n2", 2, "b")];
    let known = store(Interconnect::On, &[("n2", "c-n2")], &nodes);
    assert_eq!(of_n2(&known), (3, Kept::NOTHING));
    assert_eq!(transit(&known, "a-thief").len(), 0);
    // The older one has it, and nothing leads there that is for the other.
    let unknown = store(Interconnect::On, &[], &nodes);
    assert_eq!(of_n2(&unknown), (0, Kept::NOTHING));
}

/// A node that named another's zone got a switch and a gateway there.
#[test]
fn where_each_node_is_a_zone_no_other_one_is_of_it() {
    let liar = node("n2", 2, "a");
    assert!(store(Interconnect::On, &[], &[&liar]).is_local("n2"));
    assert!(!store(Interconnect::NodeZones, &[], &[&liar]).is_local("n2"));
    assert!(store(Interconnect::NodeZones, &[], &[&node("a", 2, "a")]).is_local("a"));
}

/// Between zones, a node without the annotation may be any zone's.
#[test]
fn a_node_that_has_not_said_its_zone_is_of_the_zone_global_only_while_there_is_no_other() {
    let silent = Node { zone: None, ..node("n2", 2, "b") };
    for (interconnect, is_local) in [(Interconnect::Off, true), (Interconnect::On, false)] {
        let config = ClusterConfig { interconnect, ..ClusterConfig::default() };
        let mut store = Store::new(config);
        let nodes = Seen::All(vec![silent.clone()]);
        store.observe(WatchEvent::Nodes(nodes), &mut |_, _| ());
        assert_eq!(store.is_local("n2"), is_local, "{interconnect:?}");
    }
}

/// Others of the zone sent their packets to a node that did not know yet what they are.
#[test]
fn a_node_that_comes_is_linked_with_the_nodes_of_the_zone_once_it_is_there() {
    let next_zone = Some(Zone("a".to_owned()));
    let encap_ips = vec!["192.0.2.2".parse().unwrap()];
    let coming = Node { next_zone, encap_ips, ..node("n2", 2, "b") };
    let is_linked = |store: &Store| {
        let rows = rows::node(store, "n2");
        assert!(!rows.is_empty(), "its switch is here already");
        rows.iter().any(|row| row.id.table == Table::LogicalRouterPort)
    };
    let alone = store(Interconnect::On, &[], &[&coming]);
    assert!(is_linked(&alone));
    let beside = store(Interconnect::On, &[], &[&coming, &node("n1", 3, "a")]);
    assert!(!is_linked(&beside));
    assert_eq!(of_n2(&beside), (0, Kept::ALL), "its way over the transit switch stays");
    let is_remote = |store: &Store| remote_chassis(store).wanted.contains_key("c-n2");
    assert!(is_remote(&beside) && !is_remote(&alone), "and so does its chassis");
    // A node that is a zone takes in no other one.
    let other = store(Interconnect::NodeZones, &[], &[&coming]);
    assert!(!other.is_local("n2"));
}
