//! What OVN's and Open vSwitch's databases contain: read with their own tools, drawn as pictures.

use anyhow::{Context as _, Result};
use integration::{
    Census, Node, Pod,
    central::{Central, ROUTER},
};

use super::screen::{Paint, plain};

/// Rows as the tools print them for scripts: a line for each row, a comma between columns, quotes around a
/// value that contains one. Elements of a value are separated by spaces.
const FOR_SCRIPTS: [&str; 3] = ["--no-headings", "--format=csv", "--data=bare"];

/// The cells of `columns` of a table.
fn rows<const N: usize>(
    run: impl FnOnce(Vec<String>) -> Result<String>,
    columns: [&str; N],
    table: &str,
) -> Result<Vec<[String; N]>> {
    let words = [format!("--columns={}", columns.join(",")), "list".to_owned(), table.to_owned()];
    let text = run(FOR_SCRIPTS.map(str::to_owned).into_iter().chain(words).collect())?;
    let row = |line: &str| {
        <[String; N]>::try_from(cells(line)).ok().with_context(|| format!("a row of {table}: {line}"))
    };
    text.lines().map(row).collect()
}

/// The cells of a line (RFC 4180). A quote in a quoted value is written twice; it is not needed here.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match (character, cells.last_mut()) {
            ('"', _) => quoted = !quoted,
            (',', _) if !quoted => cells.push(String::new()),
            (character, cell) => cell.into_iter().for_each(|cell| cell.push(character)),
        }
    }
    cells
}

/// The value of `key` in a map such as `a=b c=d`; empty if there is none.
fn value<'a>(map: &'a str, key: &str) -> &'a str {
    let pairs = map.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).next().unwrap_or_default()
}

/// The northbound database as a tree, once the ports of `pods` are up in it. `up` reaches that database a
/// moment after the port's flows are installed.
pub(crate) fn logical(central: &Central, pods: &[Pod]) -> Result<Vec<String>> {
    let words =
        |pod: &Pod| ["--", "wait-until", "Logical_Switch_Port", &pod.port(), "up=true"].map(str::to_owned);
    central.nbctl(pods.iter().flat_map(words)).context("wait until OVN calls the pods' ports up")?;
    let mut switches = rows(|words| central.nbctl(words), ["name", "ports"], "Logical_Switch")?;
    switches.sort();
    let ports = rows(
        |words| central.nbctl(words),
        ["_uuid", "name", "type", "addresses", "up", "options"],
        "Logical_Switch_Port",
    )?;
    let router_ports = rows(|words| central.nbctl(words), ["name", "networks"], "Logical_Router_Port")?;
    let widest = ports.iter().map(|[_, name, ..]| name.len()).max().unwrap_or_default();
    let mut lines = vec![format!("  {}{}", Paint::STRONG.on(ROUTER), Paint::FAINT.on("  logical router"))];
    for (number, [switch, members]) in switches.iter().enumerate() {
        let of_switch: Vec<_> = ports.iter().filter(|[uuid, ..]| members.contains(uuid.as_str())).collect();
        let (to_router, mut of_pods): (Vec<_>, Vec<_>) =
            of_switch.into_iter().partition(|[_, _, kind, ..]| kind == "router");
        of_pods.sort_by(|[.., left, _, _], [.., right, _, _]| left.cmp(right));
        let peers = to_router.iter().map(|[.., options]| value(options, "router-port"));
        let gateways: Vec<&str> = peers
            .filter_map(|peer| router_ports.iter().find(|[name, _]| name == peer))
            .map(|[_, networks]| networks.as_str())
            .collect();
        let is_last = number + 1 == switches.len();
        let (branch, stem) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let gateway = format!("  logical switch, gateway {}", gateways.join(" "));
        lines.push(format!(
            "  {}{}{}",
            Paint::FAINT.on(branch),
            Paint::NODE.on(switch),
            Paint::FAINT.on(gateway)
        ));
        for (number, [_, name, _, addresses, up, _]) in of_pods.iter().enumerate() {
            let branch = if number + 1 == of_pods.len() { "└─ " } else { "├─ " };
            let up = if up == "true" { Paint::GOOD.on("up") } else { Paint::BAD.on("down") };
            let name = Paint::POD.on(format!("{name:<widest$}"));
            lines.push(format!("  {}{name}  {addresses}  {up}", Paint::FAINT.on(format!("{stem}{branch}"))));
        }
    }
    Ok(lines)
}

