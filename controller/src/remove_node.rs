//! `--remove-node`: removes the rows of one node from OVN's databases, once. The reconciler's index
//! and diff decide which rows those are: the node, and the pods on its switch, are compared with no
//! desired rows at all.
//!
//! Does not ask the API server: if the node still exists, the controller and ovn-controller write
//! its rows again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contract::ovn;
use ovsdb::{Client, TransactError, Transaction, Updates, Uuid};

use crate::{
    cluster_id::ClusterId,
    config::{ClusterConfig, Zone},
    engine::{
        diff::{
            NoOthers, diff,
            edit::{Edit, Existing, Target},
        },
        northbound::{CLUSTER_ID, Northbound},
        once,
    },
    key::{Key, NodeName},
    kinds::desired,
    rows::{RowSet, Table},
    world::{Kept, Store},
};

/// The southbound database's name in its schema.
pub const SOUTHBOUND: &str = "OVN_Southbound";

/// Tables of the southbound database.
pub(crate) const CHASSIS: &str = "Chassis";
pub(crate) const CHASSIS_PRIVATE: &str = "Chassis_Private";

/// What happened to a node's rows in one database. Rows in words, such as `Logical_Switch_Port
/// shop_cart-0`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    pub removed: Vec<String>,
    /// Rows that stay because they hold rows of other programs.
    pub kept: Vec<String>,
    /// The chassis that the northbound database had for the node and for no other one, by name.
    pub chassis: BTreeSet<String>,
}

/// Why no rows were removed from the northbound database.
#[derive(Debug, thiserror::Error)]
pub enum RemoveNodeError {
    #[error(
        "it is of zone {} (NB_Global.name), and the option --zone says {}: nothing in it is changed",
        .theirs.0, .ours.0
    )]
    OtherZone { theirs: Zone, ours: Zone },
    #[error(
        "it was written for the cluster {theirs} (external_ids:{CLUSTER_ID} of ovn_cluster_router), and the API \
         server's is {ours} (uid of the namespace kube-system): nothing in it is changed"
    )]
    OtherCluster { theirs: Arc<str>, ours: Arc<str> },
    #[error(transparent)]
    Transact(#[from] TransactError),
}

impl RemoveNodeError {
    /// Whether the databases are others than those that were meant.
    pub fn is_of_another(&self) -> bool {
        match self {
            Self::OtherZone { .. } | Self::OtherCluster { .. } => true,
            Self::Transact(_) => false,
        }
    }
}

/// Whether the database is that of the zone, and of the API server's cluster if both tell it.
fn check(northbound: &Northbound, zone: &Zone, cluster: &ClusterId) -> Result<(), RemoveNodeError> {
    let theirs = northbound.zone();
    if theirs != *zone {
        return Err(RemoveNodeError::OtherZone { theirs, ours: zone.clone() });
    }
    let recorded = northbound.cluster_router().and_then(|router| northbound.cluster_id(router));
    match recorded.zip(cluster.clone()) {
        Some((theirs, ours)) if theirs != ours => {
            Err(RemoveNodeError::OtherCluster { theirs, ours })
        }
        Some(_) | None => Ok(()),
    }
}

/// Removes the rows of `node` and of the pods on its switch from the northbound database, all in
/// one transaction. `northbound`: from [`connect`](crate::engine::northbound::connect). Waits for a
/// connection for as long as it takes. If it is cancelled, all of the rows are removed or none.
/// `cluster`: the API server's; none if it is not known.
///
/// # Errors
///
/// The database is another zone's or another cluster's, or refuses the transaction. After a lost
/// connection, or a race that another writer won, it tries again.
pub async fn from_northbound(
    northbound: Updates,
    config: &ClusterConfig,
    cluster: &ClusterId,
    node: &str,
) -> Result<Removed, RemoveNodeError> {
    let store = Store::new(config.clone());
    let fixed = desired(&store, &Key::Cluster).into_iter().map(|row| row.id);
    let mut northbound = Northbound::new(northbound, fixed, config).removing(node.into());
    let (mut removed, mut chassis) = (Vec::new(), BTreeSet::new());
    // Rows of the node that are not removed. Remembered, because an empty switch no longer shows
    // whose it is.
    let mut left = BTreeSet::new();
    loop {
        let connection = once::up_to_date(&mut northbound).await;
        check(&northbound, &config.zone, cluster)?;

        // Before they go: not every chassis has the name of its node as host name.
        chassis.extend(own_chassis(&northbound, node));
        let edits = edits(&northbound, node);
        let rows = subjects(&edits);
        if rows.is_empty() {
            let kept = left
                .into_iter()
                .filter(|row| northbound.index.table(*row).is_some())
                .map(|row| northbound.describe(row))
                .collect();
            return Ok(Removed { removed, kept, chassis });
        }
        let own = [Key::Node(node.into()), Key::Gateway(node.into()), Key::Transit(node.into())];
        let own = own.iter().flat_map(|key| northbound.index.owned(key));
        left.extend(own.filter(|row| !rows.contains(row)));
        let mut names: Vec<String> = rows.into_iter().map(|row| northbound.describe(row)).collect();
        names.sort();
        if once::write(&mut northbound, &connection, edits).await? {
            removed.extend(names);
        }
    }
}

