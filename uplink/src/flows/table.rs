//! The flows of the external bridge. Each function is a part of the table, in the order of a
//! packet's way. Must not know how flows get into a bridge.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use ipnet::IpNet;

use super::{
    config::{Config, Datapath, Exposed, ExternalBridge, Front, HostAddresses, Mode, PodSource},
    flow::{
        Action::{
            self, CheckLarger, CopyMacDestinationToSource, PopVlan, PushVlan, Resubmit, SetVlan,
        },
        ConnectionState::{Established, Related},
        Ct, Family, Flows, Match,
        Nat::{AsBefore, Destination, Source},
        OfPort, Packet, Protocol,
    },
};

/// The tables after conntrack, by number.
const ANSWERS: u8 = 1;
const INTO_OVN: u8 = 2;
const INTO_HOST: u8 = 3;
const MASQUERADE_OVN: u8 = 4;
const UNMASQUERADE_OVN: u8 = 5;
const TO_HOST_ENDPOINT: u8 = 6;
const FROM_HOST_ENDPOINT: u8 = 7;
const BY_SIZE: u8 = 11;

/// Marks of connections with the world: begun by OVN, begun by the host.
const OF_OVN: u32 = 1;
const OF_HOST: u32 = 2;

/// The UDP port of BFD (RFC 5881).
const BFD: u16 = 3784;
/// Bytes of an Ethernet header, and of a VLAN's tag.
const ETHERNET: u32 = 14;
const TAG: u32 = 4;
/// ICMP: "fragmentation needed" (RFC 1191); ICMPv6: "packet too big", router advertisement,
/// neighbour solicitation, neighbour advertisement (RFC 4443, RFC 4861).
const FRAGMENTATION_NEEDED: (u8, u8) = (3, 4);
const TOO_BIG: (u8, u8) = (2, 0);
const ROUTER_ADVERTISEMENT: u8 = 134;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// The priority that ovs-ofctl gives to a flow without one.
const DEFAULT_PRIORITY: u16 = 32768;

/// All flows of the bridge of a gateway node.
///
/// A flow from the patch port to the uplink matches the bridge's own MAC address as source. Nothing
/// else may leave: a wrong address on the wire moves the node's traffic to another port of the
/// physical switch.
pub fn table(config: &Config) -> Flows {
    let mut flows = bootstrap(&config.bridge);
    tunnels(&mut flows, config);
    for host in &config.hosts {
        between_host_and_ovn(&mut flows, config, host);
        with_world(&mut flows, config, Family::of(host.node));
        fragments(&mut flows, config, Family::of(host.node));
        answers(&mut flows, config, Family::of(host.node));
        for service in &config.services {
            exposed(&mut flows, config, host, service);
        }
    }
    any_family(&mut flows, config);
    flows
}

/// The flows that are safe before anything is known of addresses and Services: a switch for the
/// node, without what the patch port sends with a wrong MAC address.
pub fn bootstrap(bridge: &ExternalBridge) -> Flows {
    let mut flows = Flows::default();
    flows.add(0, 10, from_world(bridge).mac_destination(bridge.mac), to_both(bridge));
    flows.add(0, 10, from_ovn(bridge), [Action::Output(OfPort::NORMAL)]);
    flows.add(0, 9, Match::from_port(bridge.ports.patch), []);
    flows.add(0, 0, Match::default(), [Action::Output(OfPort::NORMAL)]);
    no_tunnels_of_pods(&mut flows, bridge);
    flows
}

/// Whatever leaves the gateway router has the node's address, and other nodes take a tunnel's
/// packet from that for this node's own. So OVN sends nothing to a tunnel's port, nor from one: the
/// answer would go there. Before all other flows, those between host and router included.
fn no_tunnels_of_pods(flows: &mut Flows, bridge: &ExternalBridge) {
    for port in &bridge.tunnel_ports {
        for family in [Family::V4, Family::V6] {
            let udp = Match::from_port(bridge.ports.patch)
                .packet(Packet::Transport(family, Protocol::Udp));
            flows.add(0, 700, udp.destination_port(*port), []);
            flows.add(0, 700, udp.source_port(*port), []);
        }
    }
}

