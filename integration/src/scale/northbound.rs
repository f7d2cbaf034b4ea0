//! The rows of the northbound database, observed by an independent monitor.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Instant,
};

use anyhow::{Result, ensure};
use contract::ovn::{NETPOL_NAMESPACE, OWNER_TYPE};
use integration::central::NORTHBOUND;
use ovsdb::{Change, ChangeKind, Changes, Client, Event, Monitor, Options, Updates, Uuid, Where};

use super::{figures::PolicyRows, seen::Seen};

ovsdb::table! {
    struct LogicalSwitchPort in "Logical_Switch_Port" {
        name: String,
        external_ids: BTreeMap<String, String>,
    }

    struct LogicalSwitch in "Logical_Switch" {
        name: String,
        ports: Vec<Uuid>,
    }

    struct LoadBalancer in "Load_Balancer" {
        name: String,
        vips: BTreeMap<String, String>,
    }

    struct PortGroup in "Port_Group" {
        ports: Vec<Uuid>,
        external_ids: BTreeMap<String, String>,
    }

    struct AddressSet in "Address_Set" {
        addresses: Vec<String>,
    }

    struct Acl in "ACL" {
        priority: i64,
    }
}

/// The beginning of the names of load balancers of the run's Services.
const SERVICE: &str = "Service_team-";
/// The beginning of the addresses of endpoints that tell one change from another.
pub(crate) const MARKED: &str = "10.255.";

/// Ports of pods by name, with the time when each was first seen.
#[derive(Debug, Default)]
pub(crate) struct Northbound {
    pub(crate) connected: bool,
    pub(crate) ports: HashMap<String, Port>,
    /// Number of all other ports.
    pub(crate) other_ports: usize,
    pub(crate) switches: usize,
    /// Load balancers, and whether they are of the run's Services and have backends.
    pub(crate) balancers: HashMap<Uuid, bool>,
    /// When a backend with this address was first seen, of those in [`MARKED`].
    pub(crate) marked: HashMap<String, Instant>,
    pub(crate) last_port: Option<Instant>,
    /// Ports in groups that isolate the pods of a namespace, by the port.
    isolated: HashMap<Uuid, Isolation>,
    /// Ports that are isolated in both directions.
    closed: usize,
    last_closed: Option<Instant>,
    /// Groups that isolate, with their ports.
    groups: HashMap<Uuid, HashSet<Uuid>>,
    /// Number of addresses of each set.
    sets: HashMap<Uuid, usize>,
    /// Addresses in all sets together.
    addresses: usize,
    last_address: Option<Instant>,
    pub(crate) policies: PolicyRows,
    /// When an ACL was seen last that was new, changed or gone.
    pub(crate) last_rule: Option<Instant>,
    /// Rows of the monitored tables that were inserted, changed or deleted.
    pub(crate) changes: u64,
}

/// The port of a pod, and when it was first seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    uuid: Uuid,
    pub(crate) seen: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Isolation {
    /// Groups that isolate the port: one for each direction.
    groups: usize,
    since: Instant,
}

/// Groups that isolate a pod: of ingress and egress.
const DIRECTIONS: usize = 2;

impl Northbound {
    /// Time when the last of `count` pods was isolated in both directions; an error unless exactly
    /// `count` are.
    pub(crate) fn all_isolated(&self, count: usize) -> Result<Option<Instant>> {
        ensure!(self.connected, "no connection");
        ensure!(self.closed == count, "{} of {count} pods are isolated", self.closed);
        Ok(self.last_closed)
    }

    /// Time of the last change of a set; an error unless all sets together have `count` addresses.
    pub(crate) fn all_addresses(&self, count: usize) -> Result<Option<Instant>> {
        ensure!(self.connected, "no connection");
        ensure!(self.addresses == count, "{} of {count} addresses are in sets", self.addresses);
        Ok(self.last_address)
    }

    /// When the port was isolated in both directions.
    pub(crate) fn isolated(&self, port: &Port) -> Option<Instant> {
        let isolation =
            self.isolated.get(&port.uuid).filter(|isolation| isolation.groups == DIRECTIONS);
        isolation.map(|isolation| isolation.since)
    }

    /// Time when the last of `count` pods got its port; an error unless there are exactly `count`.
    pub(crate) fn all_ports(&self, count: usize) -> Result<Option<Instant>> {
        ensure!(self.connected, "no connection");
        ensure!(self.ports.len() == count, "{} of {count} ports are there", self.ports.len());
        Ok(self.last_port)
    }
}