/// A node's Open vSwitch: br-int, with the pods' ports above it and the tunnels below.
#[derive(Debug)]
pub(crate) struct Switch {
    node: String,
    /// Address of the node's end of the tunnels.
    tunnel_address: String,
    bridge: String,
    pods: Vec<PodPort>,
    tunnels: Vec<Tunnel>,
}

#[derive(Debug)]
struct PodPort {
    pod: String,
    /// Addresses of the interface in the pod's namespace.
    addresses: Vec<String>,
    ifname: String,
    host_ifname: String,
    ofport: String,
}

#[derive(Debug)]
struct Tunnel {
    name: String,
    kind: String,
    remote: String,
    ofport: String,
}

/// Reads a node's Open vSwitch; `pods` are all pods of the demo.
pub(crate) fn switch(node: &Node, pods: &[Pod]) -> Result<Switch> {
    let list = |words: Vec<String>| node.vsctl(words);
    let bridges = rows(list, ["name", "datapath_type"], "Bridge")?;
    let [name, datapath] = bridges.iter().find(|[name, _]| name == "br-int").context("br-int")?;
    let bridge = if datapath.is_empty() { name.clone() } else { format!("{name} ({datapath})") };
    let (mut ports, mut tunnels) = (Vec::new(), Vec::new());
    for [name, kind, ofport, ids, options] in
        rows(list, ["name", "type", "ofport", "external_ids", "options"], "Interface")?
    {
        let remote = value(&options, "remote_ip").to_owned();
        if !remote.is_empty() {
            tunnels.push(Tunnel { name, kind, remote, ofport });
        } else if let Some(pod) = pods.iter().find(|pod| pod.port() == value(&ids, "iface-id")) {
            let ifname = value(&ids, "pod-if-name").to_owned();
            let addresses = addresses(node, pod, &ifname)?;
            let pod = super::pods::title(pod);
            ports.push(PodPort { pod, addresses, ifname, host_ifname: name, ofport });
        }
    }
    ports.sort_by_key(|port| port.ofport.parse::<u32>().ok());
    let tunnel_address = node.vsctl(["get", "Open_vSwitch", ".", "external_ids:ovn-encap-ip"])?;
    let tunnel_address = tunnel_address.trim().trim_matches('"').to_owned();
    Ok(Switch { node: node.name.clone(), tunnel_address, bridge, pods: ports, tunnels })
}

/// The addresses that `ip` shows in the pod.
fn addresses(node: &Node, pod: &Pod, ifname: &str) -> Result<Vec<String>> {
    let words = ["ip", "-brief", "address", "show", "dev", ifname, "scope", "global"];
    let output = node.run_in_pod(pod, words)?;
    // `eth0@if7  UP  10.244.1.5/24 fd00::5/64`
    let addresses = output.split_whitespace().skip(2).filter_map(|word| word.split_once('/'));
    Ok(addresses.map(|(address, _)| address.to_owned()).collect())
}

/// Draws the switches side by side, joined where the first has a tunnel to the second.
pub(crate) fn switches(switches: &[Switch]) -> Vec<String> {
    let rows =
        switches.iter().flat_map(|switch| &switch.pods).map(|pod| pod.addresses.len()).max().unwrap_or(0);
    let drawn: Vec<Vec<String>> = switches.iter().map(|switch| switch.draw(rows)).collect();
    let height = drawn.first().map_or(0, Vec::len);
    let mut lines: Vec<String> = (0..height)
        .map(|row| drawn.iter().map(|lines| lines[row].as_str()).collect::<Vec<_>>().join("     "))
        .collect();
    if let ([left, right], [first, second]) = (switches, &drawn[..])
        && let Some(tunnel) = left.tunnels.iter().find(|tunnel| tunnel.remote == right.tunnel_address)
    {
        let width = |lines: &[String]| plain(&lines[0]).chars().count();
        let (start, end) = (width(first) / 2, width(first) + 5 + width(second) / 2);
        let joint = format!("╚{:═^1$}╝", format!(" {} ", tunnel.kind), end - start - 1);
        lines.push(format!("{}{}", " ".repeat(start), Paint::TUNNEL.on(joint)));
    }
    lines.into_iter().map(|line| format!("  {line}")).collect()
}

