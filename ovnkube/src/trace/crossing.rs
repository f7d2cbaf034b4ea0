//! The switches that a packet crosses, and whether it fits its sender's interface.

use std::net::IpAddr;

use contract::{
    mac::Mac,
    wire::{TraceEntry, TraceProtocol},
};

use super::{
    TracePlaces,
    physical::{self, Crossing, NodeEntry, PHYSICAL},
    program::Packet,
    steps::WayEnd,
    topology::{Binding, Datapath},
    way::Way,
    ways::{LOCALNET, Ways},
};
use crate::findings::{Finding, State};

impl TracePlaces<'_> {
    /// What the switches say, and why they do not deliver what OVN does.
    pub(super) async fn physical(
        &self,
        start: &Binding,
        packet: &Packet,
        ways: &Ways,
    ) -> (Vec<Finding>, Option<String>) {
        // A packet that a gateway router takes has not entered br-int yet.
        if start.kind == LOCALNET || start.is_remote() {
            return (Vec::new(), None);
        }
        // The way of the first endpoint that OVN reaches stands for all.
        let is_delivered = |(_, way): &&(Option<String>, Way)| {
            matches!(way.end, WayEnd::Port(_) | WayEnd::Network(_))
        };
        let Some((endpoint, way)) = ways.all.iter().find(is_delivered) else {
            return (Vec::new(), None);
        };
        let Some((to, port)) = endpoint_of(endpoint.as_deref(), packet) else {
            return (Vec::new(), None);
        };
        let Ok(next) = self.topology.next_mac(start, to) else { return (Vec::new(), None) };
        let crossing = Crossing {
            nodes: self.crossed(start, [packet.source_mac, next], way),
            addresses: [packet.source, to],
            protocol: port,
            command: self.question.command(),
        };
        let passage = physical::passage(&self.servers, &crossing).await;
        let mut findings = passage.findings;
        findings.extend(self.size(passage.mtu));
        let dropped = passage.dropped_at.map(|node| {
            format!("the switch of node {node} drops it, although OVN's databases let it pass")
        });
        (findings, dropped)
    }

    /// The nodes that the packet crosses.
    fn crossed(&self, start: &Binding, macs: [Mac; 2], way: &Way) -> Vec<NodeEntry> {
        let topology = &self.topology;
        let node = topology.datapath(start).name;
        let entry = TraceEntry::Port(start.port.clone());
        let mut nodes = vec![NodeEntry { node: node.clone(), entry, macs }];
        let WayEnd::Port(port) = &way.end else { return nodes };
        let (Some(end), Some(step)) = (topology.port(port), way.steps.last()) else {
            return nodes;
        };
        let Datapath { name, key } = topology.datapath(end);
        let inport = topology.port(&step.inport);
        let router = inport.and_then(|inport| topology.router_mac(inport));
        let from = topology.tunnel_endpoints(start).first();
        // The last switch is entered with the Ethernet addresses of its router and its port.
        if let (Some(inport), Some(router), Some(mac), Some(from)) = (inport, router, end.mac, from)
            && name != node
        {
            let (from, inport, outport) = (*from, inport.key, end.key);
            let entry = TraceEntry::Tunnel { from, datapath: key, inport, outport };
            nodes.push(NodeEntry { node: name, entry, macs: [router, mac] });
        }
        nodes
    }

    /// Whether the packet fits.
    fn size(&self, mtu: Option<u32>) -> Option<Finding> {
        let (size, mtu) = (self.question.size?, mtu?);
        let found = |state, said: &str| Finding::new(PHYSICAL, "MTU", state, said);
        match size <= mtu {
            true => Some(found(State::Ok, &format!("{size} bytes fit into {mtu}"))),
            false => {
                let why = format!(
                    "{size} bytes do not fit into {mtu}, the MTU of the sender's interface: it \
                     splits the packet, or refuses to send it (message too long)"
                );
                Some(found(State::Warning, &why).next("ip link in the pod, and --mtu of ovnkube"))
            }
        }
    }
}

/// The packet's destination behind the load balancer.
fn endpoint_of(endpoint: Option<&str>, packet: &Packet) -> Option<(IpAddr, TraceProtocol)> {
    let Some(endpoint) = endpoint else { return Some((packet.destination, packet.protocol)) };
    let endpoint: std::net::SocketAddr = endpoint.parse().ok()?;
    Some((endpoint.ip(), packet.protocol.to_port(endpoint.port())))
}
