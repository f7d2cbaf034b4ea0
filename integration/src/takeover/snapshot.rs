//! What the programs write: the northbound database, Open vSwitch's, the bridge's flows, the host's
//! network and annotations; as rows and lines, to compare.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    process::Command,
};

use anyhow::{Context as _, Result};
use integration::{Cluster, Node, central, command};
use serde::Serialize;
use serde_json::Value;

/// Columns that count or time, and what the daemons answer.
const STATISTICS: &[&str] = &[
    "_uuid",
    "_version",
    "nb_cfg",
    "nb_cfg_timestamp",
    "sb_cfg",
    "sb_cfg_timestamp",
    "hv_cfg",
    "hv_cfg_timestamp",
    "up",
    "status",
    "statistics",
    "link_resets",
    "cur_cfg",
    "next_cfg",
    // Written by upstream's every half minute.
    "options:e2e_timestamp",
];
const NORTHBOUND: &str = "northbound database";
/// The rules of the host.
const RULES: &str = "nftables";
/// By which a controller of this project knows the database's cluster; upstream's writes none.
const CLUSTER: &str = "k8s-cluster-uid";

/// The columns of a row, with those of a map key by key; a line has none.
type Row = BTreeMap<String, String>;
type Rows = BTreeMap<String, Row>;

