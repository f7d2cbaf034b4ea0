//! The rows of multicast, in upstream's words.

use serde_json::json;

use crate::{
    config::Multicast,
    kinds::{
        namespace::object::Namespace,
        tests::{config, page::column, store_of},
    },
    rows::RowSet,
};

use super::*;

/// A cluster with a node, and with multicast in the namespace `shop`.
fn store(dual: bool, multicast: Multicast) -> Store {
    let subnets =
        if dual { r#"["10.244.1.0/24","fd00:10:244:1::/64"]"# } else { r#"["10.244.1.0/24"]"# };
    let nodes = json!({"items": [{"metadata": {"name": "n1", "annotations": {
        "k8s.ovn.org/node-subnets": format!(r#"{{"default":{subnets}}}"#),
        "k8s.ovn.org/zone-name": "global"}}}]});
    let mut store =
        store_of(ClusterConfig { multicast, ..config(dual) }, &nodes, &json!({"items": []}));
    let namespace = Namespace { multicast: Multicast::On, ..Namespace::default() };
    let seen = Seen::Applied(("shop".into(), namespace));
    store.observe(WatchEvent::Namespaces(seen), &mut |_, _| ());
    store
}

/// The rules about multicast among the rows: id, place, direction, priority, action and match.
fn rules(rows: &RowSet) -> Vec<String> {
    let line = |row: &DesiredRow| {
        let after_lb = row.columns.iter().any(|(column, _)| *column == "options");
        assert_eq!(after_lb, column(row, "direction") == "from-lport", "{row:?}");
        let [direction, priority, action, matching] =
            ["direction", "priority", "action", "match"].map(|name| column(row, name));
        let id = row.id.name.strip_prefix("default-network-controller:").unwrap();
        format!("{id} in {}: {direction} {priority} {action} {matching}", row.member_of[0].of.name)
    };
    rows.iter().filter(|row| row.id.name.contains("Multicast")).map(line).collect()
}

fn pairs<'a>(rows: &'a RowSet, row: &str, name: &str) -> &'a Pairs {
    let row = rows.iter().find(|own| *own.id.name == *row).unwrap();
    let value = row.columns.iter().find(|(column, _)| *column == name).map(|(_, value)| value);
    let Some(Value::Pairs(pairs)) = value else { panic!("{value:?}") };
    pairs
}

const ALL: &str =
    "(ip4.mcast || mldv1 || mldv2 || (ip6.dst[120..127] == 0xff && ip6.dst[116] == 1))";

#[test]
fn all_multicast_is_dropped_but_that_between_switches() {
    let rows = desired(&store(false, Multicast::On), &Key::Cluster);
    let (of_all, of_routers) = ("a13298398610555951118", "a4743249366342378346");
    assert_eq!(
        rules(&rows),
        [
            format!("MulticastCluster:DefaultDeny:Ingress in {of_all}: to-lport 1011 drop {ALL}"),
            format!(
                "MulticastCluster:AllowInterNode:Ingress in {of_routers}: to-lport 1012 allow outport == \
                 @{of_routers} && {ALL}"
            ),
            format!("MulticastCluster:DefaultDeny:Egress in {of_all}: from-lport 1011 drop {ALL}"),
            format!(
                "MulticastCluster:AllowInterNode:Egress in {of_routers}: from-lport 1012 allow inport == \
                 @{of_routers} && {ALL}"
            ),
        ]
    );
}

