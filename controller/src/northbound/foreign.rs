//! Ports of nodes' switches that are not ours (an extension's, an administrator's), and the addresses that they have.
//!
//! Knows nothing of pods: who may have which address is the store's to say.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use ovsdb::{Replica, Uuid};

use super::{
    index::Index,
    tables::{LogicalRouterPort, LogicalSwitchPort},
};
use crate::{
    key::{Key, NodeName},
    rows::Table,
    store::ForeignAddress,
};

/// The ports that have addresses, or will have those of a router's port.
#[derive(Debug, Default)]
pub(super) struct ForeignPorts {
    ports: HashMap<Uuid, ForeignPort>,
    /// Ports by the router's port that they lead to.
    leading_to: HashMap<String, BTreeSet<Uuid>>,
    /// Ports that may be otherwise than they were.
    doubtful: BTreeSet<Uuid>,
}

#[derive(Debug)]
pub(super) struct ForeignPort {
    leads_to: Option<String>,
    addresses: BTreeSet<ForeignAddress>,
}

/// Addresses that foreign ports have no more, and those that they have now.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) left: Vec<ForeignAddress>,
    pub(crate) came: Vec<ForeignAddress>,
}

impl ForeignPorts {
    pub(super) fn doubt(&mut self, port: Uuid) {
        self.doubtful.insert(port);
    }

    /// A router's port of that name is otherwise than it was.
    pub(super) fn doubt_leading_to(&mut self, router_port: &str) {
        self.doubtful.extend(self.leading_to.get(router_port).into_iter().flatten());
    }

    pub(super) fn take_doubtful(&mut self) -> BTreeSet<Uuid> {
        std::mem::take(&mut self.doubtful)
    }

    /// The row is this foreign port now; none: it is none.
    pub(super) fn put(&mut self, row: Uuid, now: Option<ForeignPort>, moves: &mut Moves) {
        let before = self.ports.remove(&row);
        if let Some(router_port) = before.as_ref().and_then(|port| port.leads_to.as_ref())
            && let Some(ports) = self.leading_to.get_mut(router_port)
        {
            ports.remove(&row);
            if ports.is_empty() {
                self.leading_to.remove(router_port);
            }
        }
        let empty = BTreeSet::new();
        let had = before.as_ref().map_or(&empty, |port| &port.addresses);
        let has = now.as_ref().map_or(&empty, |port| &port.addresses);
        moves.left.extend(had.difference(has).cloned());
        moves.came.extend(has.difference(had).cloned());
        if let Some(port) = now {
            if let Some(router_port) = &port.leads_to {
                self.leading_to.entry(router_port.clone()).or_default().insert(row);
            }
            self.ports.insert(row, port);
        }
    }
}

impl ForeignPort {
    /// Of a row that is a port of a node's switch and not ours.
    pub(super) fn of(replica: &Replica, index: &Index, row: Uuid) -> Option<Self> {
        let port: &LogicalSwitchPort = replica.row(row)?;
        if index.claim(row).owner().is_some() {
            return None;
        }
        let (name, node) = (index.name(row)?, node(index, row)?);
        let leads_to = port.options.get("router-port").filter(|_| port.kind == "router").cloned();
        let router_ports = leads_to.iter().flat_map(|name| index.named(Table::LogicalRouterPort, name));
        let router_ports = router_ports.filter_map(|row| replica.row::<LogicalRouterPort>(*row));
        // ovn-nb(5): `MAC IP…`, `dynamic` and what northd makes of it, `router` and what that port has; a virtual port's is an option.
        let texts = port.addresses.iter().chain(&port.dynamic_addresses).chain(port.options.get("virtual-ip"));
        let texts = texts.chain(router_ports.flat_map(|router_port| &router_port.networks));
        let addresses = texts.flat_map(|text| text.split_whitespace()).filter_map(address);
        let addresses = addresses.map(|address| ForeignAddress { address, port: Arc::clone(name), node: Arc::clone(&node) }).collect();
        (leads_to.is_some() || !BTreeSet::is_empty(&addresses)).then_some(Self { leads_to, addresses })
    }
}

/// Whose switch holds the port. A switch that only has a node's name may be that node's in a moment.
fn node(index: &Index, port: Uuid) -> Option<NodeName> {
    let switches = index.parents(port).iter().filter(|parent| parent.table == Table::LogicalSwitch);
    switches.filter_map(|switch| index.claim(switch.row).key()).find_map(|key| match key {
        Key::Node(name) => Some(Arc::clone(name)),
        Key::Cluster | Key::Pod(_) => None,
    })
}

/// A word that is an address, with or without the length of its network.
fn address(word: &str) -> Option<IpAddr> {
    word.parse().ok().or_else(|| word.parse().ok().map(|net: IpNet| net.addr()))
}