/// Starts to monitor. The server may be missing at first, or be replaced later: the client
/// reconnects.
pub(crate) fn monitor() -> Result<Seen<Northbound>> {
    let seen = Seen::<Northbound>::new();
    let monitor = Monitor::new()
        .table::<LogicalSwitchPort>(Where::all())
        .table::<LogicalSwitch>(Where::all());
    let monitor = monitor.table::<LoadBalancer>(Where::all()).table::<PortGroup>(Where::all());
    let monitor = monitor.table::<AddressSet>(Where::all()).table::<Acl>(Where::all());
    // No probes: a server that is busy with thousands of rows answers late. The backlog is large
    // because a whole database arrives as one message.
    let options = Options { probe_interval: None, backlog: 512 << 20, ..Options::default() };
    let (client, mut updates) =
        Client::start(NORTHBOUND.parse()?, "OVN_Northbound", monitor, options);
    let noting = seen.clone();
    tokio::spawn(async move {
        // The connection closes when its client is dropped.
        let _client = client;
        loop {
            let event = updates.next().await;
            noting.note(|northbound| northbound.take(event, &updates));
        }
    });
    Ok(seen)
}

impl Northbound {
    fn take(&mut self, event: Event, updates: &Updates) {
        match event {
            Event::Connected => self.connected = true,
            Event::Disconnected(_) => self.connected = false,
            Event::Changed(changes) => self.apply(&changes, updates),
        }
    }

    fn apply(&mut self, changes: &Changes, updates: &Updates) {
        let now = Instant::now();
        self.changes += changes.len() as u64;
        // Deletions first: after a replacement of the database, deleted and inserted rows have the
        // same names.
        let of_kind =
            |kind| changes.of::<LogicalSwitchPort>().filter(move |change| change.kind == kind);
        for row in
            of_kind(ChangeKind::Delete).filter_map(|change| change.old::<LogicalSwitchPort>())
        {
            if row.is_of_pod() {
                self.ports.remove(&row.name);
            } else {
                self.other_ports -= 1;
            }
        }
        let inserted = of_kind(ChangeKind::Insert).filter_map(|change| {
            Some((&change.uuid, updates.row::<LogicalSwitchPort>(change.uuid)?))
        });
        for (uuid, row) in inserted {
            if row.is_of_pod() {
                self.ports.insert(row.name.clone(), Port { uuid: *uuid, seen: now });
                self.last_port = Some(now);
            } else {
                self.other_ports += 1;
            }
        }
        self.switches = updates.rows::<LogicalSwitch>().count();
        for change in changes.of::<LoadBalancer>() {
            let Some(row) = updates.row::<LoadBalancer>(change.uuid) else {
                self.balancers.remove(&change.uuid);
                continue;
            };
            self.balancers.insert(change.uuid, row.has_backends());
            let backends = row.vips.values().flat_map(|backends| backends.split(','));
            for backend in backends.filter(|backend| backend.starts_with(MARKED)) {
                self.marked.entry(backend.to_owned()).or_insert(now);
            }
        }
        self.apply_policies(changes, updates, now);
    }

    fn apply_policies(&mut self, changes: &Changes, updates: &Updates, now: Instant) {
        for change in changes.of::<PortGroup>() {
            self.follow_group(change, updates.row::<PortGroup>(change.uuid), now);
        }
        for change in changes.of::<AddressSet>() {
            let size = updates.row::<AddressSet>(change.uuid).map(|row| row.addresses.len());
            let before = match size {
                Some(size) => self.sets.insert(change.uuid, size),
                None => self.sets.remove(&change.uuid),
            };
            self.addresses = self.addresses + size.unwrap_or_default() - before.unwrap_or_default();
            self.last_address = Some(now);
        }
        if changes.of::<Acl>().next().is_some() {
            self.last_rule = Some(now);
        }
        self.policies = PolicyRows {
            acls: updates.rows::<Acl>().count(),
            groups: updates.rows::<PortGroup>().count(),
            sets: self.sets.len(),
            addresses: self.addresses,
        };
    }

    /// Follows the ports of a group, if it isolates them.
    fn follow_group(&mut self, change: &Change, row: Option<&PortGroup>, now: Instant) {
        let row = row.filter(|row| {
            row.external_ids.get(OWNER_TYPE).is_some_and(|ty| ty == NETPOL_NAMESPACE)
        });
        let ports: HashSet<Uuid> =
            row.into_iter().flat_map(|row| row.ports.iter().copied()).collect();
        let before = self.groups.remove(&change.uuid).unwrap_or_default();
        for port in before.difference(&ports) {
            if let Some(isolation) = self.isolated.get_mut(port) {
                self.closed -= usize::from(isolation.groups == DIRECTIONS);
                isolation.groups -= 1;
                if isolation.groups == 0 {
                    self.isolated.remove(port);
                }
                self.last_closed = Some(now);
            }
        }
        for port in ports.difference(&before) {
            let isolation =
                self.isolated.entry(*port).or_insert(Isolation { groups: 0, since: now });
            (isolation.groups, isolation.since) = (isolation.groups + 1, now);
            self.closed += usize::from(isolation.groups == DIRECTIONS);
            self.last_closed = Some(now);
        }
        if row.is_some() {
            self.groups.insert(change.uuid, ports);
        }
    }
}

impl LoadBalancer {
    fn has_backends(&self) -> bool {
        self.name.starts_with(SERVICE) && self.vips.values().any(|backends| !backends.is_empty())
    }
}

impl LogicalSwitchPort {
    fn is_of_pod(&self) -> bool {
        self.external_ids.get("pod").is_some_and(|value| value == "true")
    }
}