/// Names and matches are those in upstream's documentation.
#[test]
fn pods_of_a_namespace_send_join_and_hear_each_other() {
    let group = contract::ovn::ObjectId::namespace_group("shop").hashed();
    let set = |family: &str| {
        contract::ovn::hash(&format!("default-network-controller:Namespace:shop:{family}"))
    };
    let (v4, v6) = (set("v4"), set("v6"));
    let transient = "(ip6.dst[120..127] == 0xff && ip6.dst[116] == 1)";
    let heard_v4 = format!("(igmp || (ip4.src == ${v4} && ip4.mcast))");
    let heard_v6 = format!("(mldv1 || mldv2 || (ip6.src == ${v6} && {transient}))");
    let sent_v6 = format!("(mldv1 || mldv2 || {transient})");
    for (dual, heard, sent) in [
        (false, heard_v4.clone(), "ip4.mcast".to_owned()),
        (true, format!("({heard_v4} || {heard_v6})"), format!("(ip4.mcast || {sent_v6})")),
    ] {
        let rows = desired(&store(dual, Multicast::On), &Key::Namespace("shop".into()));
        assert_eq!(
            rules(&rows),
            [
                format!(
                    "MulticastNS:shop:Ingress in {group}: to-lport 1012 allow outport == @{group} && {heard}"
                ),
                format!(
                    "MulticastNS:shop:Egress in {group}: from-lport 1012 allow inport == @{group} && {sent}"
                ),
            ]
        );
        let needs: Vec<&str> =
            rows.iter().flat_map(|row| &row.needs).map(|set| &*set.name).collect();
        let sets: &[&str] = if dual { &[&v4, &v6] } else { &[&v4] };
        assert_eq!(needs, sets, "a rule waits for the sets that it names");
    }
}

#[test]
fn a_switch_asks_in_the_name_of_its_router_and_the_router_carries_what_it_gets() {
    let config = |dual, multicast| {
        let rows = desired(&store(dual, multicast), &Key::Node("n1".into()));
        let groups =
            rows.iter().find(|row| *row.id.name == *"stor-n1").unwrap().member_of.len() - 1;
        let pairs = pairs(&rows, "n1", "other_config").clone();
        let of_multicast = |(key, value): (&&'static str, &String)| {
            key.starts_with("mcast").then(|| format!("{key}={value}"))
        };
        (pairs.with.iter().filter_map(of_multicast).collect::<Vec<String>>(), pairs.without, groups)
    };
    let v4 = [
        "mcast_eth_src=0a:58:0a:f4:01:01",
        "mcast_ip4_src=10.244.1.1",
        "mcast_querier=true",
        "mcast_snoop=true",
    ];
    let (with, without, groups) = config(false, Multicast::On);
    assert_eq!(
        (with.as_slice(), without.contains(&"mcast_ip6_src"), groups),
        (&v4.map(str::to_owned)[..], true, 1)
    );
    let (with, _, _) = config(true, Multicast::On);
    assert!(with.contains(&"mcast_ip6_src=fe80::858:aff:fef4:101".to_owned()), "{with:?}");
    let (with, without, groups) = config(true, Multicast::Off);
    let all = ["mcast_eth_src", "mcast_ip4_src", "mcast_ip6_src", "mcast_querier", "mcast_snoop"];
    assert!(
        with.is_empty() && all.iter().all(|key| without.contains(key)) && groups == 0,
        "{with:?} {without:?}"
    );

    let [on, off] = [Multicast::On, Multicast::Off].map(|multicast| {
        pairs(&desired(&store(false, multicast), &Key::Cluster), "ovn_cluster_router", "options")
            .clone()
    });
    assert_eq!(on.with, [("mcast_relay", "true".to_owned())].into());
    assert_eq!(on.initially.keys().collect::<Vec<_>>(), [&"always_learn_from_arp_request"]);
    assert!(
        off.without == ["mcast_relay"] && off.with.contains_key("always_learn_from_arp_request")
    );
}

#[test]
fn without_the_option_the_annotation_has_no_rows() {
    let store = store(true, Multicast::Off);
    assert_eq!(desired(&store, &Key::Namespace("shop".into())), []);
    assert!(rules(&desired(&store, &Key::Cluster)).is_empty());
    assert!(!store.keys().any(|key| matches!(key, Key::Namespace(_) | Key::Set(_))));
}

/// Upstream fills the set of this namespace with addresses of hosts.
#[test]
fn the_namespace_of_hosts_has_no_multicast() {
    let mut store = store(false, Multicast::On);
    let namespace = Namespace { multicast: Multicast::On, ..Namespace::default() };
    let seen = Seen::Applied((contract::ovn::HOST_NETWORK_NAMESPACE.into(), namespace));
    store.observe(WatchEvent::Namespaces(seen), &mut |_, _| ());
    assert_eq!(desired(&store, &Key::Namespace(contract::ovn::HOST_NETWORK_NAMESPACE.into())), []);
}
