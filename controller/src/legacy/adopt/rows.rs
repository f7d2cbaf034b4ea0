//! The rows of 2018, as they are read.

use std::collections::BTreeMap;

use contract::{mac::Mac, ovn};
use ipnet::IpNet;
use ovsdb::{Client, Condition, Datum, Outcome, SelectedRow, Selection, Transaction, Where};

use super::{AdoptError, ROUTER, ROUTER_PORT, SWITCH, SWITCH_PORT};
use crate::legacy::CLUSTER_ROUTER;

/// The cluster's router, if it has its name of 2018: that of the first node.
pub(super) async fn former_router(client: &Client) -> Result<Option<SelectedRow>, AdoptError> {
    let mut tx = Transaction::new();
    let mark = Condition::includes("external_ids", Datum::map([(CLUSTER_ROUTER, "yes")]));
    let routers = tx.select(ROUTER, mark, &["_uuid", "name", "external_ids"]);
    let outcome = client.transact(tx).await?;
    let (today, former): (Vec<_>, Vec<_>) =
        outcome.rows(routers).iter().cloned().partition(|row| name(row) == ovn::CLUSTER_ROUTER);
    let Some(former) = former.into_iter().next() else { return Ok(None) };
    if today.is_empty() {
        Ok(Some(former))
    } else {
        Err(AdoptError::TwoRouters(name(&former).to_owned()))
    }
}

/// The rows of 2018, by name.
pub(super) struct Rows {
    pub(super) switches: BTreeMap<String, SelectedRow>,
    pub(super) router_ports: BTreeMap<String, SelectedRow>,
    pub(super) switch_ports: BTreeMap<String, SelectedRow>,
}

impl Rows {
    pub(super) async fn read(client: &Client) -> Result<Self, AdoptError> {
        let mut tx = Transaction::new();
        let mut select = |table, columns: &[&str]| tx.select(table, Where::all(), columns);
        let switches = select(SWITCH, &["_uuid", "name", "other_config", "external_ids"]);
        let router_ports = select(ROUTER_PORT, &["_uuid", "name", "mac", "networks"]);
        let columns =
            ["_uuid", "name", "addresses", "dynamic_addresses", "options", "external_ids"];
        let switch_ports = select(SWITCH_PORT, &columns);
        let outcome = client.transact(tx).await?;
        Ok(Self {
            switches: by_name(&outcome, switches),
            router_ports: by_name(&outcome, router_ports),
            switch_ports: by_name(&outcome, switch_ports),
        })
    }

    /// The nodes with their subnets.
    pub(super) fn node_switches(&self) -> BTreeMap<&str, IpNet> {
        let is_of_node = |name: &str| {
            self.switch_ports.contains_key(&ovn::switch_to_router(name))
                || self.switch_ports.contains_key(&ovn::management_port(name))
        };
        let subnet = |row: &SelectedRow| -> Option<IpNet> {
            row.map("other_config").get("subnet")?.parse().ok()
        };
        let of_node = |(name, row): (_, &SelectedRow)| Some((name, subnet(row)?.trunc()));
        let switches = self.switches.iter().map(|(name, row)| (name.as_str(), row));
        switches.filter(|(name, _)| is_of_node(name)).filter_map(of_node).collect()
    }
}

fn by_name(outcome: &Outcome, selection: Selection) -> BTreeMap<String, SelectedRow> {
    outcome.rows(selection).iter().map(|row| (name(row).to_owned(), row.clone())).collect()
}

pub(super) fn name(row: &SelectedRow) -> &str {
    row.string("name").unwrap_or_default()
}

/// The MAC address at the beginning of a text.
pub(super) fn mac(text: &str) -> Option<Mac> {
    text.split_whitespace().next()?.parse().ok()
}

/// The IPv4 network of a router's port.
pub(super) fn network(port: &SelectedRow) -> Option<IpNet> {
    let mut networks = port.strings("networks").into_iter().filter_map(|net| net.parse().ok());
    networks.find(|net: &IpNet| net.addr().is_ipv4())
}

/// A pod's port, with the addresses that it has.
pub(super) fn of_pod(row: &SelectedRow) -> Option<(&str, &str)> {
    let is_pod = row.map("external_ids").get("pod").is_some_and(|mark| mark == "true");
    let fixed = row.strings("addresses").into_iter().find(|text| *text != "dynamic");
    let addresses = row.string("dynamic_addresses").or(fixed).filter(|_| is_pod)?;
    Some((name(row), addresses))
}

/// A value in the words of `ovn-nbctl`.
pub(super) fn words(value: &Datum) -> String {
    let pairs = value.pairs().iter().map(|(key, value)| format!("{key}={value}"));
    let texts: Vec<String> = value.atoms().iter().map(ToString::to_string).chain(pairs).collect();
    match &texts[..] {
        [text] => format!("{text:?}"),
        _ => format!("[{}]", texts.join(", ")),
    }
}
