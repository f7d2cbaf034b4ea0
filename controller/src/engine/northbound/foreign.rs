//! Foreign ports on nodes' switches (an extension's, an administrator's), and their addresses.
//!
//! Knows nothing of pods: the store decides which pod may have which address.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use ovsdb::{Replica, Uuid};

use crate::{
    engine::northbound::index::Index,
    key::{Key, NodeName},
    kinds::pod::foreign::ForeignAddress,
    rows::{
        Table,
        table::{LogicalRouterPort, LogicalSwitchPort},
    },
};

/// Foreign ports that have addresses, or that take those of a router's port.
#[derive(Debug, Default)]
pub(crate) struct ForeignPorts {
    ports: HashMap<Uuid, ForeignPort>,
    /// Ports by the name of the router's port that they lead to.
    leading_to: HashMap<String, BTreeSet<Uuid>>,
    /// Ports that may have changed.
    doubtful: BTreeSet<Uuid>,
}

#[derive(Debug)]
pub(crate) struct ForeignPort {
    leads_to: Option<String>,
    addresses: BTreeSet<ForeignAddress>,
}

/// Addresses that foreign ports have lost, and addresses that they have got.
#[derive(Debug, Default)]
pub(crate) struct AddressChanges {
    pub(crate) left: Vec<ForeignAddress>,
    pub(crate) came: Vec<ForeignAddress>,
}

impl ForeignPorts {
    /// The port may have changed.
    pub(crate) fn doubt(&mut self, port: Uuid) {
        self.doubtful.insert(port);
    }

    /// The router's port with this name has changed.
    pub(crate) fn doubt_leading_to(&mut self, router_port: &str) {
        self.doubtful.extend(self.leading_to.get(router_port).into_iter().flatten());
    }

    pub(crate) fn take_doubtful(&mut self) -> BTreeSet<Uuid> {
        std::mem::take(&mut self.doubtful)
    }

    /// Replaces what is known of the row. `now`: its foreign port; none if it is not one (any
    /// more).
    pub(crate) fn put(&mut self, row: Uuid, now: Option<ForeignPort>, moves: &mut AddressChanges) {
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
    /// The foreign port of a row. None if this controller owns the row, if no node's switch holds
    /// it, or if it has no addresses.
    pub(crate) fn of(replica: &Replica, index: &Index, row: Uuid) -> Option<Self> {
        let port: &LogicalSwitchPort = replica.row(row)?;
        if index.claim(row).owner().is_some() {
            return None;
        }
        let (name, node) = (index.name(row)?, node(index, row)?);
        let leads_to =
            port.options.get("router-port").filter(|_| *port.kind == *"router").map(str::to_owned);
        let router_ports =
            leads_to.iter().flat_map(|name| index.named(Table::LogicalRouterPort, name));
        let router_ports = router_ports.filter_map(|row| replica.row::<LogicalRouterPort>(*row));
        // ovn-nb(5): `addresses` has `MAC IP…`, `dynamic` (ovn-northd sets `dynamic_addresses`) or
        // `router` (the addresses of the router's port). A virtual port has its address in
        // `options:virtual-ip`.
        let texts = port.addresses.iter().chain(port.dynamic_addresses.as_deref());
        let texts = texts.chain(router_ports.flat_map(|router_port| router_port.networks.iter()));
        let texts = texts.chain(port.options.get("virtual-ip"));
        let addresses = texts.flat_map(str::split_whitespace).filter_map(address);
        let addresses = addresses
            .map(|address| ForeignAddress {
                address,
                port: Arc::clone(name),
                node: Arc::clone(&node),
            })
            .collect();
        // A port to a router is kept without addresses, too: the router's port may get some.
        (leads_to.is_some() || !BTreeSet::is_empty(&addresses))
            .then_some(Self { leads_to, addresses })
    }
}

/// The node whose switch holds the port. A switch that only has a node's name counts: that node may
/// take it over.
fn node(index: &Index, port: Uuid) -> Option<NodeName> {
    let switches =
        index.parents(port).iter().filter(|parent| parent.set.of == Table::LogicalSwitch);
    switches.filter_map(|switch| index.claim(switch.row).key()).find_map(Key::node).cloned()
}

/// The word as an address, with or without a prefix length.
fn address(word: &str) -> Option<IpAddr> {
    word.parse().ok().or_else(|| word.parse().ok().map(|net: IpNet| net.addr()))
}
