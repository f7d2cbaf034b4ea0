//! The northbound database as it is: a copy of the rows that matter, found by name, holder and owner.
//!
//! Knows what is there and whose it is; nothing of what should be there.

use std::{fmt, sync::Arc};

use contract::{names::PodKey, ovn};
use ovsdb::{Atom, Client, Connection, Datum, Endpoints, Options, Updates, Uuid};

pub(crate) mod foreign;
pub(crate) mod index;
pub(crate) mod owner;
pub(crate) mod tables;

use self::{
    index::{Index, Touched},
    owner::Owners,
    tables::NbGlobal,
};
use crate::{
    config::Zone,
    key::{Key, NodeName},
    rows::{RowName, Table},
    store::FoundPort,
};

/// As its schema names it.
pub const DATABASE: &str = "OVN_Northbound";

/// Among the `external_ids` of the cluster's router: the uid of the namespace `kube-system` of the cluster that the database was written
/// for.
pub(crate) const CLUSTER_ID: &str = "k8s-cluster-uid";

/// Begins to connect, for ever, and to copy what [`Controller`](crate::Controller) has to know.
pub fn connect(endpoints: Endpoints, options: Options) -> (Client, Updates) {
    Client::start(endpoints, DATABASE, tables::monitor(), options)
}

/// The copy.
pub(crate) struct Northbound {
    updates: Updates,
    owners: Owners,
    pub(crate) index: Index,
}

/// What happened to it.
#[derive(Debug)]
pub(crate) enum Event {
    /// There is a connection; what differs from before comes as the next [`Changed`](Self::Changed), at once.
    Connected,
    /// What is there now is not known until there is a connection again.
    Disconnected(Arc<ovsdb::Closed>),
    Changed(Touched),
}

impl Northbound {
    /// `fixed`: the rows that the cluster has once.
    pub(crate) fn new(updates: Updates, fixed: impl IntoIterator<Item = RowName>) -> Self {
        Self { updates, owners: Owners::new(fixed), index: Index::default() }
    }

    /// Waits for the next event. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Event {
        match self.updates.next().await {
            ovsdb::Event::Connected => Event::Connected,
            ovsdb::Event::Disconnected(closed) => Event::Disconnected(Arc::new(closed)),
            ovsdb::Event::Changed(changes) => Event::Changed(self.index.apply(self.updates.replica(), &self.owners, &changes)),
        }
    }

    /// The connection that the copy follows; transactions belong on the same one, where their effects are seen before their answers.
    pub(crate) fn connection(&self) -> Option<&Connection> {
        self.updates.connection()
    }

    /// Whose the database says it is: `name` of its one row of `NB_Global`, where nothing means zone `global`.
    pub(crate) fn zone(&self) -> Zone {
        let name = self.updates.rows::<NbGlobal>().map(|(_, row)| row.name.as_str()).find(|name| !name.is_empty());
        name.map_or_else(Zone::default, |name| Zone(name.to_owned()))
    }

    /// Whether the database has the column, which may be older than this program.
    pub(crate) fn has_column(&self, table: Table, column: &str) -> bool {
        self.connection().is_some_and(|connection| connection.schema().has_column(table.name(), column))
    }

    /// The ports that pods have.
    pub(crate) fn pod_ports(&self) -> impl Iterator<Item = (&PodKey, FoundPort)> {
        let pods = self.index.owners().filter_map(|key| if let Key::Pod(pod) = key { Some((key, pod)) } else { None });
        pods.flat_map(|(key, pod)| self.index.owned(key).map(move |row| (pod, row))).map(|(pod, row)| {
            let addresses = self.column(Table::LogicalSwitchPort, row, "addresses");
            // `MAC IP [IP]` each.
            let words = || addresses.iter().flat_map(Datum::atoms).filter_map(Atom::as_str).flat_map(str::split_whitespace);
            let options = self.column(Table::LogicalSwitchPort, row, "options");
            let mut options = options.iter().flat_map(Datum::pairs);
            let uid = options.find_map(|(key, value)| value.as_str().filter(|_| key.as_str() == Some("iface-id-ver")));
            let port = FoundPort {
                uid: uid.map(Arc::from),
                mac: words().find_map(|word| word.parse().ok()),
                addresses: words().filter_map(|word| word.parse().ok()).collect(),
            };
            (pod, port)
        })
    }

    /// The router of all nodes.
    pub(crate) fn cluster_router(&self) -> Option<Uuid> {
        self.index.find(&Table::LogicalRouter.row(ovn::CLUSTER_ROUTER))
    }

    /// The cluster that the database was written for, as that router says.
    pub(crate) fn cluster_id(&self, router: Uuid) -> Option<Arc<str>> {
        let ids = self.column(Table::LogicalRouter, router, "external_ids")?;
        ids.pairs().iter().find_map(|(key, value)| value.as_str().filter(|_| key.as_str() == Some(CLUSTER_ID)).map(Arc::from))
    }

    /// Nodes that have a switch.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        let is_switch = |row: &Uuid| self.index.table(*row) == Some(Table::LogicalSwitch);
        self.index.owners().filter_map(move |key| match key {
            Key::Node(name) => self.index.owned(key).any(|row| is_switch(&row)).then_some(name),
            Key::Cluster | Key::Pod(_) => None,
        })
    }

    /// A row in words, such as `Logical_Switch_Port shop_cart-0`.
    pub(crate) fn describe(&self, row: Uuid) -> String {
        let table = self.index.table(row).map_or("row", Table::name);
        match self.index.name(row) {
            Some(name) if !name.is_empty() => format!("{table} {name}"),
            _ => format!("{table} {row}"),
        }
    }

    /// What a column holds; none where it is not copied.
    pub(crate) fn column(&self, table: Table, row: Uuid, column: &str) -> Option<Datum> {
        tables::row(self.updates.replica(), table, row)?.column(column)
    }
}

impl fmt::Debug for Northbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Northbound").field(self.updates.replica()).finish()
    }
}
