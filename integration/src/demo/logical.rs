//! The logical view: the contents of OVN's northbound database, as a tree.

use anyhow::{Context as _, Result};
use integration::{
    Pod,
    central::{Central, ROUTER},
};

use super::{
    line::{Line, Paint},
    rows::Table,
};

/// A logical switch, with the addresses of its router port.
#[derive(Debug, Clone)]
struct Switch {
    name: String,
    gateways: Vec<String>,
    ports: Vec<Port>,
}

/// The logical port of a pod.
#[derive(Debug, Clone)]
struct Port {
    name: String,
    /// The MAC address, then one IP address of each family.
    addresses: String,
    is_up: bool,
}

/// Reads the database and draws it, once the ports of `pods` are up in it. `up` reaches the northbound
/// database a moment after the port's flows are installed.
pub(crate) fn tree(central: &Central, pods: &[Pod]) -> Result<Vec<Line>> {
    let words =
        |pod: &Pod| ["--", "wait-until", "Logical_Switch_Port", &pod.port(), "up=true"].map(str::to_owned);
    central.nbctl(pods.iter().flat_map(words)).context("wait until OVN calls the pods' ports up")?;
    Ok(draw(&read(central)?))
}

fn read(central: &Central) -> Result<Vec<Switch>> {
    const QUESTIONS: &str = "--format=json --columns=name,ports list Logical_Switch \
                             -- --columns=_uuid,name,type,addresses,up,options list Logical_Switch_Port \
                             -- --columns=name,networks list Logical_Router_Port";
    let [switches, ports, router_ports] = Table::parse(&central.nbctl(QUESTIONS.split_whitespace())?)?;
    let (ports, router_ports) = (ports.rows()?, router_ports.rows()?);
    let mut tree = Vec::new();
    for row in switches.rows()? {
        let mut switch = Switch { name: row.text("name")?, gateways: Vec::new(), ports: Vec::new() };
        for uuid in row.texts("ports")? {
            let port = ports
                .iter()
                .find(|port| port.text("_uuid").is_ok_and(|it| it == uuid))
                .context("a switch has ports that exist")?;
            if port.text("type")? == "router" {
                let peer = port.value_of("options", "router-port")?;
                let peer = router_ports.iter().find(|port| port.text("name").is_ok_and(|it| it == peer));
                switch.gateways = peer.map(|peer| peer.texts("networks")).transpose()?.unwrap_or_default();
            } else {
                let addresses = port.texts("addresses")?.join(" ");
                switch.ports.push(Port {
                    name: port.text("name")?,
                    addresses,
                    is_up: port.text("up")? == "true",
                });
            }
        }
        switch.ports.sort_by(|left, right| left.addresses.cmp(&right.addresses));
        tree.push(switch);
    }
    tree.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(tree)
}

fn draw(switches: &[Switch]) -> Vec<Line> {
    let mut lines =
        vec![Line::default().to(2).add(Paint::Strong, ROUTER).add(Paint::Faint, "  logical router")];
    let names = switches
        .iter()
        .flat_map(|switch| &switch.ports)
        .map(|port| port.name.chars().count())
        .max()
        .unwrap_or_default();
    for (switch, (branch, stem)) in with_branches(switches) {
        let line = Line::default().to(2).add(Paint::Faint, branch).add(Paint::Node, &switch.name);
        lines
            .push(line.add(Paint::Faint, format!("  logical switch, gateway {}", switch.gateways.join(" "))));
        for (port, (branch, _)) in with_branches(&switch.ports) {
            let line = Line::default()
                .to(2)
                .add(Paint::Faint, format!("{stem}{branch}"))
                .add(Paint::Pod, &port.name);
            let line = line.to(2 + 6 + names + 2).text(&port.addresses).text("  ");
            lines.push(if port.is_up { line.add(Paint::Good, "up") } else { line.add(Paint::Bad, "down") });
        }
    }
    lines
}

/// Each member with its branch of the tree, and the prefix of the lines below it.
fn with_branches<T>(members: &[T]) -> impl Iterator<Item = (&T, (&'static str, &'static str))> {
    let last = members.len().saturating_sub(1);
    members
        .iter()
        .enumerate()
        .map(move |(index, member)| (member, if index == last { ("└─ ", "   ") } else { ("├─ ", "│  ") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_hang_on_the_router_and_ports_on_their_switch() {
        let port =
            |name: &str, is_up| Port { name: name.to_owned(), addresses: "0a:58 10.0.0.3".to_owned(), is_up };
        let switch = |name: &str, ports| Switch {
            name: name.to_owned(),
            gateways: vec!["10.0.0.1/24".to_owned()],
            ports,
        };
        let tree = [
            switch("node1", vec![port("shop_front", true), port("shop_a", false)]),
            switch("node2", vec![port("shop_b", true)]),
        ];
        let lines: Vec<String> = draw(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "  ovn_cluster_router  logical router",
                "  ├─ node1  logical switch, gateway 10.0.0.1/24",
                "  │  ├─ shop_front  0a:58 10.0.0.3  up",
                "  │  └─ shop_a      0a:58 10.0.0.3  down",
                "  └─ node2  logical switch, gateway 10.0.0.1/24",
                "     └─ shop_b      0a:58 10.0.0.3  up",
            ]
        );
    }
}