/// Tunnels end at the host. They do not need conntrack, and must not be taken for a NodePort.
fn tunnels(flows: &mut Flows, config: &Config) {
    let bridge = &config.bridge;
    for (host, port) in config
        .hosts
        .iter()
        .flat_map(|host| bridge.tunnel_ports.iter().map(move |port| (host, *port)))
    {
        let tunnel = |from: Match| {
            from.packet(Packet::Transport(Family::of(host.node), Protocol::Udp))
                .destination_port(port)
        };
        let to_node = from_world(bridge).mac_destination(bridge.mac);
        flows.add(0, 205, tunnel(to_node), to_host(bridge));
        flows.add(0, 200, tunnel(from_world(bridge)), [Action::Output(OfPort::NORMAL)]);
        flows.add(0, 200, tunnel(from_host(bridge)), host_to(bridge, bridge.ports.uplink));
    }
}

/// The host and the gateway router have the same address and the same MAC address. Between them,
/// each has a masquerade address instead.
fn between_host_and_ovn(flows: &mut Flows, config: &Config, host: &HostAddresses) {
    let ExternalBridge { ports, mac, .. } = &config.bridge;
    let HostAddresses { node, others, masquerade } = host;
    let (of_host, of_ovn) = (config.zone.host_masquerade(), config.zone.ovn_masquerade());
    let from_patch = Match::from_port(ports.patch);
    let is_alike = |address: IpAddr| address.is_ipv4() == node.is_ipv4();

    // An endpoint that is the host, for OVN.
    let to_endpoint = from_patch.destination(masquerade.host).source(*node);
    let as_node = Ct::of(of_host).commit().nat(Destination(*node, None)).table(MASQUERADE_OVN);
    flows.add(0, 500, to_endpoint, [Action::Ct(as_node)]);
    for other in others.iter().filter(|other| is_alike(**other)) {
        let tracked = Ct::of(of_host).commit().table(MASQUERADE_OVN);
        flows.add(0, 500, from_patch.destination(*other).source(*node), [Action::Ct(tracked)]);
    }
    let answer = from_host(&config.bridge).destination(masquerade.ovn);
    flows.add(0, 500, answer, [Action::Ct(Ct::of(of_ovn).nat(AsBefore).table(UNMASQUERADE_OVN))]);

    // A Service, for the host.
    for range in config.service_ranges.iter().filter(|range| is_alike(range.addr())) {
        let masqueraded = Ct::of(of_host).commit().nat(Source(masquerade.host)).table(INTO_OVN);
        flows.add(0, 500, from_host(&config.bridge).destination(*range), [Action::Ct(masqueraded)]);
        let answer = from_patch.source(*range).destination(masquerade.host);
        flows.add(0, 500, answer, [Action::Ct(Ct::of(of_host).nat(AsBefore).table(INTO_HOST))]);
        // No Service has this address, or its endpoints are gone. The world has none of the range
        // either, whatever port the packet comes from: before the answers of node ports.
        flows.add(0, 115, from_patch.destination(*range), []);
    }

    let family = Family::of(*node);
    let masqueraded = Ct::of(of_ovn).commit().nat(Source(masquerade.ovn)).table(INTO_HOST);
    flows.add(
        MASQUERADE_OVN,
        DEFAULT_PRIORITY,
        Match::default().ip(family),
        [Action::Ct(masqueraded)],
    );
    let as_before = Ct::of(of_host).commit().nat(AsBefore).table(INTO_OVN);
    flows.add(
        UNMASQUERADE_OVN,
        DEFAULT_PRIORITY,
        Match::default().ip(family),
        [Action::Ct(as_before)],
    );

    // The host's next hop to Services is an address that no port has.
    let mut into_ovn = vec![Action::SetMacDestination(*mac)];
    into_ovn.extend(host_to(&config.bridge, ports.patch));
    flows.add(INTO_OVN, 100, Match::default(), into_ovn);
    // The kernel drops a frame with its own address as source; that of the next hop is not needed.
    let mut into_host = vec![CopyMacDestinationToSource, Action::SetMacDestination(*mac)];
    into_host.extend(to_host(&config.bridge));
    flows.add(INTO_HOST, DEFAULT_PRIORITY, outside(&config.bridge), into_host);
}

