//! The logical ports of the southbound database: addresses, tunnel keys and chassis. Reads only;
//! knows nothing of Kubernetes.

use std::{collections::BTreeMap, net::IpAddr};

use contract::{
    mac::Mac,
    ovn::{REMOTE_PORT, node_of_transit_port, router_to_transit, transit_to_router},
};
use ipnet::IpNet;
use ovsdb::{Connection, SelectedRow, Uuid, Where};

use crate::status::databases::rows;

/// What the database has of all logical ports.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    bindings: Vec<Binding>,
    datapaths: BTreeMap<Uuid, Datapath>,
    chassis: BTreeMap<Uuid, HostChassis>,
}

#[derive(Debug, Default)]
struct HostChassis {
    name: String,
    tunnel_endpoints: Vec<IpAddr>,
}

/// A switch or router.
#[derive(Debug, Clone, Default)]
pub(crate) struct Datapath {
    pub(crate) name: String,
    pub(crate) key: u32,
}

/// A logical port.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) port: String,
    /// Empty for ports of pods and nodes.
    pub(crate) kind: String,
    datapath: Uuid,
    pub(crate) key: u16,
    /// With the networks of a router's port, the addresses of any other one.
    pub(crate) mac: Option<Mac>,
    pub(crate) networks: Vec<IpNet>,
    pub(crate) chassis: Option<Uuid>,
    /// Its flows are installed.
    pub(crate) is_up: bool,
    peer: Option<String>,
}

/// Why a packet finds no next Ethernet address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoNeighbour {
    /// The address is in the subnet of the switch, and no port has it.
    Nobody,
    /// No router is at the switch.
    NoRouter,
}

impl Topology {
    /// # Errors
    ///
    /// The database does not answer in time.
    pub(crate) async fn read(south: &Connection) -> Result<Self, String> {
        let columns = ["logical_port", "type", "datapath", "tunnel_key", "mac", "chassis", "up"];
        let columns: Vec<&str> = columns.into_iter().chain(["options"]).collect();
        let ports = rows(south, "Port_Binding", Where::all(), &columns).await?;
        let columns = ["external_ids", "tunnel_key"];
        let datapaths = rows(south, "Datapath_Binding", Where::all(), &columns).await?;
        let chassis = rows(south, "Chassis", Where::all(), &["name", "encaps"]).await?;
        let encaps = rows(south, "Encap", Where::all(), &["ip"]).await?;
        let encaps: BTreeMap<Uuid, IpAddr> = encaps
            .iter()
            .filter_map(|row| Some((row.uuid(), row.string("ip")?.parse().ok()?)))
            .collect();
        let of_chassis = |row: &SelectedRow| {
            let all = row.uuids("encaps");
            HostChassis {
                name: row.string("name").unwrap_or_default().to_owned(),
                tunnel_endpoints: all.iter().filter_map(|it| encaps.get(it).copied()).collect(),
            }
        };
        Ok(Self {
            bindings: ports.iter().filter_map(binding).collect(),
            datapaths: datapaths.iter().map(|row| (row.uuid(), datapath(row))).collect(),
            chassis: chassis.iter().map(|row| (row.uuid(), of_chassis(row))).collect(),
        })
    }

    pub(crate) fn port(&self, name: &str) -> Option<&Binding> {
        self.bindings.iter().find(|binding| binding.port == name)
    }

    /// Whether there are nodes of other zones.
    pub(super) fn has_other_zones(&self) -> bool {
        self.bindings.iter().any(Binding::is_remote)
    }

    /// The port to the node, if the node is in another zone.
    pub(crate) fn way_to_zone(&self, node: &str) -> Option<&Binding> {
        self.port(&transit_to_router(node)).filter(|binding| binding.is_remote())
    }

    /// The router's port that takes what comes from other zones for this pod or node.
    pub(crate) fn way_from_zones(&self, to: IpAddr) -> Option<&Binding> {
        let switch = self.datapath(self.holder(to)?).name;
        self.port(&router_to_transit(&switch))
    }

    /// The port of a pod or node with the address.
    pub(crate) fn holder(&self, address: IpAddr) -> Option<&Binding> {
        self.bindings.iter().find(|binding| binding.kind.is_empty() && binding.has(address))
    }

