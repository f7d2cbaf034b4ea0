//! The northbound rows of each node, observed by an independent monitor: which are there, and since
//! when.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use contract::ovn;
use integration::central::NORTHBOUND;
use ovsdb::{ChangeKind, Changes, Client, Event, Monitor, Options, Table, Updates, Uuid, Where};

use crate::scale::{objects, seen::Seen};

ovsdb::table! {
    struct LogicalSwitch in "Logical_Switch" {
        name: String,
    }

    struct LogicalSwitchPort in "Logical_Switch_Port" {
        name: String,
    }

    struct LogicalRouter in "Logical_Router" {
        name: String,
        nat: Vec<Uuid>,
        static_routes: Vec<Uuid>,
    }

    struct LogicalRouterPort in "Logical_Router_Port" {
        name: String,
        networks: Vec<String>,
    }

    struct StaticRoute in "Logical_Router_Static_Route" {
        nexthop: String,
    }

    struct RouterPolicy in "Logical_Router_Policy" {
        matching: String = "match",
    }

    struct MacBinding in "Static_MAC_Binding" {
        logical_port: String,
    }
}

/// The rows of each node.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    connected: bool,
    /// The node of each name that a row of it has.
    owners: HashMap<String, usize>,
    /// The node of each address of a gateway router on the join switch.
    joins: HashMap<String, usize>,
    nodes: Vec<Node>,
    /// Present rows, with their node.
    rows: HashMap<Uuid, (usize, Part)>,
}

/// The rows of one node.
#[derive(Debug, Default)]
struct Node {
    /// Switches, routers and ports that it must have, and has not yet.
    missing: BTreeSet<String>,
    counts: BTreeMap<Part, usize>,
    /// References of its gateway router.
    nats: usize,
    routes: usize,
    last: Option<Instant>,
}

/// A kind of a node's rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// A switch, a router or a port.
    Named(String),
    /// A route of the cluster's router to the gateway router, or of the node's pods.
    WayToGateway,
    /// A policy that leads the node's pods to one of the node's addresses.
    WayToNode,
    /// A neighbour of the gateway router.
    Neighbour,
}

/// Fewest rows of a gateway beside those with a name. With fewer, packets of the node's pods find
/// no way: the cluster's router knows its gateway router and leads the node's pods there; the
/// gateway router knows pods and world, and translates pods and itself.
const LEAST: [(Part, usize); 3] =
    [(Part::WayToGateway, 2), (Part::WayToNode, 1), (Part::Neighbour, 1)];
const LEAST_ROUTES: usize = 2;
const LEAST_NATS: usize = 2;

/// The names of the switches, routers and ports that a node with a gateway has.
fn names(node: &str) -> [String; 11] {
    let router = ovn::gateway_router(node);
    let inside = ovn::router_to_switch(node);
    [
        ovn::node_switch(node),
        ovn::switch_to_router(node),
        inside,
        ovn::management_port(node),
        ovn::join_to_router(&router),
        ovn::router_to_join(&router),
        ovn::external_switch(node),
        ovn::router_to_external(&router),
        ovn::external_to_router(&router),
        objects::bridge_port(node),
        router,
    ]
}

impl Rows {
    fn of(nodes: impl IntoIterator<Item = String>) -> Self {
        let mut rows = Self::default();
        for (number, node) in nodes.into_iter().enumerate() {
            let names = names(&node);
            rows.owners.extend(names.iter().map(|name| (name.clone(), number)));
            rows.nodes.push(Node { missing: names.into(), ..Node::default() });
        }
        rows
    }

    /// Succeeds if each of these nodes has its rows.
    pub(crate) fn all(&self, nodes: Range<usize>) -> Result<()> {
        ensure!(self.connected, "no connection");
        let lacking = nodes.clone().filter_map(|number| {
            let why = self.nodes[number].complete().err()?;
            Some(format!("{} {why}", objects::node_name(number)))
        });
        let lacking: Vec<String> = lacking.collect();
        match lacking.first() {
            Some(first) => bail!("{} of {} nodes lack rows: {first}", lacking.len(), nodes.len()),
            None => Ok(()),
        }
    }

    /// Succeeds if none of these nodes has a row.
    pub(crate) fn none(&self, nodes: Range<usize>) -> Result<()> {
        ensure!(self.connected, "no connection");
        match self.rows.values().find(|(number, _)| nodes.contains(number)) {
            Some((number, part)) => bail!("{} has {part:?}", objects::node_name(*number)),
            None => Ok(()),
        }
    }

    /// When the last row of a node came or changed.
    pub(crate) fn last(&self, node: usize) -> Option<Instant> {
        self.nodes.get(node)?.last
    }

    fn take(&mut self, event: Event, updates: &Updates) {
        match event {
            Event::Connected => self.connected = true,
            Event::Disconnected(_) => self.connected = false,
            Event::Changed(changes) => self.apply(&changes, updates, Instant::now()),
        }
    }