/// Connections with the world. Their mark says whose they are, so that answers find the way back.
fn with_world(flows: &mut Flows, config: &Config, family: Family) {
    let bridge = &config.bridge;
    let ports = &bridge.ports;
    let zone = config.zone.world();
    if config.mode == Mode::Local {
        let bfd =
            Match::default().packet(Packet::Transport(family, Protocol::Udp)).destination_port(BFD);
        let bfd = Match { in_port: Some(ports.patch), mac_source: Some(bridge.mac), ..bfd };
        flows.add(0, 650, bfd, [Action::Output(ports.uplink)]);
        // What OVN sends leaves through the host, which knows the way. ICMP is left to the flows
        // below.
        for host in config.hosts.iter().filter(|host| Family::of(host.node) == family) {
            for protocol in Protocol::ALL {
                let from_router = Match::from_port(ports.patch)
                    .packet(Packet::Transport(family, protocol))
                    .source(host.node);
                let tracked = Ct::of(config.zone.host_masquerade()).table(MASQUERADE_OVN);
                flows.add(0, 175, from_router, [Action::Ct(tracked)]);
            }
        }
    }
    if config.pod_source == PodSource::Node {
        // The gateway router has not translated it: no row says so yet.
        let is_alike = |net: &&IpNet| Family::of(net.addr()) == family;
        for pods in config.cluster_subnets.iter().filter(is_alike) {
            flows.add(0, 104, Match::from_port(ports.patch).source(*pods), []);
        }
    }
    let of_ovn = Action::Ct(Ct::of(zone).commit_with(OF_OVN));
    flows.add(0, 100, from_ovn(bridge).ip(family), [of_ovn, Action::Output(ports.uplink)]);
    let mut of_host = vec![Action::Ct(Ct::of(zone).commit_with(OF_HOST))];
    of_host.extend(host_to(bridge, ports.uplink));
    flows.add(0, 100, from_host(bridge).ip(family), of_host);
    let tracked = Action::Ct(Ct::of(zone).nat(AsBefore).table(ANSWERS));
    flows.add(0, 50, from_world(bridge).ip(family), [tracked]);
}

/// Fragments match no flow with a port. Where a Service's port decides, conntrack makes them whole
/// before.
///
/// On the userspace datapath, what comes back from conntrack are fragments again, and would turn
/// round here until they are dropped. There they are left to [`with_world`], whose conntrack knows
/// their connection.
fn fragments(flows: &mut Flows, config: &Config, family: Family) {
    let bridge = &config.bridge;
    if bridge.datapath == Datapath::Userspace {
        return;
    }
    let is_on_host =
        |service: &Exposed| service.host_endpoint.is_some() && service.front.family() == family;
    let is_on_host = config.services.iter().any(is_on_host);
    let from_world = (config.mode == Mode::Shared || is_on_host).then(|| from_world(bridge));
    let from_host = is_on_host.then(|| from_host(bridge));
    for from in from_world.into_iter().chain(from_host) {
        let whole = Action::Ct(Ct::of(config.zone.fragments()).table(0));
        flows.add(0, 110, from.ip(family).fragment(), [whole]);
    }
}

/// A Service's port, for the host's addresses of one family.
fn exposed(flows: &mut Flows, config: &Config, host: &HostAddresses, service: &Exposed) {
    let bridge = &config.bridge;
    if service.front.family() != Family::of(host.node) {
        return;
    }
    if let Front::Address { address, .. } = service.front {
        flows.add(0, 110, asks_for(from_world(bridge), address), to_all_but_ovn(bridge));
    }
    // A client's packet is not to become a tunnel's: clients on other nodes are seen with their
    // nodes' addresses.
    let is_tunnel = |target: &SocketAddr| {
        service.protocol == Protocol::Udp && bridge.tunnel_ports.contains(&target.port())
    };
    match (service.host_endpoint, config.mode) {
        (Some(target), _) if is_tunnel(&target) => {}
        (Some(target), _) => exposed_host(flows, config, service, target),
        (None, Mode::Shared) => exposed_ovn(flows, bridge, service),
        // The host translates.
        (None, Mode::Local) => {}
    }
}