    /// All such ports: an address that two have reaches one of them.
    pub(crate) fn holders(&self, address: IpAddr) -> impl Iterator<Item = &Binding> {
        self.bindings.iter().filter(move |binding| binding.kind.is_empty() && binding.has(address))
    }

    pub(crate) fn datapath(&self, binding: &Binding) -> Datapath {
        self.datapaths.get(&binding.datapath).cloned().unwrap_or_default()
    }

    /// The tunnel endpoints of the chassis that has claimed the port.
    pub(crate) fn tunnel_endpoints(&self, binding: &Binding) -> &[IpAddr] {
        let chassis = binding.chassis.and_then(|chassis| self.chassis.get(&chassis));
        chassis.map(|chassis| chassis.tunnel_endpoints.as_slice()).unwrap_or_default()
    }

    /// The name of the chassis that has claimed the port.
    pub(crate) fn chassis_name(&self, binding: &Binding) -> Option<&str> {
        self.chassis.get(&binding.chassis?).map(|chassis| chassis.name.as_str())
    }

    /// The Ethernet address of the router at the other side of the port.
    pub(crate) fn router_mac(&self, binding: &Binding) -> Option<Mac> {
        self.port(binding.peer.as_deref()?)?.mac
    }

    /// The Ethernet address to which the port's owner sends a packet for the address: that of a
    /// port of the same subnet, or else the router's.
    pub(crate) fn next_mac(&self, from: &Binding, to: IpAddr) -> Result<Mac, NoNeighbour> {
        let same_switch = || self.bindings.iter().filter(|it| it.datapath == from.datapath);
        let routers: Vec<&Binding> = same_switch()
            .filter_map(|binding| self.port(binding.peer.as_deref()?))
            .filter(|router| router.mac.is_some())
            .collect();
        let is_local = |router: &&Binding| router.networks.iter().any(|net| net.contains(&to));
        if routers.iter().any(is_local) {
            let router = routers.iter().copied().find(|router| router.has(to));
            let holder = router.or_else(|| same_switch().find(|binding| binding.has(to)));
            return holder.and_then(|holder| holder.mac).ok_or(NoNeighbour::Nobody);
        }
        let has_family = |router: &&Binding| {
            router.networks.iter().any(|net| net.addr().is_ipv4() == to.is_ipv4())
        };
        let router = routers.iter().copied().find(has_family);
        router.and_then(|router| router.mac).ok_or(NoNeighbour::NoRouter)
    }
}

impl Binding {
    /// It leads to a node of another zone.
    pub(crate) fn is_remote(&self) -> bool {
        self.kind == REMOTE_PORT
    }

    /// The node of another zone to which the port leads.
    pub(crate) fn node_elsewhere(&self) -> Option<&str> {
        node_of_transit_port(&self.port).filter(|_| self.is_remote())
    }

    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|net| net.addr() == address)
    }

    /// Its address of the family.
    pub(crate) fn address(&self, is_ipv6: bool) -> Option<IpAddr> {
        let mut addresses = self.networks.iter().map(IpNet::addr);
        addresses.find(|address| address.is_ipv6() == is_ipv6)
    }
}

fn datapath(row: &SelectedRow) -> Datapath {
    let name = row.map("external_ids").remove("name").unwrap_or_default();
    let key = row.integer("tunnel_key").and_then(|key| u32::try_from(key).ok());
    Datapath { name, key: key.unwrap_or_default() }
}

fn binding(row: &SelectedRow) -> Option<Binding> {
    // A MAC address, and addresses or networks behind it.
    let first = row.strings("mac").first().map(|text| (*text).to_owned()).unwrap_or_default();
    let mut words = first.split_whitespace();
    let mac = words.next().and_then(|word| word.parse().ok());
    let network = |word: &str| word.parse().ok().or_else(|| Some(IpNet::from(host(word)?)));
    Some(Binding {
        port: row.string("logical_port")?.to_owned(),
        kind: row.string("type").unwrap_or_default().to_owned(),
        datapath: row.uuids("datapath").first().copied()?,
        key: row.integer("tunnel_key").and_then(|key| u16::try_from(key).ok()).unwrap_or_default(),
        mac,
        networks: words.filter_map(network).collect(),
        chassis: row.uuids("chassis").first().copied(),
        is_up: row.boolean("up").unwrap_or_default(),
        peer: row.map("options").remove("peer"),
    })
}

fn host(word: &str) -> Option<IpAddr> {
    word.parse().ok()
}
