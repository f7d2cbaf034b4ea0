//! What follows from the facts: the node's entry for the controller, and what the flows of the
//! bridge depend on. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contract::{
    mac::Mac,
    mtu::Mtu,
    node_annotation::{DEFAULT_NETWORK, GATEWAY_CONFIG, Gateway, GatewayEntry, PerNetwork},
    ovn,
};
use ipnet::IpNet;
use uplink::flows::{
    Config, Exposed, ExternalBridge, Family, Front, HostAddresses, Masquerade, OfPort, PodSource,
    Ports, Zone,
};

use super::{GatewayConfig, GatewayMode};
use crate::services::{Destination, Protocol};

/// The number of the patch port before there is one: the last that a port may have (`OFPP_MAX` of
/// OpenFlow 1.0), which ovs-vswitchd gives to none by itself.
const NO_PORT: OfPort = OfPort(0xfeff);

/// The node's place in the physical network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bridge: String,
    pub(super) mac: Mac,
    /// At least one, at most one of each family.
    pub(super) addresses: Vec<IpNet>,
    pub(super) next_hops: Vec<IpAddr>,
}

impl Place {
    /// This place, with what `before` had of a family whose address or next hops it lacks
    /// altogether.
    pub(super) fn with_lost_families_of(mut self, before: &Self) -> Self {
        add_lost_families(&mut self.addresses, &before.addresses, |net| net.addr().is_ipv4());
        add_lost_families(&mut self.next_hops, &before.next_hops, IpAddr::is_ipv4);
        self
    }
}

/// Adds what was there before of a family that has nothing now. IPv4 comes first.
fn add_lost_families<T: Copy>(now: &mut Vec<T>, before: &[T], is_v4: impl Fn(&T) -> bool) {
    let is_lost = |element: &&T| !now.iter().any(|other| is_v4(other) == is_v4(element));
    let lost: Vec<T> = before.iter().filter(is_lost).copied().collect();
    now.extend(lost);
    now.sort_by_key(|element| !is_v4(element));
}

/// The bridge's ports. Those that are not there yet are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BridgePorts {
    pub(super) uplink: u32,
    pub(super) patch: Option<u32>,
    pub(super) others: BTreeSet<u32>,
    pub(super) datapath: uplink::flows::Datapath,
}

/// The name of the logical port that stands for the bridge.
pub(super) fn interface_id(bridge: &str, node: &str) -> String {
    format!("{bridge}_{node}")
}

/// The name that ovn-controller gives to its patch port on the bridge.
pub(super) fn patch_port(bridge: &str, node: &str) -> String {
    format!("patch-{}-to-br-int", interface_id(bridge, node))
}

/// The node's entry for the controller.
pub(super) fn entry(config: &GatewayConfig, node: &str, place: &Place) -> GatewayEntry {
    let Place { bridge, mac, addresses, next_hops } = place;
    GatewayEntry {
        mode: config.mode.into(),
        bridge: bridge.clone(),
        gateway: Gateway {
            interface: interface_id(bridge, node),
            mac: *mac,
            addresses: addresses.clone(),
            next_hops: next_hops.clone(),
            vlan: config.vlan,
        },
        // Always: without, the controller writes no rows for the node's ports, which the host
        // needs, too.
        node_ports: true,
    }
}

/// The text of the annotation with the entry. Entries of other networks in `before` stay.
pub(crate) fn annotation(before: Option<&str>, entry: &GatewayEntry) -> String {
    // What cannot be read is no entry of another network that a reader could use.
    let mut entries = before.and_then(|text| PerNetwork::parse(text).ok()).unwrap_or_default();
    entries.set_gateway(DEFAULT_NETWORK, entry);
    entries.to_string()
}

/// The text of the annotation of a node whose gateway is disabled: the controller removes its rows,
/// which it keeps while an annotation is merely missing. `None` if there is no entry, or it says so
/// already.
pub(crate) fn annotation_disabled(annotations: &BTreeMap<String, String>) -> Option<String> {
    let before = PerNetwork::parse(annotations.get(GATEWAY_CONFIG)?).ok()?;
    let mut after = before.clone();
    after.disable_gateway(DEFAULT_NETWORK);
    (after != before).then(|| after.to_string())
}

/// The text of the annotation without the entry, an inner `None` if no other network has one.
/// `None` if there is no entry.
pub(crate) fn annotation_without(annotations: &BTreeMap<String, String>) -> Option<Option<String>> {
    let before = PerNetwork::parse(annotations.get(GATEWAY_CONFIG)?).ok()?;
    let mut after = before.clone();
    after.remove(DEFAULT_NETWORK);
    (after != before).then(|| (!after.is_empty()).then(|| after.to_string()))
}

