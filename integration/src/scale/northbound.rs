//! The rows of the northbound database, observed by an independent monitor.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use anyhow::{Result, ensure};
use integration::central::NORTHBOUND;
use ovsdb::{ChangeKind, Changes, Client, Event, Monitor, Options, Updates, Where};

use super::seen::Seen;

ovsdb::table! {
    struct LogicalSwitchPort in "Logical_Switch_Port" {
        name: String,
        external_ids: BTreeMap<String, String>,
    }

    struct LogicalSwitch in "Logical_Switch" {
        name: String,
        ports: Vec<ovsdb::Uuid>,
    }

    struct LoadBalancer in "Load_Balancer" {
        name: String,
        vips: BTreeMap<String, String>,
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
    pub(crate) ports: HashMap<String, Instant>,
    /// Number of all other ports.
    pub(crate) other_ports: usize,
    pub(crate) switches: usize,
    /// Load balancers, and whether they are of the run's Services and have backends.
    pub(crate) balancers: HashMap<ovsdb::Uuid, bool>,
    /// When a backend with this address was first seen, of those in [`MARKED`].
    pub(crate) marked: HashMap<String, Instant>,
    pub(crate) last_port: Option<Instant>,
    /// Rows of the monitored tables that were inserted, changed or deleted.
    pub(crate) changes: u64,
}

impl Northbound {
    /// Time when the last of `count` pods got its port; an error unless there are exactly `count`.
    pub(crate) fn all_ports(&self, count: usize) -> Result<Option<Instant>> {
        ensure!(self.connected, "no connection");
        ensure!(self.ports.len() == count, "{} of {count} ports are there", self.ports.len());
        Ok(self.last_port)
    }
}

/// Starts to monitor. The server may be missing at first, or be replaced later: the client reconnects.
pub(crate) fn monitor() -> Result<Seen<Northbound>> {
    let seen = Seen::<Northbound>::new();
    let monitor =
        Monitor::new().table::<LogicalSwitchPort>(Where::all()).table::<LogicalSwitch>(Where::all());
    let monitor = monitor.table::<LoadBalancer>(Where::all());
    // No probes: a server that is busy with thousands of rows answers late. The backlog is large because a
    // whole database arrives as one message.
    let options = Options { probe_interval: None, backlog: 512 << 20, ..Options::default() };
    let (client, mut updates) = Client::start(NORTHBOUND.parse()?, "OVN_Northbound", monitor, options);
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
        // Deletions first: after a replacement of the database, deleted and inserted rows have the same
        // names.
        let of_kind = |kind| changes.of::<LogicalSwitchPort>().filter(move |change| change.kind == kind);
        for row in of_kind(ChangeKind::Delete).filter_map(|change| change.old::<LogicalSwitchPort>()) {
            if row.is_of_pod() {
                self.ports.remove(&row.name);
            } else {
                self.other_ports -= 1;
            }
        }
        for row in
            of_kind(ChangeKind::Insert).filter_map(|change| updates.row::<LogicalSwitchPort>(change.uuid))
        {
            if row.is_of_pod() {
                self.ports.insert(row.name.clone(), now);
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
