//! The Open vSwitch view as a picture: nodes, br-int, its ports, the pods on them, the tunnel. Pure.

use super::{
    canvas::{Canvas, Corners},
    line::{Line, Paint},
};

/// Space between two nodes.
const BETWEEN: usize = 5;
/// Rows of a node without its pods' addresses: two frames, the port's name, br-int with its frame, the
/// tunnel's name.
const ROWS: usize = 10;

/// A node, as its Open vSwitch database describes it.
#[derive(Debug, Clone)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    /// Address of the node's end of the tunnels.
    pub(crate) tunnel_address: String,
    /// `datapath_type` of br-int.
    pub(crate) datapath: String,
    pub(crate) pods: Vec<PodPort>,
    pub(crate) tunnels: Vec<Tunnel>,
}

/// A port of br-int with a pod on it.
#[derive(Debug, Clone)]
pub(crate) struct PodPort {
    pub(crate) pod: String,
    /// Addresses of the interface in the pod's namespace.
    pub(crate) addresses: Vec<String>,
    /// Interface name in the pod.
    pub(crate) ifname: String,
    /// Interface name on the node.
    pub(crate) host_ifname: String,
    pub(crate) ofport: String,
}

/// A port of br-int with a tunnel to another node.
#[derive(Debug, Clone)]
pub(crate) struct Tunnel {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) remote: String,
    pub(crate) ofport: String,
}

/// Draws `nodes` side by side, connected where a node has a tunnel to the next one.
pub(crate) fn draw(nodes: &[NodeView], indent: usize) -> impl Iterator<Item = Line> {
    let mut canvas = Canvas::default();
    let addresses =
        nodes.iter().flat_map(|node| &node.pods).map(|pod| pod.addresses.len()).max().unwrap_or_default();
    let mut x = 0;
    let mut places = Vec::new();
    for node in nodes {
        node.draw(&mut canvas, x, addresses);
        places.push(x + node.width() / 2);
        x += node.width() + BETWEEN;
    }
    for (pair, ends) in nodes.windows(2).zip(places.windows(2)) {
        if let [left, right] = pair
            && let Some(tunnel) = left.tunnels.iter().find(|tunnel| tunnel.remote == right.tunnel_address)
        {
            let y = addresses + ROWS;
            let width = ends[1] - ends[0] + 1;
            canvas.write(
                ends[0],
                y,
                Paint::Tunnel,
                &format!("╚{:═^1$}╝", format!(" {} ", tunnel.kind), width - 2),
            );
        }
    }
    canvas.into_lines(indent)
}

impl NodeView {
    fn width(&self) -> usize {
        let pods: usize = self.pods.iter().map(|pod| pod.width() + 1).sum();
        let texts = [
            self.name.chars().count() + 3,
            self.bridge().chars().count() + 6,
            self.tunnel_names().chars().count() + 2,
        ];
        (pods + 3).max(texts.into_iter().max().unwrap_or_default() + 2)
    }

    fn bridge(&self) -> String {
        match self.datapath.as_str() {
            "" => "br-int".to_owned(),
            datapath => format!("br-int ({datapath})"),
        }
    }

    fn tunnel_names(&self) -> String {
        self.tunnels.iter().map(|tunnel| tunnel.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn draw(&self, canvas: &mut Canvas, x: usize, addresses: usize) {
        let (width, middle) = (self.width(), x + self.width() / 2);
        let height = addresses + ROWS;
        canvas.frame(x, 0, (width, height), Corners::Round, Paint::Node);
        canvas.write(x + 2, 0, Paint::Node, &format!(" {} ", self.name));

        let bridge = addresses + 5;
        canvas.frame(x + 2, bridge, (width - 4, 3), Corners::Square, Paint::Node);
        canvas.write(x + 4, bridge + 1, Paint::Node, &self.bridge());

        let mut left = x + 2;
        for pod in &self.pods {
            pod.draw(canvas, left, addresses);
            canvas.write_around(left + pod.width() / 2, bridge, Paint::Plain, &format!(" {} ", pod.ofport));
            left += pod.width() + 1;
        }
        if !self.tunnels.is_empty() {
            let ports: Vec<&str> = self.tunnels.iter().map(|tunnel| tunnel.ofport.as_str()).collect();
            canvas.write_around(middle, bridge + 2, Paint::Plain, &format!(" {} ", ports.join(" ")));
            canvas.write_around(middle, bridge + 3, Paint::Tunnel, &self.tunnel_names());
            canvas.write_around(middle, height - 1, Paint::Tunnel, &format!(" {} ", self.tunnel_address));
        }
    }
}

impl PodPort {
    fn width(&self) -> usize {
        let addresses =
            self.addresses.iter().map(|address| address.chars().count()).max().unwrap_or_default();
        (self.pod.chars().count() + 2).max(addresses).max(self.host_ifname.chars().count()) + 4
    }

    fn draw(&self, canvas: &mut Canvas, x: usize, addresses: usize) {
        let (width, middle) = (self.width(), x + self.width() / 2);
        canvas.frame(x, 1, (width, addresses + 2), Corners::Square, Paint::Pod);
        canvas.write(x + 2, 1, Paint::Pod, &format!(" {} ", self.pod));
        for (row, address) in self.addresses.iter().enumerate() {
            canvas.write(x + 2, row + 2, Paint::Plain, address);
        }
        canvas.write_around(middle, addresses + 2, Paint::Pod, &format!(" {} ", self.ifname));
        canvas.write(middle, addresses + 3, Paint::Faint, "│");
        canvas.write_around(middle, addresses + 4, Paint::Plain, &self.host_ifname);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(index: usize, pods: &[&str]) -> NodeView {
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
        NodeView {
            name: format!("node{index}"),
            tunnel_address: format!("172.30.0.1{index}"),
            datapath: "netdev".to_owned(),
            pods: pods.iter().enumerate().map(port).collect(),
            tunnels: vec![Tunnel {
                name: format!("ovn-node{other}-0"),
                kind: "geneve".to_owned(),
                remote: format!("172.30.0.1{other}"),
                ofport: "1".to_owned(),
            }],
        }
    }

    fn text(nodes: &[NodeView]) -> String {
        draw(nodes, 0).map(|line| format!("{}\n", line.to_string().trim_end())).collect()
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
        assert!(drawn == picture.trim_start(), "\n{drawn}");
    }

    #[test]
    fn a_tunnel_to_somewhere_else_joins_nothing() {
        let mut nodes = [node(1, &["front"]), node(2, &[])];
        assert!(text(&nodes).contains("═ geneve ═"));
        nodes[0].tunnels[0].remote = "172.30.0.99".to_owned();
        assert!(!text(&nodes).contains("geneve"));
    }
}
