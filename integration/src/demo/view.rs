//! What OVN's and Open vSwitch's databases contain: read with their own tools, drawn as trees.

use anyhow::{Context as _, Result};
use integration::{
    Census, Node, Pod,
    central::{Central, ROUTER},
};

use super::screen::Paint;

/// The values of `columns` in each row of a table. The tools print a paragraph for each row, and a
/// line for each column.
fn rows<const N: usize>(
    run: impl FnOnce(Vec<String>) -> Result<String>,
    columns: [&str; N],
    table: &str,
) -> Result<Vec<[String; N]>> {
    let columns = format!("--columns={}", columns.join(","));
    let words = ["--format=list", "--data=bare", &columns, "list", table];
    let text = run(words.map(str::to_owned).to_vec())?;
    let value = |line: &str| line.split_once(':').map_or("", |(_, value)| value).trim().to_owned();
    let row = |row: &str| {
        let values: Vec<String> = row.lines().map(value).collect();
        <[String; N]>::try_from(values).ok().with_context(|| format!("a row of {table}: {row}"))
    };
    text.split("\n\n")
        .filter(|row| !row.trim().is_empty())
        .map(|rows| row(rows.trim_matches('\n')))
        .collect()
}

/// The value of `key` in a map such as `a=b c=d`; empty if there is none.
fn value<'a>(map: &'a str, key: &str) -> &'a str {
    let mut pairs = map.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == key).map_or("", |(_, value)| value)
}

/// The northbound database as a tree, once the ports of `pods` are up in it. `up` reaches that
/// database a moment after the port's flows are installed.
pub(crate) fn logical(central: &Central, pods: &[Pod]) -> Result<Vec<String>> {
    let words = |pod: &Pod| {
        ["--", "wait-until", "Logical_Switch_Port", &pod.port(), "up=true"].map(str::to_owned)
    };
    central
        .nbctl(pods.iter().flat_map(words))
        .context("wait until OVN calls the pods' ports up")?;
    let list = |words: Vec<String>| central.nbctl(words);
    let mut switches = rows(list, ["name", "ports"], "Logical_Switch")?;
    let mut ports =
        rows(list, ["addresses", "name", "_uuid", "up", "options"], "Logical_Switch_Port")?;
    let router_ports = rows(list, ["name", "networks"], "Logical_Router_Port")?;
    switches.sort();
    ports.sort();
    let widest = ports.iter().map(|[_, name, ..]| name.len()).max().unwrap_or_default();
    let mut lines =
        vec![format!("  {}{}", Paint::STRONG.on(ROUTER), Paint::FAINT.on("  logical router"))];
    for (number, [switch, members]) in switches.iter().enumerate() {
        let is_last = number + 1 == switches.len();
        let (branch, stem) = if is_last { ("└─ ", "     ") } else { ("├─ ", "  │  ") };
        let (mut gateways, mut leaves) = (String::new(), Vec::new());
        for [addresses, name, _, up, options] in
            ports.iter().filter(|[_, _, uuid, ..]| members.contains(uuid))
        {
            match router_ports.iter().find(|[name, _]| name == value(options, "router-port")) {
                Some([_, networks]) => gateways += &format!(" {networks}"),
                None => {
                    let up =
                        if up == "true" { Paint::GOOD.on("up") } else { Paint::BAD.on("down") };
                    leaves.push(format!("{:<widest$}  {addresses}  {up}", Paint::POD.on(name)));
                }
            }
        }
        let gateways = Paint::FAINT.on(format!("  logical switch, gateway{gateways}"));
        lines.push(format!("  {}{}{gateways}", Paint::FAINT.on(branch), Paint::NODE.on(switch)));
        lines.extend(branches(stem, leaves));
    }
    Ok(lines)
}

/// The last branches of a tree, behind `stem`.
fn branches(stem: &str, leaves: Vec<String>) -> impl Iterator<Item = String> {
    let last = leaves.len().saturating_sub(1);
    leaves.into_iter().enumerate().map(move |(number, leaf)| {
        let branch = if number == last { "└─ " } else { "├─ " };
        format!("{}{leaf}", Paint::FAINT.on(format!("{stem}{branch}")))
    })
}

