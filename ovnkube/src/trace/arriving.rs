//! A packet at a node: what the node makes of it, and what becomes of it then. Asks the API server,
//! the databases and this node's server.

use std::net::{IpAddr, SocketAddr};

use contract::{
    mac::Mac,
    names::ServiceKey,
    ovn::{external_switch, management_port},
    wire::{TraceEntry, TraceRequest},
};
use kubeapi::{
    Connection,
    services::{Service, ServiceObject},
    watch::Watched as _,
};

use super::{
    TracePlaces,
    arrival::{Arrival, Choice, Forwarded, Sender, Served, arrival, port_at},
    ends::NoEnd,
    follow::Passage,
    frontends::Frontends,
    node::NodeFacts,
    physical::{from_wire, is_led_to_ovn},
    program::Packet,
    way::Verdict,
};
use crate::{
    api_query::get,
    findings::{Finding, State},
};

const ARRIVAL: &str = "arrival";
/// The machine that sends: a gateway router does not look at its Ethernet address.
const NEXT_HOP: [u8; 6] = [0x0a, 0x58, 0, 0, 0, 1];

/// A packet for an address, at a node.
#[derive(Debug)]
pub(super) struct AtNode<'n> {
    pub(super) node: &'n NodeFacts,
    pub(super) sender: Sender,
    pub(super) to: IpAddr,
}