impl Switch {
    /// All lines have the same width. `rows`: lines for the addresses of a pod.
    fn draw(&self, rows: usize) -> Vec<String> {
        let Self { node, tunnel_address, bridge, pods, tunnels } = self;
        let names = tunnels.iter().map(|tunnel| tunnel.name.as_str()).collect::<Vec<_>>().join(" ");
        let ofports = tunnels.iter().map(|tunnel| tunnel.ofport.as_str()).collect::<Vec<_>>().join(" ");
        let of_pods = pods.iter().map(|pod| pod.width() + 1).sum::<usize>().saturating_sub(1);
        let texts = [bridge.len() + 4, names.len() + 2, node.len() + 2, tunnel_address.len() + 2];
        let width = texts.into_iter().fold(of_pods, usize::max);
        // Everything between the frame's left and right side.
        let beside = |text: &dyn Fn(&PodPort) -> String| {
            let cells = pods.iter().map(text).collect::<Vec<_>>().join(" ");
            format!("{cells}{}", " ".repeat(width - of_pods))
        };
        let top: String = pods
            .iter()
            .map(|pod| format!("{:─^1$}", format!(" {} ", pod.ofport), pod.width()))
            .collect::<Vec<_>>()
            .join("─");
        let top: String = format!("{top:─<width$}").chars().skip(1).take(width - 2).collect();
        let on_node = |line: String| Paint::NODE.on(line);
        let mut lines = vec![on_node(format!("╭{:─<1$}╮", format!("─ {node} "), width + 2))];
        let mut inside: Vec<String> = vec![beside(&|pod| {
            Paint::POD.on(format!("┌{:─<1$}┐", format!("─ {} ", pod.pod), pod.width() - 2))
        })];
        inside.extend((0..rows).map(|row| {
            beside(&|pod| {
                let address = pod.addresses.get(row).map_or("", String::as_str);
                let side = Paint::POD.on("│");
                format!("{side} {address:<0$}{side}", pod.width() - 3)
            })
        }));
        inside.extend([
            beside(&|pod| Paint::POD.on(format!("└{:─^1$}┘", format!(" {} ", pod.ifname), pod.width() - 2))),
            beside(&|pod| Paint::FAINT.on(format!("{:^1$}", "│", pod.width()))),
            beside(&|pod| format!("{:^1$}", pod.host_ifname, pod.width())),
            on_node(format!("┌{top}┐")),
            on_node(format!("│ {bridge:<0$}│", width - 3)),
            on_node(format!("└{:─^1$}┘", format!(" {ofports} "), width - 2)),
            Paint::TUNNEL.on(format!("{names:^width$}")),
        ]);
        let side = Paint::NODE.on("│");
        lines.extend(inside.into_iter().map(|line| format!("{side} {line} {side}")));
        lines.push(on_node(format!("╰{:─^1$}╯", format!(" {tunnel_address} "), width + 2)));
        lines
    }
}

impl PodPort {
    fn width(&self) -> usize {
        let addresses = self.addresses.iter().map(String::len).max().unwrap_or_default();
        (self.pod.len() + 2).max(addresses).max(self.host_ifname.len()) + 4
    }
}

/// The counts of each kind of thing on each node: before the pods came, with them, and after DEL.
pub(crate) fn counts(nodes: &[(&str, [&Census; 3])]) -> Vec<String> {
    // The first word of a census's lines, and its meaning.
    const KINDS: [(&str, &str); 6] = [
        ("link", "network links"),
        ("netns", "network namespaces"),
        ("Port", "switch ports"),
        ("Interface", "switch interfaces"),
        ("QoS", "QoS rows"),
        ("Queue", "queue rows"),
    ];
    let names: String = nodes.iter().map(|(name, _)| format!("{name:>12}{:17}", "")).collect();
    let heads = format!("{:>9}{:>11}{:>9}", "before", "with pods", "after").repeat(nodes.len());
    let mut lines =
        vec![Paint::NODE.on(format!("{:24}{names}", "")), Paint::FAINT.on(format!("{:24}{heads}", ""))];
    for (word, meaning) in KINDS {
        let mut line = format!("    {meaning:<20}");
        for (_, censuses) in nodes {
            let [before, with_pods, after] = censuses.map(|census| count(&census.to_string(), word));
            let paint = if before == after { Paint::GOOD } else { Paint::BAD };
            line.push_str(&format!(
                "{before:>9}{}{}",
                Paint::BAR.on(format!("{with_pods:>11}")),
                paint.on(format!("{after:>9}"))
            ));
        }
        lines.push(line);
    }
    lines
}