/// A node's Open vSwitch as a tree: br-int, with the numbers of its pods' ports and of its tunnels.
pub(crate) fn switch(node: &Node, pods: &[Pod]) -> Result<Vec<String>> {
    let list = |words: Vec<String>| node.vsctl(words);
    let bridges = rows(list, ["name", "datapath_type"], "Bridge")?;
    let [name, datapath] = bridges.iter().find(|[name, _]| name == "br-int").context("br-int")?;
    let address = node.vsctl(["get", "Open_vSwitch", ".", "external_ids:ovn-encap-ip"])?;
    let what = format!(
        "  {datapath} of {}, tunnels end at {}",
        node.name,
        address.trim().trim_matches('"')
    );
    let mut ports = Vec::new();
    for [name, kind, ofport, ids, options] in
        rows(list, ["name", "type", "ofport", "external_ids", "options"], "Interface")?
    {
        let remote = value(&options, "remote_ip");
        let leaf = if !remote.is_empty() {
            format!("{:<16}  {kind} to {remote}", Paint::TUNNEL.on(name))
        } else if let Some(pod) = pods.iter().find(|pod| pod.port() == value(&ids, "iface-id")) {
            let ifname = value(&ids, "pod-if-name");
            let end = Paint::POD.on(format!("{ifname} of {:<10}", pod.to_string()));
            format!("{name:<16}  {end}  {}", addresses(node, pod, ifname)?)
        } else {
            continue;
        };
        ports.push((ofport.parse::<u32>().unwrap_or(u32::MAX), format!("{ofport:>2}  {leaf}")));
    }
    ports.sort();
    let head = format!("  {}{}", Paint::NODE.on(name), Paint::FAINT.on(what));
    Ok([head]
        .into_iter()
        .chain(branches("  ", ports.into_iter().map(|(_, leaf)| leaf).collect()))
        .collect())
}

/// The addresses that `ip` shows in the pod.
fn addresses(node: &Node, pod: &Pod, ifname: &str) -> Result<String> {
    let output = node
        .run_in_pod(pod, ["ip", "-brief", "address", "show", "dev", ifname, "scope", "global"])?;
    // `eth0@if7  UP  10.244.1.5/24 fd00::5/64`
    let addresses = output.split_whitespace().skip(2).filter_map(|word| word.split_once('/'));
    Ok(addresses.map(|(address, _)| address).collect::<Vec<_>>().join(" "))
}

/// The counts of each kind of thing on each node: before the pods came, with them, and after DEL.
pub(crate) fn counts(nodes: &[Node], censuses: &[Vec<Census>; 3]) -> Vec<String> {
    // The first word of a census's lines, and its meaning.
    const KINDS: [(&str, &str); 6] = [
        ("link", "network links"),
        ("netns", "network namespaces"),
        ("Port", "switch ports"),
        ("Interface", "switch interfaces"),
        ("QoS", "QoS rows"),
        ("Queue", "queue rows"),
    ];
    let names: String = nodes.iter().map(|node| format!("{:>12}{:17}", node.name, "")).collect();
    let heads = format!("{:>9}{:>11}{:>9}", "before", "with pods", "after").repeat(nodes.len());
    let line = |(word, meaning): (&str, &str)| {
        let of_node = |number: usize| {
            let [before, with_pods, after] =
                censuses.each_ref().map(|censuses| censuses[number].count(word));
            let paint = if before == after { Paint::GOOD } else { Paint::BAD };
            format!("{before:>9}{:>11}{:>9}", Paint::BAR.on(with_pods), paint.on(after))
        };
        format!("    {meaning:<20}{}", (0..nodes.len()).map(of_node).collect::<String>())
    };
    let heads = [(Paint::NODE, names), (Paint::FAINT, heads)];
    heads
        .map(|(paint, text)| format!("{:24}{}", "", paint.on(text)))
        .into_iter()
        .chain(KINDS.map(line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_maps_are_read() {
        let text =
            "name: a\nofport  : 2\noptions : x=1 y=2\n\nname: b\nofport  : \noptions : x=3,4 z=5\n";
        let read = |_| Ok(text.to_owned());
        let rows = rows(read, ["name", "ofport", "options"], "Interface").unwrap();
        assert_eq!(
            rows,
            [["a", "2", "x=1 y=2"], ["b", "", "x=3,4 z=5"]].map(|row| row.map(str::to_owned))
        );
        assert_eq!([value(&rows[0][2], "y"), value(&rows[1][2], "y")], ["2", ""]);
        assert_eq!(value(&rows[1][2], "x"), "3,4");
    }
}