/// The keys whose rows are removed: the node's, its gateway's with the translations of pods, and
/// those of the pods with ports on its switch.
fn keys(northbound: &Northbound, node: &str) -> BTreeSet<Key> {
    let index = &northbound.index;
    let key = Key::Node(node.into());
    let switches = index.owned(&key).filter(|row| index.table(*row) == Some(Table::LogicalSwitch));
    let ports = switches.flat_map(|switch| {
        Table::LogicalSwitch.sets().iter().flat_map(move |set| northbound.elements(switch, set))
    });
    let pods = ports
        .filter_map(|port| index.claim(*port).owner())
        .filter(|owner| matches!(owner, Key::Pod(_)))
        .cloned();
    let chassis = chassis_names(northbound, node);
    let mut keys: BTreeSet<Key> =
        pods.chain(chassis.into_iter().map(|name| Key::Chassis(name.into()))).collect();
    let of_node = |owner: &&Key| matches!(owner, Key::SourceNat(of) if *of.node == *node);
    keys.extend(index.owners().filter(of_node).cloned());
    keys.extend([key, Key::Gateway(node.into()), Key::Transit(node.into())]);
    keys
}

/// The chassis of the gateway of a node's router port, by name.
fn chassis_names(northbound: &Northbound, node: &str) -> Vec<String> {
    let (index, key) = (&northbound.index, Key::Node(node.into()));
    let rows = index.owned(&key).filter(|row| index.table(*row) == Some(Table::GatewayChassis));
    // Their names are `<router port>-<chassis>`.
    let prefix = format!("{}-", ovn::router_to_switch(node));
    rows.filter_map(|row| Some(index.name(row)?.strip_prefix(&*prefix)?.to_owned())).collect()
}

/// The chassis of this node that are no other node's.
fn own_chassis(northbound: &Northbound, node: &str) -> BTreeSet<String> {
    let others = northbound.nodes().filter(|other| ***other != *node);
    let taken: BTreeSet<String> =
        others.flat_map(|other| chassis_names(northbound, other)).collect();
    chassis_names(northbound, node).into_iter().filter(|name| !taken.contains(name)).collect()
}

fn edits(northbound: &Northbound, node: &str) -> Vec<Vec<Edit>> {
    // Nothing is desired, so nothing can be missing or another's.
    let edits = |key| diff(key, RowSet::new(), northbound, &NoOthers(Kept::NOTHING)).edits;
    let mut edits: Vec<Vec<Edit>> = keys(northbound, node).iter().map(edits).collect();
    let gone = subjects(&edits);
    edits.push(load_balancers(northbound, &gone));
    edits
}

/// Those of Services that lead from nothing but rows that go.
fn load_balancers(northbound: &Northbound, gone: &BTreeSet<Uuid>) -> Vec<Edit> {
    let index = &northbound.index;
    let is_of_service = |row| matches!(index.claim(row).owner(), Some(Key::Service(_)));
    let leads_only_from = |row: Uuid| {
        let mut parents = index.parents(row).iter().peekable();
        parents.peek().is_some() && parents.all(|parent| gone.contains(&parent.row))
    };
    northbound
        .load_balancers()
        .filter(|(row, _)| leads_only_from(*row) && is_of_service(*row))
        .map(|(row, _)| Edit::Delete {
            row: Existing { table: Table::LoadBalancer, row },
            holds: Vec::new(),
        })
        .collect()
}

/// The rows that the edits concern, each once.
fn subjects(edits: &[Vec<Edit>]) -> BTreeSet<Uuid> {
    let existing =
        |edit: &Edit| if let Target::Existing(row) = edit.subject() { Some(row) } else { None };
    edits.iter().flatten().filter_map(existing).collect()
}

/// What is a node's in the southbound database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChassisOf {
    /// Name of the node, which is the `hostname` of its chassis as a rule.
    pub node: NodeName,
    /// Names of its chassis, whatever their `hostname` is.
    pub names: BTreeSet<String>,
    /// Nodes that are there: a chassis with the name of one of them as `hostname` is that one's.
    pub others: BTreeSet<String>,
}

impl ChassisOf {
    /// Whether the chassis is the node's.
    fn has(&self, name: &str, hostname: &str) -> bool {
        hostname == &*self.node || self.names.contains(name) && !self.others.contains(hostname)
    }
}

/// Removes the rows of `Chassis` that are the node's from the southbound database, and those of
/// `Chassis_Private` with the same names. Waits for a connection for as long as it takes.
///
/// # Errors
///
/// The database refuses a transaction, or the connection is lost. Another call is safe: it removes
/// what is left.
pub async fn from_southbound(
    southbound: &Client,
    of: &ChassisOf,
) -> Result<Removed, TransactError> {
    let connection = southbound.connected().await;
    // Older databases have no `Chassis_Private`. Its rows have no host, only the name of their
    // chassis.
    let has_private = connection.schema().table(CHASSIS_PRIVATE).is_some();
    let mut query = Transaction::new();
    let chassis = query.select(CHASSIS, ovsdb::Where::all(), &["_uuid", "name", "hostname"]);
    let private =
        has_private.then(|| query.select(CHASSIS_PRIVATE, ovsdb::Where::all(), &["_uuid", "name"]));
    let outcome = connection.transact(query).await?;

    let mut found: BTreeMap<Uuid, (&str, &str)> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for row in outcome.rows(chassis) {
        let [name, hostname] =
            ["name", "hostname"].map(|column| row.string(column).unwrap_or_default());
        if of.has(name, hostname) {
            found.insert(row.uuid(), (CHASSIS, name));
            names.insert(name);
        }
    }
    for row in private.iter().flat_map(|private| outcome.rows(*private)) {
        if let Some(name) = row.string("name").filter(|name| names.contains(name)) {
            found.insert(row.uuid(), (CHASSIS_PRIVATE, name));
        }
    }
    let mut removal = Transaction::new();
    for (row, (table, _)) in &found {
        removal.delete(table, *row);
    }
    if !found.is_empty() {
        connection.transact(removal).await?;
    }
    let mut removed: Vec<String> =
        found.into_values().map(|(table, name)| format!("{table} {name}")).collect();
    removed.sort();
    Ok(Removed { removed, kept: Vec::new(), chassis: BTreeSet::new() })
}