/// The host itself serves, and sees the client's address.
fn exposed_host(flows: &mut Flows, config: &Config, service: &Exposed, target: SocketAddr) {
    let bridge = &config.bridge;
    let zone = config.zone.host_endpoints();
    let translated = Destination(target.ip(), Some(target.port()));
    let there = Action::Ct(Ct::of(zone).commit().nat(translated).table(TO_HOST_ENDPOINT));
    from_clients(flows, bridge, service, there);
    let back = Action::Ct(Ct::of(zone).nat(AsBefore).table(FROM_HOST_ENDPOINT));
    let packet = Packet::Transport(service.front.family(), service.protocol);
    let answer = from_host(bridge).packet(packet).source(target.ip()).source_port(target.port());
    flows.add(0, 110, answer, [back]);
}

/// The gateway router serves.
fn exposed_ovn(flows: &mut Flows, bridge: &ExternalBridge, service: &Exposed) {
    let family = service.front.family();
    from_clients(flows, bridge, service, Action::Output(bridge.ports.patch));
    let packet = Packet::Transport(family, service.protocol);
    let mut answer = from_ovn(bridge).packet(packet).source_port(service.front.port());
    if let Front::Address { address, .. } = service.front {
        answer = answer.source(address);
        let (kind, code) = match family {
            Family::V4 => FRAGMENTATION_NEEDED,
            Family::V6 => TOO_BIG,
        };
        let too_large = from_world(bridge).icmp(family, kind, Some(code)).destination(address);
        flows.add(0, 110, too_large, [Action::Output(bridge.ports.patch)]);
    }
    match bridge.datapath {
        // The connection needs no mark: the port leads each packet.
        Datapath::Kernel => flows.add(0, 110, answer, [Action::Output(bridge.ports.uplink)]),
        // The client's next packet may come in fragments, which only the mark leads (`with_world`).
        Datapath::Userspace => {}
    }
}

/// What becomes of packets for a Service's port from clients that may connect. Those of others go
/// to the host, which drops them.
fn from_clients(flows: &mut Flows, bridge: &ExternalBridge, service: &Exposed, action: Action) {
    let all = to_service(bridge, service);
    match &service.clients {
        None => flows.add(0, 110, all, [action]),
        Some(clients) => {
            for client in clients {
                flows.add(0, 110, all.source(*client), [action.clone()]);
            }
        }
    }
}

/// The packets from the world for a Service's port.
fn to_service(bridge: &ExternalBridge, service: &Exposed) -> Match {
    let Exposed { protocol, front, .. } = *service;
    let packet = Packet::Transport(front.family(), protocol);
    let to_port = from_world(bridge).packet(packet).destination_port(front.port());
    match front {
        Front::NodePort { .. } => to_port,
        Front::Address { address, .. } => to_port.destination(address),
    }
}

/// The table after the conntrack of connections with the world: back to the side that began.
fn answers(flows: &mut Flows, config: &Config, family: Family) {
    let bridge = &config.bridge;
    let ports = &bridge.ports;
    let answer = outside(bridge).ip(family);
    let to_ovn = match config.mode {
        Mode::Shared => vec![Action::Output(ports.patch)],
        Mode::Local => {
            let tag = bridge.vlan.map_or(0, |_| TAG);
            let largest = u16::try_from(config.mtu.bytes() + ETHERNET + tag).unwrap_or(u16::MAX);
            vec![CheckLarger(largest), Resubmit(BY_SIZE)]
        }
    };
    for state in [Established, Related] {
        flows.add(ANSWERS, 100, answer.state(state).ct_mark(OF_OVN), to_ovn.clone());
        flows.add(ANSWERS, 100, answer.state(state).ct_mark(OF_HOST), to_host(bridge));
    }
    if let PodSource::Own { management } = &config.pod_source {
        let is_alike = |address: &&IpAddr| Family::of(**address) == family;
        for address in management.iter().filter(is_alike) {
            flows.add(ANSWERS, 16, outside(bridge).destination(*address), to_host(bridge));
        }
        let is_alike = |net: &&IpNet| Family::of(net.addr()) == family;
        for pods in config.cluster_subnets.iter().filter(is_alike) {
            let to_ovn = [Action::Output(ports.patch)];
            flows.add(ANSWERS, 15, Match::default().destination(*pods), to_ovn);
        }
    }
    if family == Family::V6 {
        for kind in [ROUTER_ADVERTISEMENT, ADVERTISEMENT] {
            let advertisement = outside(bridge).icmp(family, kind, None);
            flows.add(ANSWERS, 14, advertisement, to_everyone(bridge));
        }
    }
    let bfd =
        from_world(bridge).packet(Packet::Transport(family, Protocol::Udp)).destination_port(BFD);
    flows.add(ANSWERS, 13, bfd, to_both(bridge));
}

