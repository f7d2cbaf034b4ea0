//! The way through the switches of the nodes, as far as their servers can be asked.

use std::net::IpAddr;

use contract::{
    mac::Mac,
    wire::{TRACE_PATH, TraceAnswer, TraceEntry, TraceProtocol, TraceRequest},
};
use futures_util::future::join_all;

use crate::{
    findings::{Finding, State},
    node_pods::{NoAnswer, NodeServers},
};

pub(super) const PHYSICAL: &str = "physical path";
const ACTIONS: &str = "Datapath actions: ";

/// The packet at the switches, after load balancers.
#[derive(Debug, Clone)]
pub(super) struct Crossing {
    /// In order.
    pub(super) nodes: Vec<NodeEntry>,
    pub(super) addresses: [IpAddr; 2],
    pub(super) protocol: TraceProtocol,
    /// The command that asks the same.
    pub(super) command: String,
}

/// How the packet enters the switch of a node.
#[derive(Debug, Clone)]
pub(super) struct NodeEntry {
    pub(super) node: String,
    pub(super) entry: TraceEntry,
    /// Source and destination: a router in between changes them.
    pub(super) macs: [Mac; 2],
}

/// What the switches say.
#[derive(Debug, Default)]
pub(super) struct SwitchPassage {
    pub(super) findings: Vec<Finding>,
    /// The node whose switch drops the packet.
    pub(super) dropped_at: Option<String>,
    /// The MTU of the interface where the packet starts.
    pub(super) mtu: Option<u32>,
}

pub(super) async fn passage(servers: &NodeServers<'_>, crossing: &Crossing) -> SwitchPassage {
    let mut passage = SwitchPassage::default();
    let asked = crossing.nodes.iter().map(|entered| {
        let request = crossing.request(entered);
        async move { answered(servers, &entered.node, &request, &crossing.command).await }
    });
    let asked = join_all(asked).await;
    for (index, (entered, answer)) in crossing.nodes.iter().zip(asked).enumerate() {
        let node = &entered.node;
        let finding = match answer {
            Ok(answer) => {
                if index == 0 {
                    passage.mtu = answer.mtu;
                }
                let finding = of_answer(node, &answer);
                if finding.state == State::Failed {
                    passage.dropped_at = Some(node.clone());
                }
                finding
            }
            Err(finding) => finding,
        };
        passage.findings.push(finding);
    }
    passage
}

impl Crossing {
    fn request(&self, entered: &NodeEntry) -> TraceRequest {
        let [source, destination] = self.addresses;
        let [source_mac, destination_mac] = entered.macs.map(Mac::octets);
        let (entry, protocol) = (entered.entry.clone(), self.protocol);
        TraceRequest { entry, source_mac, destination_mac, source, destination, protocol }
    }
}

/// What the node's server says, or why it says nothing.
async fn answered(
    servers: &NodeServers<'_>,
    node: &str,
    request: &TraceRequest,
    command: &str,
) -> Result<TraceAnswer, Finding> {
    let found = |state, why: &str| Finding::new(PHYSICAL, node, state, why);
    match servers.ask::<TraceAnswer>(node, TRACE_PATH, request).await {
        Ok(TraceAnswer { problem: Some(problem), .. }) => Err(found(State::Unknown, &problem)),
        Ok(answer) => Ok(answer),
        Err(NoAnswer::Failed(why)) => Err(found(State::Unknown, &why)),
        Err(NoAnswer::Unasked(why)) => {
            let next = format!("{command} on node {node}, as root");
            Err(found(State::Skipped, &why).next(&next))
        }
    }
}

/// What the node does with a packet from the wire. No answer: the finding says why.
pub(super) async fn from_wire(
    servers: &NodeServers<'_>,
    node: &str,
    request: &TraceRequest,
    command: &str,
) -> (Finding, Option<TraceAnswer>) {
    match answered(servers, node, request, command).await {
        Ok(answer) => (of_arrival(node, &answer), Some(answer)),
        Err(finding) => (finding, None),
    }
}

/// Whether the gateway's bridge leads the packet into OVN.
pub(super) fn is_led_to_ovn(answer: &TraceAnswer) -> bool {
    answer.text.contains("bridge(\"br-int\")")
}

