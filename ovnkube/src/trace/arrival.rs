//! What a node makes of a packet that is not from a pod: of another machine, or of the node itself.
//! Pure. The node's part in Services is that of `docs/decisions/node-ports-on-the-host.md` and
//! `gateway-on-the-node.md`.
//!
//! A packet to a node port or an outer address of a Service is translated by the host to the
//! Service's address in the cluster, and sent over the management port. From outside and under
//! `externalTrafficPolicy: Local`, it goes to the masquerade address and keeps the client's; with a
//! shared gateway, the gateway router takes it. The host takes what is for another port of the
//! node, and drops what is for a pod.

use std::net::{IpAddr, SocketAddr};

use contract::{node_annotation::GatewayMode, wire::TraceProtocol};
use kubeapi::services::{Protocol, Service, ServicePort, Traffic};

use super::{node::NodeFacts, way::Verdict};

/// Who sends the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// Another machine, with this address.
    Machine(IpAddr),
    /// The node's own host, with this address.
    Host(IpAddr),
}

/// A Service at an address and a port.
#[derive(Debug)]
pub(super) struct Served {
    /// `Service shop/web`
    pub(super) name: String,
    pub(super) service: Service,
    /// The endpoints that OVN has for this address.
    pub(super) backends: Vec<SocketAddr>,
    /// The masquerade address with the node port, at which OVN has the endpoints of a node alone.
    pub(super) local_traffic: Option<SocketAddr>,
}

/// Where the packet goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It ends at the node.
    Ends(Verdict),
    /// Over the management port.
    Over(Forwarded),
    /// To the gateway router, as it came.
    ToRouter { said: String },
}

/// What the host sends over its management port.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Forwarded {
    /// `None`: the management port's own address.
    pub(super) source: Option<IpAddr>,
    /// One for each endpoint if the host chooses it; else one, and OVN chooses.
    pub(super) targets: Vec<SocketAddr>,
    pub(super) choice: Choice,
    pub(super) said: String,
}

/// What chooses an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Ovn,
    Host,
}

/// What the node makes of a packet for `at`.
pub(super) fn arrival(
    node: &NodeFacts,
    sender: Sender,
    at: SocketAddr,
    protocol: TraceProtocol,
    served: Option<&Served>,
) -> Arrival {
    let host = &node.name;
    let is_own = node.addresses.contains(&at.ip());
    let Some(Served { name, service, backends, local_traffic }) = served else {
        return Arrival::Ends(match is_own {
            true => Verdict::Delivered(format!("taken by the host of node {host}")),
            false => Verdict::Stopped(format!("no Service has {at}, and no node the address")),
        });
    };
    let Some(port) = port_at(service, at, protocol, is_own) else {
        return Arrival::Ends(Verdict::Unclear(format!(
            "OVN serves {at} for {name}, and the object has no such port: the control plane is \
             behind (ovnkube status)"
        )));
    };
    let (Sender::Machine(client) | Sender::Host(client)) = sender;
    if let Some(mut clients) = service.source_ranges.as_ref().and_then(|it| it.of(at.ip()))
        && !clients.any(|range| range.contains(&client))
    {
        return Arrival::Ends(Verdict::Stopped(format!(
            "dropped by {name}, loadBalancerSourceRanges: {client} is in none of them, and the \
             host of node {host} drops it"
        )));
    }
    let is_local = service.external == Traffic::Local && matches!(sender, Sender::Machine(_));
    if is_local {
        return local(node, client, at, name, *local_traffic);
    }
    let alike = |address: &&IpAddr| address.is_ipv6() == at.is_ipv6();
    let Some(cluster) = service.cluster_ips.iter().find(alike) else {
        let why = format!("{name} has no address in the cluster of the family of {at}");
        return Arrival::Ends(Verdict::Stopped(why));
    };
    let source = match sender {
        Sender::Machine(_) => node.forwarded.iter().find(alike).copied(),
        Sender::Host(_) => None,
    };
    // The policy is about the cluster's address alone: then the kernel draws among all endpoints.
    let choice = match service.internal {
        Traffic::Local if !backends.is_empty() => Choice::Host,
        Traffic::Local | Traffic::Cluster => Choice::Ovn,
    };
    let cluster = SocketAddr::new(*cluster, port.port);
    let targets = match choice {
        Choice::Ovn => vec![cluster],
        Choice::Host => backends.clone(),
    };
    let to = targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let said = format!("{name}: the host of node {host} translates {at} to {to}");
    Arrival::Over(Forwarded { source, targets, choice, said })
}

/// Under `externalTrafficPolicy: Local`: endpoints of the node alone, and the client's address.
fn local(
    node: &NodeFacts,
    client: IpAddr,
    at: SocketAddr,
    name: &str,
    target: Option<SocketAddr>,
) -> Arrival {
    let host = &node.name;
    if node.mode == GatewayMode::Shared {
        let said = format!("{name}: the bridge of node {host} leads {at} to the gateway router");
        return Arrival::ToRouter { said };
    }
    let Some(target) = target else {
        let why = format!(
            "{name} has externalTrafficPolicy Local, and OVN no address for it: the host of node \
             {host} chooses among its own endpoints"
        );
        return Arrival::Ends(Verdict::Unclear(why));
    };
    let said = format!(
        "{name}: the host of node {host} translates {at} to {target}, endpoints of this node alone"
    );
    let (source, choice) = (Some(client), Choice::Ovn);
    Arrival::Over(Forwarded { source, targets: vec![target], choice, said })
}

/// The port of the Service at the address.
pub(super) fn port_at(
    service: &Service,
    at: SocketAddr,
    protocol: TraceProtocol,
    is_own: bool,
) -> Option<&ServicePort> {
    let asked = match protocol {
        TraceProtocol::Tcp(_) => Protocol::Tcp,
        TraceProtocol::Udp(_) => Protocol::Udp,
        TraceProtocol::Icmp => return None,
    };
    let is_outer = service.outside().any(|address| address == at.ip());
    service.ports.iter().filter(|port| port.protocol == asked).find(|port| {
        is_own && port.node_port == Some(at.port()) || is_outer && port.port == at.port()
    })
}

#[cfg(test)]
mod tests;