/// The rows and lines of each part.
pub(super) struct Snapshot(BTreeMap<&'static str, Rows>);

/// What is different, part by part.
#[derive(Serialize)]
pub(super) struct Differences(BTreeMap<&'static str, Vec<String>>);

impl Snapshot {
    pub(super) fn take(cluster: &Cluster) -> Result<Self> {
        let node = &cluster.lab.nodes[0];
        let run = |words: &str| anyhow::Ok(lines(&node.run(words.split(' '))?));
        let dump = ["--format=json", "dump"];
        let northbound = [central::NORTHBOUND, "OVN_Northbound"];
        let northbound = command::output(Command::new("ovsdb-client").args(dump).args(northbound))?;
        let switch = ["unix:/run/openvswitch/db.sock", "Open_vSwitch"];
        let switch = command::output(node.command("ovsdb-client").args(dump).args(switch))?;
        Ok(Self(BTreeMap::from([
            (NORTHBOUND, rows(&northbound)?),
            ("Open vSwitch's database", rows(&switch)?),
            ("flows of breth0", flows(node)?),
            ("addresses", run("ip -oneline address show")?),
            ("routes", run("ip route show table all")?),
            ("rules", run("ip rule")?),
            ("neighbours", run("ip neigh show nud permanent")?),
            (RULES, nftables(node)?),
            ("annotations", annotations(cluster)?),
        ])))
    }

    pub(super) fn differences(&self, after: &Self) -> Differences {
        let parts = self.0.iter().map(|(part, before)| {
            let after = &after.0[part];
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let lines = keys.into_iter().flat_map(|key| match (before.get(key), after.get(key)) {
                (Some(before), Some(after)) => changed(key, before, after),
                (Some(row), None) => vec![format!("- {key} {}", spelled(row))],
                (None, row) => vec![format!("+ {key} {}", spelled(row.unwrap_or(&Row::new())))],
            });
            (*part, lines.collect())
        });
        Differences(parts.collect())
    }
}

fn changed(key: &str, before: &Row, after: &Row) -> Vec<String> {
    let columns: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = columns.into_iter().filter(|column| before.get(*column) != after.get(*column));
    let value =
        |row: &Row, column| row.get(column).cloned().unwrap_or_else(|| "nothing".to_owned());
    differ
        .map(|column| {
            format!("~ {key} {column}: {} -> {}", value(before, column), value(after, column))
        })
        .collect()
}

fn spelled(row: &Row) -> String {
    row.iter().map(|(column, value)| format!("{column}={value}")).collect::<Vec<_>>().join(" ")
}

fn lines(text: &str) -> Rows {
    text.lines().map(|line| (line.trim().to_owned(), Row::new())).collect()
}

/// Every row of what `ovsdb-client dump` says, under its table, UUID and name.
fn rows(text: &str) -> Result<Rows> {
    let mut rows = Rows::new();
    for table in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let table = table.context("a table as JSON")?;
        let caption = table["caption"].as_str().context("a table's name")?;
        let columns: Vec<&str> = array(&table["headings"]).filter_map(Value::as_str).collect();
        for row in array(&table["data"]) {
            let cells: BTreeMap<&str, &Value> = columns.iter().copied().zip(array(row)).collect();
            let name = cells.get("name").and_then(|name| name.as_str()).unwrap_or_default();
            let uuid = cells.get("_uuid").and_then(|uuid| uuid[1].as_str()).unwrap_or_default();
            let kept = cells.iter().filter(|(column, _)| !STATISTICS.contains(column));
            let key = format!("{} {uuid} {name}", caption.trim_end_matches(" table"));
            rows.insert(key, kept.flat_map(|(column, value)| pairs(column, value)).collect());
        }
    }
    Ok(rows)
}

/// A column, or each pair of a map; nothing if it is empty.
fn pairs(column: &str, value: &Value) -> Vec<(String, String)> {
    match value[0].as_str() {
        Some("map") => array(&value[1])
            .map(|pair| {
                (format!("{column}:{}", pair[0].as_str().unwrap_or_default()), pair[1].to_string())
            })
            .filter(|(key, _)| !STATISTICS.contains(&key.as_str()))
            .collect(),
        Some("set") if array(&value[1]).next().is_none() => Vec::new(),
        _ => vec![(column.to_owned(), value.to_string())],
    }
}

/// Without cookies: where several Services need the same flow, each may be the one that it is named
/// after.
fn flows(node: &Node) -> Result<Rows> {
    let text =
        node.run("ovs-ofctl --no-stats --no-names -OOpenFlow13 dump-flows breth0".split(' '))?;
    let flow = |line: &str| {
        line.split_once(", ").map_or_else(|| line.to_owned(), |(_, flow)| flow.to_owned())
    };
    Ok(lines(&text.lines().map(flow).collect::<Vec<_>>().join("\n")))
}

/// The rules, each with the table and chain that it is in.
fn nftables(node: &Node) -> Result<Rows> {
    let (mut path, mut lines) = (Vec::new(), Rows::new());
    for line in
        node.run(["nft", "--stateless", "--terse", "list", "ruleset"])?.lines().map(str::trim)
    {
        if line == "}" {
            path.pop();
        } else if !line.is_empty() {
            lines.insert(format!("{}: {line}", path.join(" / ")), Row::new());
        }
        path.extend(line.strip_suffix(" {").map(str::to_owned));
    }
    Ok(lines)
}

fn annotations(cluster: &Cluster) -> Result<Rows> {
    let mut all = Rows::new();
    for kind in ["nodes", "pods", "namespaces"] {
        let list = cluster.api.read(&format!("/api/v1/{kind}"))?;
        for object in array(&list["items"]) {
            let annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
            // JSON in any order.
            let values = annotations.map(|(key, value)| {
                let text = value.as_str().unwrap_or_default();
                let value = serde_json::from_str::<Value>(text).unwrap_or_else(|_| value.clone());
                (key.clone(), value.to_string())
            });
            all.insert(format!("{kind} {}", object["metadata"]["name"]), values.collect());
        }
    }
    Ok(all)
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl Differences {
    /// Whether every row of the northbound database is as it was, but for the mark of the cluster,
    /// which upstream's does not have.
    pub(super) fn keep_the_database(&self) -> bool {
        let mark = format!(" external_ids:{CLUSTER}: nothing -> ");
        self.0[NORTHBOUND].iter().all(|line| line.starts_with('+') || line.contains(&mark))
    }

    /// How many lines of the host's rules are different.
    pub(super) fn of_rules(&self) -> usize {
        self.0[RULES].len()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, lines) in &self.0 {
            match lines.len() {
                0 => writeln!(f, "{part}: equal")?,
                number => writeln!(f, "{part}: {number} differences")?,
            }
            lines.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        Ok(())
    }
}