/// The last flows of tables that all families share.
fn any_family(flows: &mut Flows, config: &Config) {
    let bridge = &config.bridge;
    let ports = &bridge.ports;
    flows.add(ANSWERS, 10, outside(bridge).mac_destination(bridge.mac), to_host(bridge));
    flows.add(ANSWERS, 0, Match::default(), [Action::Output(OfPort::NORMAL)]);
    flows.add(TO_HOST_ENDPOINT, 110, outside(bridge), to_host(bridge));
    flows.add(FROM_HOST_ENDPOINT, 110, Match::default(), host_to(bridge, ports.uplink));
    if config.mode == Mode::Local {
        // The host answers what is too large for a pod, or cuts it. The gateway router would drop
        // it.
        let too_large = Match { reg0: Some(1), ..outside(bridge) };
        flows.add(BY_SIZE, 10, too_large, to_host(bridge));
        flows.add(BY_SIZE, 1, Match::default(), [Action::Output(ports.patch)]);
    }
}

/// Who has the address? The node answers, or a program on it. Gateway routers would too, all at
/// once.
fn asks_for(from: Match, address: IpAddr) -> Match {
    match address {
        IpAddr::V4(address) => Match { arp_request: Some(address), ..from.packet(Packet::Arp) },
        IpAddr::V6(address) => {
            Match { nd_target: Some(address), ..from.icmp(Family::V6, SOLICITATION, Some(0)) }
        }
    }
}

/// What is outside of the host has the VLAN. A flow that takes the tag off has to match it.
fn outside(bridge: &ExternalBridge) -> Match {
    Match::default().vlan(bridge.vlan)
}

fn from_world(bridge: &ExternalBridge) -> Match {
    Match { in_port: Some(bridge.ports.uplink), ..outside(bridge) }
}

/// From the gateway router, with the address that may be seen outside.
fn from_ovn(bridge: &ExternalBridge) -> Match {
    Match::from_port(bridge.ports.patch).mac_source(bridge.mac)
}

fn from_host(bridge: &ExternalBridge) -> Match {
    Match::from_port(bridge.ports.host)
}

/// To the host, whose port has no VLAN.
fn to_host(bridge: &ExternalBridge) -> Vec<Action> {
    bridge.vlan.map(|_| PopVlan).into_iter().chain([Action::Output(bridge.ports.host)]).collect()
}

/// From the host to another port: both others have the VLAN.
fn host_to(bridge: &ExternalBridge, port: OfPort) -> Vec<Action> {
    let tag = bridge.vlan.map(|vlan| [PushVlan, SetVlan(vlan)]);
    tag.into_iter().flatten().chain([Action::Output(port)]).collect()
}

/// From the world to OVN and the host, in this order because the tag is gone after the second.
fn to_both(bridge: &ExternalBridge) -> Vec<Action> {
    [Action::Output(bridge.ports.patch)].into_iter().chain(to_host(bridge)).collect()
}

fn to_all_but_ovn(bridge: &ExternalBridge) -> Vec<Action> {
    let ports = &bridge.ports;
    let known: BTreeSet<OfPort> = [ports.uplink, ports.patch, ports.host].into();
    let others = ports.others.difference(&known).map(|port| Action::Output(*port));
    others.chain(to_host(bridge)).collect()
}

fn to_everyone(bridge: &ExternalBridge) -> Vec<Action> {
    match bridge.vlan {
        None => vec![Action::Output(OfPort::FLOOD)],
        // A flood would give the host the tag.
        Some(_) => {
            let ovn = Action::Output(bridge.ports.patch);
            [ovn].into_iter().chain(to_all_but_ovn(bridge)).collect()
        }
    }
}

#[cfg(test)]
mod tests;
