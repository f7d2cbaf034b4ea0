//! A pod's interface as the kernel and Open vSwitch show it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use integration::{Node, Pod};
use serde_json::Value;

/// A link of the pod with its addresses, as `ip -json -details address show` prints it.
pub(crate) fn link_in_pod(node: &Node, pod: &Pod, name: &str) -> Result<Value> {
    only(&node.run_in_pod(pod, ["ip", "-json", "-details", "address", "show", "dev", name])?)
}

/// A link of the node with its addresses.
pub(crate) fn link_on_node(node: &Node, name: &str) -> Result<Value> {
    only(&node.run(["ip", "-json", "-details", "address", "show", "dev", name])?)
}

/// Whether the node has a link with this name.
pub(crate) fn is_on_node(node: &Node, name: &str) -> bool {
    node.run(["ip", "link", "show", "dev", name]).is_ok()
}

fn only(json: &str) -> Result<Value> {
    let mut links: Vec<Value> = serde_json::from_str(json)?;
    ensure!(links.len() == 1, "one link expected: {json}");
    links.pop().context("one link")
}

/// Global addresses of a link with their prefix lengths, i.e. without link-local ones.
pub(crate) fn addresses(link: &Value) -> BTreeSet<String> {
    let infos =
        link["addr_info"].as_array().into_iter().flatten().filter(|info| info["scope"] == "global");
    infos
        .map(|info| format!("{}/{}", info["local"].as_str().unwrap_or_default(), info["prefixlen"]))
        .collect()
}

/// The pod's routes through a gateway, such as `default via 10.244.1.1`.
pub(crate) fn gateway_routes(node: &Node, pod: &Pod) -> Result<BTreeSet<String>> {
    let mut routes = BTreeSet::new();
    for family in ["-4", "-6"] {
        let list: Vec<Value> =
            serde_json::from_str(&node.run_in_pod(pod, ["ip", "-json", family, "route", "show"])?)?;
        let gateways = list.iter().filter_map(|route| {
            Some(format!("{} via {}", route["dst"].as_str()?, route["gateway"].as_str()?))
        });
        routes.extend(gateways);
    }
    Ok(routes)
}

/// Whether `ethtool -k` in the pod prints `feature: on`.
pub(crate) fn offload_is_on(node: &Node, pod: &Pod, link: &str, feature: &str) -> Result<bool> {
    let features = node.run_in_pod(pod, ["ethtool", "-k", link])?;
    let state =
        features.lines().find_map(|line| line.trim().strip_prefix(feature)?.strip_prefix(": "));
    Ok(state
        .with_context(|| format!("ethtool says nothing of {feature}: {features}"))?
        .starts_with("on"))
}

/// A column of a row in Open vSwitch, as `ovs-vsctl get` prints it.
pub(crate) fn column(node: &Node, table: &str, record: &str, column: &str) -> Result<String> {
    node.vsctl(["get", table, record, column]).map(|text| text.trim().to_owned())
}

/// The `external_ids` of an Interface row, without those that ovn-controller adds.
pub(crate) fn external_ids(node: &Node, interface: &str) -> Result<BTreeMap<String, String>> {
    let text =
        node.vsctl(["--format=json", "--columns=external_ids", "list", "Interface", interface])?;
    let table: Value = serde_json::from_str(&text)?;
    let pairs: Vec<(String, String)> =
        serde_json::from_value(table["data"][0][0][1].clone()).with_context(|| text.clone())?;
    Ok(pairs.into_iter().filter(|(key, _)| !key.starts_with("ovn-installed")).collect())
}

/// Names of the Interface rows of a sandbox.
pub(crate) fn ports_of(node: &Node, sandbox: &str) -> Result<BTreeSet<String>> {
    let condition = format!("external_ids:sandbox={sandbox}");
    let names = node.vsctl(["--bare", "--columns=name", "find", "Interface", &condition])?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}
