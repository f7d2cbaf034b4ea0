//! What the ACLs of an EgressFirewall match, in upstream's words.

use serde_json::json;

use crate::kinds::{
    egress_firewall::object::EgressFirewall,
    tests::{config, page::column, store_of},
};

use super::*;

/// The priority, the action and the match of each ACL, without the match of the group.
fn acls(dual: bool, egress: Json) -> Vec<String> {
    acls_after(dual, egress, |_| ())
}

/// The same after a start that has found something in the database.
fn acls_after(dual: bool, egress: Json, find: impl FnOnce(&mut Store)) -> Vec<String> {
    let nodes = json!({"items": [{"metadata": {"name": "n1", "labels": {"role": "edge"}, "annotations": {
        "k8s.ovn.org/node-subnets": r#"{"default":["10.244.1.0/24"]}"#, "k8s.ovn.org/zone-name": "global",
        "k8s.ovn.org/host-cidrs": r#"["172.18.0.10/16","172.18.0.9/16","fc00:f853::9/64"]"#}}}]});
    let mut store = store_of(config(dual), &nodes, &json!({"items": []}));
    find(&mut store);
    let firewall = EgressFirewall::new("uid", json!({ "egress": egress }), json!({}));
    let seen = Seen::Applied(("shop".into(), firewall));
    store.observe(WatchEvent::custom(seen), &mut |_, _| ());
    store.decide_on_lists_of_nodes();
    let rows = crate::kinds::egress_firewall::rows::egress_firewall(&store, &"shop".into());
    let acl = |row: &DesiredRow| {
        assert_eq!(column(row, "direction"), "to-lport");
        let group = contract::ovn::ObjectId::namespace_group("shop").hashed();
        let matching = column(row, "match").replace(&format!(" && inport == @{group}"), " @");
        format!("{} {} {matching}", column(row, "priority"), column(row, "action"))
    };
    rows.iter().filter(|row| row.id.table == crate::rows::Table::Acl).map(acl).collect()
}

#[test]
fn addresses_of_pods_are_excluded_and_no_others() {
    let to = |net: &str| json!({"type": "Deny", "to": {"cidrSelector": net}});
    assert_eq!(
        acls(
            true,
            json!([
                to("0.0.0.0/0"),
                to("10.0.0.0/8"),
                to("10.244.9.0/24"),
                to("192.0.2.7/24"),
                to("::/0")
            ])
        ),
        [
            "10000 drop (ip4.dst == 0.0.0.0/0 && ip4.dst != 10.244.0.0/16) @",
            "9999 drop (ip4.dst == 10.0.0.0/8 && ip4.dst != 10.244.0.0/16) @",
            "9998 drop (ip4.dst == 10.244.9.0/24 && ip4.dst != 10.244.0.0/16) @",
            "9997 drop (ip4.dst == 192.0.2.0/24) @",
            "9996 drop (ip6.dst == ::/0 && ip6.dst != fd00:10:244::/48) @",
        ]
    );
}

#[test]
fn ports_are_those_of_the_rule_and_a_protocol_without_a_number_has_all() {
    let ports = json!([{"protocol": "TCP", "port": 80}, {"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 443},
        {"protocol": "SCTP"}]);
    assert_eq!(
        acls(
            false,
            json!([{"type": "Allow", "to": {"cidrSelector": "192.0.2.0/24"}, "ports": ports}])
        ),
        ["10000 allow (ip4.dst == 192.0.2.0/24) @ && ((udp && ( udp.dst == 53 )) || \
          (tcp && ( tcp.dst == 80 || tcp.dst == 443 )) || (sctp))"]
    );
}

#[test]
fn a_rule_about_nodes_names_their_set_and_without_such_nodes_has_no_effect() {
    let set = |family| {
        contract::ovn::hash(&format!(
            "default-network-controller:NodeSelector:LS{{ML:{{role: edge,}},}}:{family}"
        ))
    };
    let (v4, v6) = (set("v4"), set("v6"));
    assert_eq!(
        acls(true, json!([to_nodes("none"), to_nodes("edge")])),
        [format!("9999 allow (ip4.dst == ${v4} || ip6.dst == ${v6}) @")]
    );
}

#[test]
fn a_rule_that_lists_the_nodes_of_now_in_the_database_keeps_its_list_in_upstreams_words() {
    let list = ["172.18.0.9", "172.18.0.10", "fc00:f853::9"].map(|text| text.parse().unwrap());
    let listed = "ip4.dst == 172.18.0.10 || ip4.dst == 172.18.0.9 || ip6.dst == fc00:f853::9";
    let acl = acls_after(true, json!([to_nodes("edge")]), |store| {
        store.found_list(("shop".into(), 0), list)
    });
    assert_eq!(acl, [format!("10000 allow ({listed}) @")]);
    let acl = acls_after(true, json!([to_nodes("edge")]), |store| {
        store.found_list(("shop".into(), 0), list[..2].iter().copied());
    });
    assert!(acl[0].starts_with("10000 allow (ip4.dst == $"), "it lacks an address: {acl:?}");
}

fn to_nodes(role: &str) -> Json {
    json!({"type": "Allow", "to": {"nodeSelector": {"matchLabels": {"role": role}}}})
}

#[test]
fn a_rule_that_cannot_be_used_is_left_out_or_denies_everything_in_its_place() {
    let to = |kind: &str, net: &str| json!({"type": kind, "to": {"cidrSelector": net}});
    let rules =
        json!([to("Allow", "nonsense"), to("Allow", "192.0.2.0/24"), to("Deny", "nonsense")]);
    assert_eq!(
        acls(true, rules),
        [
            "9999 allow (ip4.dst == 192.0.2.0/24) @",
            "9998 drop ((ip4.dst == 0.0.0.0/0 && ip4.dst != 10.244.0.0/16) || \
             (ip6.dst == ::/0 && ip6.dst != fd00:10:244::/48)) @",
        ]
    );
}

#[test]
fn a_rule_about_a_name_has_the_sets_of_both_families() {
    let rules = json!([{"type": "Allow", "to": {"dnsName": "www.example.org"}}]);
    let set = |family| {
        contract::ovn::hash(&format!(
            "default-network-controller:EgressFirewallDNS:www.example.org:{family}"
        ))
    };
    let (v4, v6) = (set("v4"), set("v6"));
    assert_eq!(
        acls(true, rules.clone()),
        [format!("10000 allow (ip4.dst == ${v4} || ip6.dst == ${v6}) @")]
    );
    assert_eq!(acls(false, rules), [format!("10000 allow (ip4.dst == ${v4}) @")]);
}