fn count(census: &str, word: &str) -> usize {
    census.lines().filter(|line| line.split(' ').next() == Some(word)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(index: usize, pods: &[&str]) -> Switch {
        let other = 3 - index;
        let port = |(position, pod): (usize, &&str)| PodPort {
            pod: (*pod).to_owned(),
            addresses: vec![
                format!("10.244.{index}.{}", position + 3),
                format!("fd00::{index}:{}", position + 3),
            ],
            ifname: "eth0".to_owned(),
            host_ifname: format!("0{index}00000{position}0000000"),
            ofport: (position + 2).to_string(),
        };
        Switch {
            node: format!("node{index}"),
            tunnel_address: format!("172.30.0.1{index}"),
            bridge: "br-int (netdev)".to_owned(),
            pods: pods.iter().enumerate().map(port).collect(),
            tunnels: vec![Tunnel {
                name: format!("ovn-node{other}-0"),
                kind: "geneve".to_owned(),
                remote: format!("172.30.0.1{other}"),
                ofport: "1".to_owned(),
            }],
        }
    }

    fn text(nodes: &[Switch]) -> String {
        switches(nodes).iter().map(|line| format!("{}\n", plain(line).trim_end())).collect()
    }

    #[test]
    fn two_nodes_are_joined_by_their_tunnel() {
        let picture = "
  ╭─ node1 ─────────────────────────────────╮     ╭─ node2 ─────────────╮
  │ ┌─ front ─────────┐ ┌─ cart ──────────┐ │     │ ┌─ stock ─────────┐ │
  │ │ 10.244.1.3      │ │ 10.244.1.4      │ │     │ │ 10.244.2.3      │ │
  │ │ fd00::1:3       │ │ fd00::1:4       │ │     │ │ fd00::2:3       │ │
  │ └───── eth0 ──────┘ └───── eth0 ──────┘ │     │ └───── eth0 ──────┘ │
  │          │                   │          │     │          │          │
  │   010000000000000     010000010000000   │     │   020000000000000   │
  │ ┌─────── 2 ───────────────── 3 ───────┐ │     │ ┌─────── 2 ───────┐ │
  │ │ br-int (netdev)                     │ │     │ │ br-int (netdev) │ │
  │ └───────────────── 1 ─────────────────┘ │     │ └─────── 1 ───────┘ │
  │               ovn-node2-0               │     │     ovn-node1-0     │
  ╰────────────── 172.30.0.11 ──────────────╯     ╰──── 172.30.0.12 ────╯
                       ╚══════════════ geneve ═══════════════╝
";
        let drawn = text(&[node(1, &["front", "cart"]), node(2, &["stock"])]);
        assert!(drawn == picture.trim_start_matches('\n'), "\n{drawn}");
    }

    #[test]
    fn a_tunnel_to_somewhere_else_joins_nothing() {
        let mut nodes = [node(1, &["front"]), node(2, &[])];
        assert!(text(&nodes).contains("═ geneve ═"));
        nodes[0].tunnels[0].remote = "172.30.0.99".to_owned();
        assert!(!text(&nodes).contains("geneve"));
    }

    #[test]
    fn rows_and_maps_are_read_and_things_are_counted_by_their_first_word() {
        let read = |_| Ok("a,2,x=1 y=2\nb,,\"x=3,4 z=5\"\n".to_owned());
        let rows = rows(read, ["name", "ofport", "options"], "Interface").unwrap();
        assert_eq!(rows, [["a", "2", "x=1 y=2"], ["b", "", "x=3,4 z=5"]].map(|row| row.map(str::to_owned)));
        assert_eq!([value(&rows[0][2], "y"), value(&rows[1][2], "y")], ["2", ""]);
        assert_eq!(value(&rows[1][2], "x"), "3,4");
        let census = "Interface a\nInterface b\nPort Interface\nlink Port\nlink lo";
        assert_eq!(["Interface", "Port", "link", "QoS"].map(|word| count(census, word)), [2, 1, 2, 0]);
    }
}
