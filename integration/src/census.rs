//! Snapshot of a node as sorted text. Two snapshots are equal when nothing was left behind and
//! nothing was lost.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::Node;

/// Links with their addresses, network namespaces, and the Open vSwitch rows of ports, interfaces,
/// QoS and queues.
///
/// Leaves out what changes by itself: statistics, interface numbers, `ofport`, and what
/// ovn-controller writes on its bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census(Vec<String>);

/// The tables and columns of a snapshot. `_uuid` comes first, then the column that names the row.
const ROWS: &[(&str, &str)] = &[
    ("Bridge", "_uuid,name,ports"),
    ("Port", "_uuid,name,interfaces,qos,tag"),
    (
        "Interface",
        "_uuid,name,type,options,external_ids,ingress_policing_rate,ingress_policing_burst",
    ),
    ("QoS", "_uuid,type,other_config,queues,external_ids"),
    ("Queue", "_uuid,other_config,external_ids"),
];

impl Node {
    /// A snapshot of the node.
    pub fn census(&self) -> Result<Census> {
        let mut lines = links(&self.run(["ip", "-json", "-details", "address", "show"])?)?;
        let namespaces = self.run(["ip", "netns", "list"])?;
        lines.extend(
            namespaces.lines().map(|line| {
                format!("netns {}", line.split_whitespace().next().unwrap_or_default())
            }),
        );
        lines.extend(rows(self)?);
        lines.sort();
        Ok(Census(lines))
    }
}

impl Census {
    /// Compares this snapshot with a later one.
    ///
    /// # Errors
    /// If they differ, with the lines that are gone and those that are new.
    pub fn must_equal(&self, after: &Self) -> Result<()> {
        if self == after {
            return Ok(());
        }
        let gone =
            self.0.iter().filter(|line| !after.0.contains(line)).map(|line| format!("- {line}\n"));
        let new =
            after.0.iter().filter(|line| !self.0.contains(line)).map(|line| format!("+ {line}\n"));
        bail!(
            "the node has changed (- was there before, + is new):\n{}",
            gone.chain(new).collect::<String>()
        );
    }

    /// The number of things of this kind, the first word of their lines: `link`, `netns`, or a
    /// table.
    pub fn count(&self, kind: &str) -> usize {
        self.0.iter().filter(|line| line.split(' ').next() == Some(kind)).count()
    }

    /// The lines that contain `text`.
    pub fn lines_with(&self, text: &str) -> Vec<&str> {
        self.0.iter().map(String::as_str).filter(|line| line.contains(text)).collect()
    }
}

impl fmt::Display for Census {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(formatter, "{line}"))
    }
}

fn links(json: &str) -> Result<Vec<String>> {
    let links: Vec<Value> = serde_json::from_str(json).context("output of `ip -json`")?;
    let line = |link: &Value| {
        let text = |key: &str| link[key].as_str().unwrap_or("-").to_owned();
        let kind = link["linkinfo"]["info_kind"].as_str().unwrap_or("-");
        let addresses: Vec<String> = array(&link["addr_info"])
            .filter(|address| address["scope"] == "global")
            .map(|address| {
                format!("{}/{}", address["local"].as_str().unwrap_or("-"), address["prefixlen"])
            })
            .collect();
        let (name, mac, master) = (text("ifname"), text("address"), text("master"));
        format!(
            "link {name} kind={kind} mtu={} mac={mac} master={master} addresses={}",
            link["mtu"],
            addresses.join(",")
        )
    };
    Ok(links.iter().map(line).collect())
}

/// One line per row. References to other rows are shown by name, because a recreated row has
/// another UUID.
fn rows(node: &Node) -> Result<Vec<String>> {
    let mut arguments = vec!["--format=json".to_owned()];
    // One ovs-vsctl, and so one transaction: the tables fit together.
    for (table, columns) in ROWS {
        arguments.extend([
            "--".to_owned(),
            format!("--columns={columns}"),
            "list".to_owned(),
            (*table).to_owned(),
        ]);
    }
    let output = node.vsctl(arguments)?;
    let tables = serde_json::Deserializer::from_str(&output)
        .into_iter::<Value>()
        .collect::<Result<Vec<_>, _>>()?;
    let rows = || {
        ROWS.iter().zip(&tables).flat_map(|((table, columns), rows)| {
            array(&rows["data"]).map(move |row| (*table, *columns, row))
        })
    };
    // A row without a name goes by the name of its table.
    let names: BTreeMap<&str, &str> = rows()
        .map(|(table, _, row)| {
            (row[0][1].as_str().unwrap_or("?"), row[1].as_str().unwrap_or(table))
        })
        .collect();
    let line = |(table, columns, row): (&str, &str, &Value)| {
        let cells = columns
            .split(',')
            .zip(array(row))
            .skip(1)
            .map(|(column, value)| format!(" {column}={}", cell(value, &names)));
        format!("{table}{}", cells.collect::<String>())
    };
    Ok(rows().map(line).collect())
}

/// A value of OVSDB (RFC 7047, 5.1) as text. The members of a set are sorted: OVSDB gives them no
/// order.
fn cell(value: &Value, names: &BTreeMap<&str, &str>) -> String {
    match (value[0].as_str(), &value[1]) {
        (Some("uuid"), uuid) => {
            names.get(uuid.as_str().unwrap_or_default()).map_or("?", |name| *name).to_owned()
        }
        (Some("set" | "map"), members) => {
            let mut members: Vec<String> =
                array(members).map(|member| cell(member, names)).collect();
            // The time of the last binding. It changes for a port that stays when OVN's databases
            // are lost.
            members.retain(|member| !member.starts_with("ovn-installed-ts="));
            members.sort();
            format!("[{}]", members.join(" "))
        }
        // A pair of a map.
        (Some(key), value) => format!("{key}={}", cell(value, names)),
        // A scalar: an index into it gives `Null`.
        (None, Value::Null) => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        // A pair whose key is a number, as in `queues` of QoS.
        (None, of) => format!("{}={}", value[0], cell(of, names)),
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_counted_by_their_first_word() {
        let lines = ["Interface a", "Interface b", "Port Interface", "link Port", "link lo"];
        let census = Census(lines.map(str::to_owned).to_vec());
        assert_eq!(
            ["Interface", "Port", "link", "QoS"].map(|kind| census.count(kind)),
            [2, 1, 2, 0]
        );
    }
}