impl TracePlaces<'_> {
    /// The packet at the node, and where it goes on.
    pub(super) async fn arrive(&self, at: &AtNode<'_>) -> Passage {
        match self.goes_on(at).await {
            Ok(passage) => passage,
            Err(NoEnd::Absent(why)) => Passage::of(Verdict::Stopped(why)),
            Err(NoEnd::Unknown(why)) => Passage::of(Verdict::Unclear(why)),
        }
    }

    async fn goes_on(&self, at: &AtNode<'_>) -> Result<Passage, NoEnd> {
        let AtNode { node, sender, to } = at;
        if self.topology.holder(*to).is_some() {
            return Ok(Passage::of(Verdict::Stopped(format!(
                "dropped by the host of node {}: pods are not on the network of nodes, unless \
                 the node's server has --disable-forwarding=false",
                node.name
            ))));
        }
        let Some(port) = self.question.protocol.port() else {
            let host = &node.name;
            return Ok(Passage::of(match node.addresses.contains(to) {
                true => Verdict::Delivered(format!("taken by the host of node {host}")),
                false => Verdict::Stopped(format!("no node has the address {to}")),
            }));
        };
        let served = self.served(node, *to).await?;
        let there = SocketAddr::new(*to, port);
        let protocol = self.question.protocol;
        let arrival = arrival(node, *sender, there, protocol, served.as_ref());
        let seen = self.at_wire(at, &arrival).await;
        let mut passage = match arrival {
            Arrival::Ends(verdict) => Passage::of(verdict),
            Arrival::ToRouter { said } => self.by_router(at, &said).await?,
            Arrival::Over(forwarded) => self.over_management(node, forwarded).await?,
        };
        if let Some((finding, dropped)) = seen {
            passage.findings.push(finding);
            passage.dropped = dropped.or(passage.dropped);
        }
        Ok(passage)
    }

    /// What the node itself says of the packet, and why it goes another way than it should.
    async fn at_wire(
        &self,
        at: &AtNode<'_>,
        arrival: &Arrival,
    ) -> Option<(Finding, Option<String>)> {
        let (Sender::Machine(client), false) = (at.sender, matches!(arrival, Arrival::Ends(_)))
        else {
            return None;
        };
        let gateway = at.node.gateway.as_ref().map(|gateway| gateway.mac.octets());
        let request = TraceRequest {
            entry: TraceEntry::Wire,
            source_mac: NEXT_HOP,
            destination_mac: gateway.unwrap_or(NEXT_HOP),
            source: client,
            destination: at.to,
            protocol: self.question.protocol,
        };
        let (servers, node) = (&self.servers, &at.node.name);
        let command = self.question.command();
        let (finding, answer) = from_wire(servers, node, &request, &command).await;
        let Some(answer) = answer else { return Some((finding, None)) };
        let host = answer.host.clone().unwrap_or_default();
        let why = match arrival {
            _ if is_led_to_ovn(&answer) => None,
            Arrival::Over(_) if host.limited => Some("its rules drop the client"),
            Arrival::Over(_) if host.refused => Some("its rules refuse the connection"),
            Arrival::Over(_) if host.targets.is_empty() => {
                Some("it has no rule for this address (nft list table inet ovn-kubernetes)")
            }
            Arrival::ToRouter { .. } => Some("its bridge does not lead it to the gateway router"),
            Arrival::Over(_) | Arrival::Ends(_) => None,
        };
        Some((
            finding,
            why.map(|why| format!("the host of node {node} does not send it on: {why}")),
        ))
    }

    /// The Service that OVN serves there.
    pub(super) async fn served(
        &self,
        node: &NodeFacts,
        to: IpAddr,
    ) -> Result<Option<Served>, NoEnd> {
        let (api, north) = self.needed()?;
        let Some(port) = self.question.protocol.port() else { return Ok(None) };
        let management = self.topology.port(&management_port(&node.name));
        let chassis = management.and_then(|binding| self.topology.chassis_name(binding));
        let frontends = Frontends::read(north, chassis).await.map_err(NoEnd::Unknown)?;
        let protocol = self.question.protocol;
        let there = SocketAddr::new(to, port);
        let found = frontends.serving(there, protocol);
        let Some(found) = found else { return Ok(None) };
        let Some(key) = &found.service else {
            let why = format!("{} is not a Service's: what nodes do is not known", found.name);
            return Err(NoEnd::Unknown(why));
        };
        let service = service(api, key).await?;
        let is_own = node.addresses.contains(&to);
        let node_port = match port_at(&service, there, protocol, is_own) {
            Some(port) => port.node_port,
            None => None,
        };
        let nodes = self.nodes().await?;
        let is_of_node = |address| nodes.iter().any(|facts| facts.addresses.contains(&address));
        let local_traffic = node_port.and_then(|node_port| {
            let like = SocketAddr::new(to, node_port);
            frontends.of_local_traffic(key, like, protocol, is_of_node)
        });
        Ok(Some(Served { name: found.name, service, backends: found.backends, local_traffic }))
    }

    /// By way of the management port, as the host sends it.
    async fn over_management(
        &self,
        node: &NodeFacts,
        forwarded: Forwarded,
    ) -> Result<Passage, NoEnd> {
        let Forwarded { source, targets, choice, said } = forwarded;
        let port = management_port(&node.name);
        let start = self.topology.port(&port).filter(|binding| binding.mac.is_some());
        let start = start.ok_or_else(|| {
            NoEnd::Absent(format!("the southbound database has no management port {port}"))
        })?;
        let mut whole = Passage::default();
        whole.findings.push(Finding::new(ARRIVAL, &node.name, State::Ok, &said));
        for target in targets {
            let source = source.or_else(|| start.address(target.is_ipv6()));
            let source = source.ok_or_else(|| {
                NoEnd::Absent(format!("{port} has no address of the family of {target}"))
            })?;
            let endpoint = (choice == Choice::Host).then(|| target.to_string());
            if choice == Choice::Host && self.topology.holder(target.ip()).is_none() {
                let verdict = Verdict::Delivered(format!("sent to {target}, outside of OVN"));
                whole.verdicts.push((endpoint, verdict));
                continue;
            }
            let protocol = self.question.protocol.to_port(target.port());
            let packet = self.packet(start, source, target.ip(), protocol);
            let packet = packet.map_err(NoEnd::Absent)?;
            let passage = self.passes(start, &packet, None).await;
            let passage = passage.map_err(NoEnd::Unknown)?;
            whole.add(passage, endpoint);
        }
        Ok(whole)
    }

    /// By way of the gateway router.
    async fn by_router(&self, at: &AtNode<'_>, said: &str) -> Result<Passage, NoEnd> {
        let (Sender::Machine(client) | Sender::Host(client)) = at.sender;
        let node = at.node;
        let nothing = || {
            let why = format!("node {} does not say where its gateway is", node.name);
            NoEnd::Unknown(why)
        };
        let gateway = node.gateway.as_ref().ok_or_else(nothing)?;
        let start = self.topology.port(&gateway.interface).ok_or_else(|| {
            NoEnd::Absent(format!(
                "the southbound database has no port {} of the gateway of node {}",
                gateway.interface, node.name
            ))
        })?;
        let packet = Packet {
            datapath: external_switch(&node.name),
            inport: gateway.interface.clone(),
            source_mac: Mac::try_from(NEXT_HOP).map_err(|_| nothing())?,
            destination_mac: gateway.mac,
            source: client,
            destination: at.to,
            protocol: self.question.protocol,
        };
        let mut passage = self.passes(start, &packet, None).await.map_err(NoEnd::Unknown)?;
        passage.findings.insert(0, Finding::new(ARRIVAL, &node.name, State::Ok, said));
        Ok(passage)
    }
}

/// The Service, as programs read it.
pub(super) async fn service(api: &Connection, key: &ServiceKey) -> Result<Service, NoEnd> {
    let collection = format!("/api/v1/namespaces/{}/services", key.namespace());
    let object = match get(api, &collection, key.name()).await {
        Ok(Some(object)) => object,
        Ok(None) => return Err(NoEnd::Absent(format!("there is no Service {key}"))),
        Err(trouble) => return Err(NoEnd::Unknown(format!("Service {key}: {trouble}"))),
    };
    let object = serde_json::from_value::<ServiceObject>(object);
    let unreadable = |why: String| NoEnd::Unknown(format!("Service {key} cannot be read: {why}"));
    let object = object.map_err(|error| unreadable(error.to_string()))?;
    object.value().map(|(_, service)| service).map_err(unreadable)
}