/// The bridge, for the flows.
pub(super) fn external_bridge(
    config: &GatewayConfig,
    place: &Place,
    ports: &BridgePorts,
) -> ExternalBridge {
    let BridgePorts { uplink, patch, others, datapath } = ports;
    ExternalBridge {
        ports: Ports {
            uplink: OfPort(*uplink),
            patch: patch.map_or(NO_PORT, OfPort),
            host: OfPort::LOCAL,
            others: others.iter().copied().map(OfPort).collect(),
        },
        mac: place.mac,
        vlan: config.vlan.and_then(|vlan| vlan.try_into().ok()),
        datapath: *datapath,
        tunnel_ports: config.tunnel_ports.clone(),
    }
}

/// The rest of the cluster, for the flows.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    /// All addresses of the host for other machines.
    pub(super) host: BTreeSet<IpAddr>,
    pub(super) cluster: &'a [IpNet],
    /// The addresses of the node's management port.
    pub(super) management: BTreeSet<IpAddr>,
    pub(super) service_ranges: Vec<IpNet>,
    pub(super) destinations: &'a [Destination],
    pub(super) mtu: Mtu,
}

/// All that the flows depend on.
pub(super) fn flows_config(
    config: &GatewayConfig,
    place: &Place,
    ports: &BridgePorts,
    surroundings: Surroundings<'_>,
) -> Config {
    let Surroundings { host, cluster, service_ranges, destinations, mtu, management } =
        surroundings;
    let hosts = place.addresses.iter().map(|net| {
        let node = net.addr();
        let of = |what: ovn::Masquerade| what.like(node, config.masquerade);
        HostAddresses {
            node,
            others: host.iter().copied().filter(|other| *other != node).collect(),
            masquerade: Masquerade {
                ovn: of(ovn::Masquerade::Ovn),
                host: of(ovn::Masquerade::Host),
            },
        }
    });
    // Without node ports the host serves, as without a gateway, but for `externalTrafficPolicy:
    // Local`: the answers to a client's own address leave through the gateway router, which has to
    // know their connections. A client's network is checked by the host wherever the host can
    // serve.
    let is_served = |destination: &&Destination| {
        let is_limited = destination.clients.is_some();
        match config.mode {
            GatewayMode::Shared => destination.local.is_some() || config.node_ports && !is_limited,
            GatewayMode::Local => is_hosts_alone(destination) && !is_limited,
        }
    };
    Config {
        mode: config.mode.into(),
        bridge: external_bridge(config, place, ports),
        hosts: hosts.collect(),
        cluster_subnets: cluster.to_vec(),
        service_ranges,
        pod_source: match config.snat_per_pod {
            false => PodSource::Node,
            true => PodSource::Own { management },
        },
        mtu,
        zone: Zone::try_from(config.conntrack_zone).unwrap_or(Zone::DEFAULT),
        services: destinations.iter().filter(is_served).filter_map(exposed).collect(),
    }
}

/// Whether the bridge translates to an endpoint of the host in local mode, as upstream's does, so
/// that connections live through a change between the two. Datagrams are left to the host, for they
/// may come in fragments.
fn is_hosts_alone(destination: &Destination) -> bool {
    let Destination { protocol, local, hosts, .. } = destination;
    let local = local.as_deref().unwrap_or_default();
    *protocol != Protocol::Udp
        && !local.is_empty()
        && local.iter().all(|target| hosts.contains(target))
}

/// What the world may ask for; none for an address of the cluster.
fn exposed(destination: &Destination) -> Option<Exposed> {
    let Destination { address, protocol, port, cluster, local, hosts, clients, .. } = destination;
    let front = match address {
        None => Front::NodePort { family: Family::of(*cluster), port: *port },
        Some(address) if address == cluster => return None,
        Some(address) => Front::Address { address: *address, port: *port },
    };
    let of_host = |target: &&std::net::SocketAddr| hosts.contains(target);
    let host_endpoint = local.iter().flatten().find(of_host).copied();
    let protocol = match protocol {
        Protocol::Tcp => uplink::flows::Protocol::Tcp,
        Protocol::Udp => uplink::flows::Protocol::Udp,
        Protocol::Sctp => uplink::flows::Protocol::Sctp,
    };
    Some(Exposed { protocol, front, host_endpoint, clients: clients.clone() })
}

#[cfg(test)]
pub(super) mod tests;
