//! What the database should show: `desired` of a new store that observes the cluster as it is now,
//! compared here without the controller's own diff.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use controller::{
    kinds::desired,
    rows::{DesiredRow, Membership, RowName, Value, acl::spelling::spelled},
    world::Store,
};
use ovsdb::{Atom, Datum};

use crate::database::{Contents, Row};

/// Everything that is wrong with the contents; empty if they are right. Foreign rows are ignored.
pub(crate) fn wrong(store: &Store, contents: &Contents) -> Vec<String> {
    let rows: Vec<DesiredRow> = store.keys().flat_map(|key| desired(store, &key)).collect();
    let mut wrong: Vec<String> =
        rows.iter().filter_map(|row| wrong_row(row, contents).err()).collect();
    let wanted: BTreeSet<(String, String)> =
        rows.iter().map(|row| (row.id.table.name().to_owned(), row.id.name.to_string())).collect();
    let mut seen = BTreeSet::new();
    for ((table, name, uuid), row) in &contents.0 {
        let key = (table.clone(), name.clone());
        if is_ours(table, name, row, contents) && !wanted.contains(&key) {
            wrong.push(format!("{table} {name} should not be there: {row:?}"));
        }
        if wanted.contains(&key) && !seen.insert(key) {
            wrong.push(format!("{table} {name} is there twice ({uuid})"));
        }
    }
    let mut addresses = BTreeMap::new();
    for ((table, name, _), row) in
        contents.0.iter().filter(|((table, name, _), row)| is_ours(table, name, row, contents))
    {
        let address = row
            .get("addresses")
            .filter(|address| table == "Logical_Switch_Port" && *address != "router");
        let before = address.and_then(|address| addresses.insert(address, name));
        wrong.extend(
            before.map(|before| format!("{before} and {name} have one address: {address:?}")),
        );
    }
    wrong
}

/// Whether the row belongs to a controller, by upstream's names and ids.
fn is_ours(table: &str, name: &str, row: &Row, contents: &Contents) -> bool {
    let column = |column: &str| row.get(column).map_or("", String::as_str);
    let holder = |table: &str, column: &str| {
        let holds = |row: &Row| {
            row.get(column)
                .is_some_and(|value| value.split(", ").any(|part| part == format!("<{name}>")))
        };
        contents
            .0
            .iter()
            .find(|((of, _, _), row)| of == table && holds(row))
            .map(|((_, name, _), _)| name.as_str())
            .unwrap_or_default()
    };
    match table {
        "Logical_Switch_Port" => {
            let in_foreign = holder("Logical_Switch", "ports").starts_with("foreign");
            let of_pod = column("external_ids").contains("pod=true")
                && column("external_ids").contains("namespace=");
            !in_foreign
                && (of_pod || ["stor-", "k8s-", "tstor-"].iter().any(|of| name.starts_with(of)))
        }
        "Logical_Switch" => column("ports").contains(&format!("<stor-{name}>")),
        "Logical_Router_Port" => name.starts_with("rtos-") || name.starts_with("rtots-"),
        "Gateway_Chassis" => {
            holder("Logical_Router_Port", "gateway_chassis").starts_with("rtos-")
                && name.starts_with("rtos-")
        }
        "Load_Balancer" => column("external_ids").contains("k8s.ovn.org/kind=Service"),
        // Of the pods of one node, to that node's own address: `10.244.1.0/24` via `10.244.1.2`.
        "Logical_Router_Static_Route" => {
            let second = |subnet: &str| match subnet.parse().ok()? {
                ipnet::IpNet::V4(v4) => v4.hosts().nth(1).map(IpAddr::from),
                // These begin with the network's own address.
                ipnet::IpNet::V6(v6) => v6.hosts().nth(2).map(IpAddr::from),
            };
            let of_pods = column("policy") == "src-ip"
                && second(column("ip_prefix"))
                    .is_some_and(|second| second.to_string() == column("nexthop"));
            // Answers to what the node's host forwards.
            let to_host = column("external_ids").contains("k8s.ovn.org/forwarded-source");
            // To a node of another zone.
            let to_zone = column("external_ids").contains("ic-node=");
            (of_pods || to_host || to_zone)
                && holder("Logical_Router", "static_routes") == "ovn_cluster_router"
        }
        "ACL" => {
            let kinds = [
                "NetpolNode:",
                "NetpolNamespace:",
                "NetworkPolicy:",
                "ServiceSourceRanges:",
                "EgressFirewall:",
                "MulticastNS:",
                "MulticastCluster:",
            ];
            kinds.iter().any(|kind| {
                name.strip_prefix("default-network-controller:")
                    .is_some_and(|rest| rest.starts_with(kind))
            })
        }
        "QoS" => name.starts_with("default-network-controller:EgressQoS:"),
        // The group of a namespace may be upstream's, unless it has such a rule.
        "Port_Group" => {
            ["EgressFirewall", "MulticastNS"]
                .iter()
                .any(|kind| column("acls").contains(&format!("default-network-controller:{kind}:")))
                || ["NetpolNamespace", "NetworkPolicy"].iter().any(|kind| {
                    column("external_ids").contains(&format!("k8s.ovn.org/owner-type={kind}"))
                })
        }
        // A set of a namespace that was found at a start stays as long as the namespace.
        "Address_Set" => {
            ["PodSelector", "NetpolNamedPort", "EgressFirewallDNS", "NodeSelector", "EgressQoS"]
                .iter()
                .any(|kind| {
                    column("external_ids").contains(&format!("k8s.ovn.org/owner-type={kind}"))
                })
        }
        _ => false,
    }
}