    fn apply(&mut self, changes: &Changes, updates: &Updates, now: Instant) {
        // Ports first: they tell which node a route leads to.
        self.follow::<LogicalRouterPort>(changes, updates, now, |rows, row| {
            let number = rows.owner(&row.name)?;
            if row.name.starts_with(JOIN_PORT) {
                let addresses = row.networks.iter().filter_map(|net| net.split('/').next());
                rows.joins.extend(addresses.map(|address| (address.to_owned(), number)));
            }
            Some((number, Part::Named(row.name.clone())))
        });
        self.follow::<LogicalSwitch>(changes, updates, now, |rows, row| rows.named(&row.name));
        self.follow::<LogicalSwitchPort>(changes, updates, now, |rows, row| rows.named(&row.name));
        self.follow::<LogicalRouter>(changes, updates, now, |rows, row| {
            let number = rows.owner(&row.name)?;
            let node = rows.nodes.get_mut(number)?;
            (node.nats, node.routes) = (row.nat.len(), row.static_routes.len());
            Some((number, Part::Named(row.name.clone())))
        });
        self.follow::<StaticRoute>(changes, updates, now, |rows, row| {
            Some((*rows.joins.get(&row.nexthop)?, Part::WayToGateway))
        });
        self.follow::<RouterPolicy>(changes, updates, now, |rows, row| {
            let port = row.matching.split('"').nth(1)?;
            Some((rows.owner(port)?, Part::WayToNode))
        });
        self.follow::<MacBinding>(changes, updates, now, |rows, row| {
            Some((rows.owner(&row.logical_port)?, Part::Neighbour))
        });
    }

    /// Follows the changed rows of a table; `part` finds out of which node a row is.
    fn follow<T: Table>(
        &mut self,
        changes: &Changes,
        updates: &Updates,
        now: Instant,
        part: impl Fn(&mut Self, &T) -> Option<(usize, Part)>,
    ) {
        for change in changes.of::<T>() {
            if change.kind == ChangeKind::Delete {
                if let Some((number, part)) = self.rows.remove(&change.uuid) {
                    self.nodes[number].lose(part);
                }
                continue;
            }
            let Some(row) = updates.row::<T>(change.uuid) else { continue };
            let Some((number, part)) = part(self, row) else { continue };
            self.nodes[number].last = Some(now);
            if self.rows.insert(change.uuid, (number, part.clone())).is_none() {
                self.nodes[number].gain(part);
            }
        }
    }

    fn owner(&self, name: &str) -> Option<usize> {
        self.owners.get(name).copied()
    }

    fn named(&self, name: &str) -> Option<(usize, Part)> {
        Some((self.owner(name)?, Part::Named(name.to_owned())))
    }
}

/// The beginning of the names of gateway routers' ports to the join switch.
const JOIN_PORT: &str = "rtoj-";

impl Node {
    fn gain(&mut self, part: Part) {
        match part {
            Part::Named(name) => drop(self.missing.remove(&name)),
            part => *self.counts.entry(part).or_default() += 1,
        }
    }

    fn lose(&mut self, part: Part) {
        match part {
            Part::Named(name) => drop(self.missing.insert(name)),
            part => *self.counts.entry(part).or_default() -= 1,
        }
    }

    /// Whether it has all that packets need.
    fn complete(&self) -> Result<()> {
        if let Some(name) = self.missing.first() {
            bail!("has no {name}");
        }
        for (part, least) in &LEAST {
            let count = self.counts.get(part).copied().unwrap_or_default();
            ensure!(count >= *least, "has {count} of {least} rows {part:?}");
        }
        ensure!(self.routes >= LEAST_ROUTES, "has {} routes in its gateway router", self.routes);
        ensure!(self.nats >= LEAST_NATS, "has {} translations in its gateway router", self.nats);
        Ok(())
    }
}

/// Starts to monitor the rows of these nodes.
pub(crate) fn monitor(nodes: impl IntoIterator<Item = String>) -> Result<Seen<Rows>> {
    let seen = Seen::<Rows>::new();
    seen.note(|rows| *rows = Rows::of(nodes));
    let monitor = Monitor::new()
        .table::<LogicalSwitch>(Where::all())
        .table::<LogicalSwitchPort>(Where::all())
        .table::<LogicalRouter>(Where::all())
        .table::<LogicalRouterPort>(Where::all())
        .table::<StaticRoute>(Where::all())
        .table::<RouterPolicy>(Where::all())
        .table::<MacBinding>(Where::all());
    let options = Options { probe_interval: None, ..Options::default() };
    let (client, mut updates) = Client::start(
        NORTHBOUND.parse().context("address of the northbound database")?,
        "OVN_Northbound",
        monitor,
        options,
    );
    let noting = seen.clone();
    tokio::spawn(async move {
        // The connection closes when its client is dropped.
        let _client = client;
        loop {
            let event = updates.next().await;
            noting.note(|rows| rows.take(event, &updates));
        }
    });
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_complete_with_its_last_row_only() {
        let mut rows = Rows::of([objects::node_name(0)]);
        rows.connected = true;
        let node = &mut rows.nodes[0];
        names(&objects::node_name(0)).into_iter().for_each(|name| node.gain(Part::Named(name)));
        (node.nats, node.routes) = (LEAST_NATS, LEAST_ROUTES);
        for (part, least) in LEAST {
            for _ in 0..least {
                assert!(rows.all(0..1).is_err(), "{rows:?}");
                rows.nodes[0].gain(part.clone());
            }
        }
        rows.all(0..1).unwrap();
        rows.nodes[0].lose(Part::WayToNode);
        let why = rows.all(0..1).unwrap_err().to_string();
        assert_eq!(why, "1 of 1 nodes lack rows: node-0000 has 0 of 1 rows WayToNode");
    }
}