fn of_arrival(node: &str, answer: &TraceAnswer) -> Finding {
    let TraceAnswer { interface, flow, host, .. } = answer;
    let host = host.clone().unwrap_or_default();
    let targets = host.targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let rules = match (host.limited, host.refused, host.targets.is_empty()) {
        (true, ..) => "its rules drop a client of no range".to_owned(),
        (_, true, _) => "its rules refuse it: no endpoint here".to_owned(),
        (_, _, true) => "it has no rule for this".to_owned(),
        (_, _, false) => format!("its rules translate to {targets}"),
    };
    let said = match (interface.is_empty(), is_led_to_ovn(answer)) {
        (true, _) => format!("comes to the host; {rules}"),
        (false, true) => format!("enters by {interface}, and the bridge leads it to OVN"),
        (false, false) => {
            format!("enters by {interface}, the bridge leads it to the host; {rules}")
        }
    };
    Finding::new(PHYSICAL, node, State::Ok, &said).with("flow", flow.as_str())
}

fn of_answer(node: &str, answer: &TraceAnswer) -> Finding {
    let TraceAnswer { interface, flow, text, .. } = answer;
    let (state, said) = outcome(text);
    let said = format!("enters br-int by {interface}; {said}");
    let finding = Finding::new(PHYSICAL, node, state, &said).with("flow", flow.as_str());
    match state {
        State::Ok => finding,
        _ => finding.next(&format!("ovs-appctl ofproto/trace br-int '{flow}'")),
    }
}

/// What the output of `ofproto/trace` says at its end.
fn outcome(text: &str) -> (State, String) {
    let Some(actions) = text.lines().filter_map(|line| line.strip_prefix(ACTIONS)).next_back()
    else {
        return (State::Unknown, "ovs-vswitchd says no actions".to_owned());
    };
    // A tunnel in user space needs the neighbour's address first (ovs-vswitchd asks for it).
    let asks = text.contains("neighbor cache miss");
    match actions.trim() {
        "drop" if asks => {
            (State::Warning, "the switch asks for the tunnel's neighbour first".to_owned())
        }
        "drop" => {
            let last = text.lines().rfind(|line| is_table(line)).unwrap_or_default();
            (State::Failed, format!("the switch drops it, in its table {}", last.trim()))
        }
        actions => (State::Ok, format!("the switch's actions: {actions}")),
    }
}

/// Whether the line is that of a table: ` 0. in_port=3, priority 100, cookie 0x1`.
fn is_table(line: &str) -> bool {
    let number = line.trim_start().split_once(". ").map(|(number, _)| number);
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

#[cfg(test)]
mod tests {
    use contract::wire::HostAnswer;

    use super::*;

    #[test]
    fn what_a_bridge_and_a_host_make_of_a_packet_from_the_wire_is_said() {
        let answer = |interface: &str, text: &str, host: HostAnswer| TraceAnswer {
            interface: interface.to_owned(),
            text: text.to_owned(),
            host: Some(host),
            ..TraceAnswer::default()
        };
        let to = |targets: &[&str]| HostAnswer {
            targets: targets.iter().map(|text| text.parse().unwrap()).collect(),
            ..HostAnswer::default()
        };
        let limited = HostAnswer { limited: true, ..to(&["10.96.0.7:80"]) };
        let refused = HostAnswer { refused: true, ..HostAnswer::default() };
        let into_ovn = "bridge(\"breth0\")\nbridge(\"br-int\")\nDatapath actions: 3\n";
        for (interface, text, host, said) in [
            (
                "",
                "",
                to(&["10.96.0.7:80"]),
                "comes to the host; its rules translate to 10.96.0.7:80",
            ),
            ("", "", to(&[]), "it has no rule for this"),
            ("eth0", "Datapath actions: LOCAL\n", limited, "to the host; its rules drop a client"),
            ("eth0", "Datapath actions: LOCAL\n", refused, "its rules refuse it"),
            ("eth0", into_ovn, to(&[]), "enters by eth0, and the bridge leads it to OVN"),
        ] {
            let finding = of_arrival("n1", &answer(interface, text, host));
            assert!(finding.summary.contains(said), "{finding:?}");
        }
    }

    #[test]
    fn the_last_actions_count_and_a_drop_is_a_fault_unless_a_neighbour_is_asked_for() {
        let first = "Datapath actions: ct(zone=3),recirc(0x5)\n";
        for (last, state) in [
            ("Datapath actions: 4\n", State::Ok),
            ("Datapath actions: drop\n", State::Failed),
            (
                "     -> neighbor cache miss for 172.30.0.2\nDatapath actions: drop\n",
                State::Warning,
            ),
        ] {
            assert_eq!(outcome(&format!("{first}{last}")).0, state, "{last}");
        }
        assert_eq!(outcome("").0, State::Unknown);
    }
}