fn wrong_row(row: &DesiredRow, contents: &Contents) -> Result<(), String> {
    let what = format!("{} {}", row.id.table.name(), row.id.name);
    let found = contents
        .row(row.id.table.name(), &row.id.name)
        .ok_or_else(|| format!("{what} is missing"))?;
    for (column, value) in &row.columns {
        // The schema of this machine's OVN may be older than the column.
        if contents.has_column(row.id.table.name(), column) {
            let now = found.get(*column).map_or("", String::as_str);
            is_value(value, now)
                .map_err(|wanted| format!("{what}: {column} is {now:?} and not {wanted:?}"))?;
        }
    }
    let sets = if holders(row, contents, &row.or_member_of) && !row.or_member_of.is_empty() {
        &row.or_member_of
    } else {
        &row.member_of
    };
    for set in sets {
        let holder = contents.row(set.of.table.name(), &set.of.name);
        let holder = holder.ok_or_else(|| format!("{what}: {} is missing", set.of.name))?;
        if !holder.get(set.column).is_some_and(|elements| {
            elements.split(", ").any(|element| element == reference(&row.id))
        }) {
            return Err(format!("{what}: not in {} of {}: {holder:?}", set.column, set.of.name));
        }
    }
    // A load balancer must be on nothing else.
    for ((_, name, _), other) in &contents.0 {
        let holds = other
            .get("load_balancer")
            .is_some_and(|all| all.split(", ").any(|balancer| balancer == reference(&row.id)));
        let is_or = std::ptr::eq(sets, &row.or_member_of);
        if holds && !is_or && !sets.iter().any(|set| *set.of.name == **name) {
            return Err(format!("{what}: also on {name}"));
        }
    }
    // A mark must be on no other switch.
    for ((_, name, _), other) in &contents.0 {
        let holds = other
            .get("qos_rules")
            .is_some_and(|all| all.split(", ").any(|rule| rule == reference(&row.id)));
        if holds && !row.member_of.iter().any(|set| *set.of.name == **name) {
            return Err(format!("{what}: also on {name}"));
        }
    }
    // A port must be in no other group of a policy.
    for ((table, name, _), other) in &contents.0 {
        let holds = other
            .get("ports")
            .is_some_and(|ports| ports.split(", ").any(|port| port == reference(&row.id)));
        let wanted = row.member_of.iter().any(|set| *set.of.name == **name);
        if table == "Port_Group" && holds && !wanted && is_ours(table, name, other, contents) {
            return Err(format!("{what}: also in group {name}"));
        }
    }
    // A port must be in no other switch of the controller.
    for ((table, name, _), other) in &contents.0 {
        let holds = other
            .get("ports")
            .is_some_and(|ports| ports.split(", ").any(|port| port == reference(&row.id)));
        let wanted = row.member_of.iter().any(|set| *set.of.name == **name);
        if table == "Logical_Switch" && holds && !wanted && is_ours(table, name, other, contents) {
            return Err(format!("{what}: also in switch {name}"));
        }
    }
    Ok(())
}

/// Whether all of the sets hold the row.
fn holders(row: &DesiredRow, contents: &Contents, sets: &[Membership]) -> bool {
    sets.iter().all(|set| {
        let holder = contents.row(set.of.table.name(), &set.of.name);
        let elements = holder.and_then(|holder| holder.get(set.column));
        elements.is_some_and(|elements| {
            elements.split(", ").any(|element| element == reference(&row.id))
        })
    })
}

fn reference(id: &RowName) -> String {
    format!("<{}>", id.name)
}

/// Whether the column's text `now` holds the value; if not, what was expected.
fn is_value(value: &Value, now: &str) -> Result<(), String> {
    let parts: BTreeSet<&str> = now.split(", ").filter(|part| !part.is_empty()).collect();
    let good = match value {
        Value::Datum(datum) if !datum.pairs().is_empty() => {
            let text = |atom: &Atom| match atom {
                Atom::String(text) => text.clone(),
                other => format!("{other:?}"),
            };
            let pair = |(key, value): &(Atom, Atom)| format!("{}={}", text(key), text(value));
            parts
                == datum
                    .pairs()
                    .iter()
                    .map(pair)
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str)
                    .collect()
        }
        Value::Datum(datum) => now == spell(datum),
        Value::Match(words) => [words.as_str(), &*spelled(words)].contains(&now),
        Value::Pairs(wanted) => {
            let pairs: BTreeMap<&str, &str> =
                parts.iter().filter_map(|part| part.split_once('=')).collect();
            let all = wanted
                .with
                .keys()
                .all(|key| pairs.get(key).is_some_and(|value| wanted.accepts(key, value)));
            all && !wanted
                .without
                .iter()
                .any(|key| pairs.get(key).is_some_and(|value| !wanted.accepts(key, value)))
        }
        Value::Elements(texts) => parts == texts.iter().map(|text| &**text).collect(),
        // A list that stands in another order may stay; none does here.
        Value::Entries(pairs) | Value::Lists(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
            parts == pairs.iter().map(String::as_str).collect()
        }
        Value::References(rows) => {
            parts
                == rows
                    .iter()
                    .map(reference)
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str)
                    .collect()
        }
        Value::Including(rows) => rows.iter().all(|row| parts.contains(&*reference(row))),
        Value::Parts { rows, .. } => {
            let rate = |row: &Vec<(&str, Datum)>| {
                row.iter().find(|(column, _)| *column == "rate").map(|(_, rate)| spell(rate))
            };
            let wanted: Vec<String> =
                rows.iter().map(|row| format!("<rate {}>", number(&rate(row).unwrap()))).collect();
            parts == wanted.iter().map(String::as_str).collect()
        }
    };
    if good { Ok(()) } else { Err(format!("{value:?}")) }
}

fn spell(datum: &Datum) -> String {
    let atom = |atom: &Atom| atom.as_str().map_or_else(|| format!("{atom:?}"), str::to_owned);
    let mut parts: Vec<String> = datum.atoms().iter().map(atom).collect();
    parts.sort();
    // Empty values are an empty text, as `contents` leaves them out.
    parts.join(", ")
}

fn number(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}
