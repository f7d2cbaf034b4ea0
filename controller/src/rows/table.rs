//! The tables of the northbound database that hold rows of this controller: one block for each
//! table, with all that the loop needs to know of it.
//!
//! ```text
//! Struct in "Table", life, identity, [own set: strength, table of elements], [foreign set] {
//!     columns
//! }
//! ```
//!
//! After the foreign sets, `large [set]` names sets of texts that are compared element by element.
//!
//! The columns (ovn-nb(5)) are those that this controller writes or that tell the owner of a row;
//! other columns are not copied, compared or written. A table comes before the tables that refer to
//! it. Knows nothing of keys.

use std::{collections::BTreeMap, sync::Arc};

use contract::ovn::{ID, ObjectId};
use ovsdb::{Atom, Datum, Field, Monitor, Pairs, Replica, Schema, Texts, Uuid, Where};

use crate::rows::{RowName, Value};

/// How long a row lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Until no strong reference to it is left: the table is no root (RFC 7047 §3.2).
    Held,
    /// As [`Held`](Self::Held). In addition, the owner follows from the row that holds it.
    Part,
    /// Until it is deleted.
    Root,
    /// As [`Root`](Self::Root). In addition, other rows live in it and would be deleted with it: a
    /// row that only lost its name is renamed, and not replaced.
    Home,
}

/// What identifies a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Its column `name`.
    Name,
    /// The id among its `external_ids`, of which its column `name` is a hash. A row without an id
    /// is known by its name.
    HashedId,
    /// Its column `chassis`.
    Chassis,
    /// The id among its `external_ids`.
    Id,
    /// Its values in these columns. In a table of parts, within the row that holds it: two routers
    /// may have equal routes.
    Content(&'static [&'static str]),
    /// Nothing: it is a part of the row that holds it.
    Nameless,
}

/// A column of references from a row to other rows of this controller. If the controller owns the
/// row with the set, the key of an element decides whether the element is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) of: Table,
    pub(crate) column: &'static str,
    pub(crate) holds: Table,
    pub(crate) strength: Strength,
}

/// Whether references of the set keep a row of a non-root table alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strength {
    Strong,
    Weak,
}

/// What the loop needs to know of a table.
struct Spec {
    name: &'static str,
    life: Life,
    identity: Identity,
    sets: &'static [Set],
    others_sets: &'static [&'static str],
    large_sets: &'static [&'static str],
    columns: &'static [&'static str],
    monitor: fn(Monitor) -> Monitor,
    recognised: fn(&Replica, Uuid) -> Option<Arc<str>>,
}

macro_rules! tables {
    (@column $key:ident) => { stringify!($key) };
    (@column $key:ident $column:literal) => { $column };
    (@identity Content($($key:ident $(as $column:literal)?),+)) => {
        Identity::Content(&[$(tables!(@column $key $($column)?)),+])
    };
    (@identity $identity:ident) => { Identity::$identity };
    (@recognised $row:ident Name) => { Arc::clone(&$row.name) };
    (@recognised $row:ident HashedId) => { Arc::clone(&$row.name) };
    (@recognised $row:ident Chassis) => { Arc::clone(&$row.chassis) };
    (@recognised $row:ident Id) => { $row.external_ids.get(ID).map_or_else(Arc::default, Arc::from) };
    (@recognised $row:ident Content($($key:ident $(as $column:literal)?),+)) => {
        content([$((tables!(@column $key $($column)?), $row.$key.datum())),+].into_iter()).into()
    };
    (@recognised $row:ident Nameless) => {{ let _ = $row; Arc::default() }};
    ($(
        $(#[$meta:meta])*
        $table:ident in $name:literal, $life:ident,
        $identity:ident $(($($key:ident $(as $key_column:literal)?),+))?,
        [$($set:ident: $strength:ident $holds:ident),*], [$($other:ident),*]
        $(, large [$($large:ident),+])? {
            $($columns:tt)*
        }
    )+) => {
        /// The tables that hold rows of this controller.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Table {
            $($table,)+
        }

        $(ovsdb::table! {
            $(#[$meta])*
            pub(crate) struct $table in $name {
                $($columns)*
            }
        })+

        // Checked by the compiler: columns of sets and of contents are fields, and a table comes
        // behind those that it refers to.
        $(
            $(const _: fn(&$table) -> &Vec<Uuid> = |row| &row.$set;)*
            $(const _: () = assert!((Table::$holds as usize) < (Table::$table as usize));)*
            $(const _: fn(&$table) -> &Vec<Uuid> = |row| &row.$other;)*
            $($(const _: fn(&$table) -> &Vec<Box<str>> = |row| &row.$large;)+)?
            $($(const _: fn(&$table) -> &dyn Field = |row| &row.$key;)+)?
        )+

        const SPECS: &[Spec] = &[$(Spec {
            name: $name,
            life: Life::$life,
            identity: tables!(@identity $identity $(($($key $(as $key_column)?),+))?),
            sets: &[$(Set {
                of: Table::$table,
                column: stringify!($set),
                holds: Table::$holds,
                strength: Strength::$strength,
            }),*],
            others_sets: &[$(stringify!($other)),*],
            large_sets: &[$($(stringify!($large)),+)?],
            columns: <$table as ovsdb::Table>::COLUMNS,
            monitor: |monitor| monitor.table::<$table>(Where::all()),
            recognised: |replica, row| {
                let row = replica.row::<$table>(row)?;
                Some(tables!(@recognised row $identity $(($($key $(as $key_column)?),+))?))
            },
        }),+];

        impl Table {
            /// In the order of inserts: a row may refer only to rows of earlier tables.
            pub(crate) const ALL: &[Self] = &[$(Self::$table),+];
        }
    };
}

tables! {
    MeterBand in "Meter_Band", Part, Nameless, [], [] {
        action: Box<str>,
        rate: i64,
        burst_size: i64,
    }

    Meter in "Meter", Root, Name, [bands: Strong MeterBand], [] {
        name: Arc<str>,
        unit: Box<str>,
        bands: Vec<Uuid>,
        fair: Option<bool>,
        external_ids: Pairs,
    }

    LoadBalancer in "Load_Balancer", Root, Name, [], [] {
        name: Arc<str>,
        protocol: Option<Box<str>>,
        pub(crate) vips: Pairs,
        selection_fields: Texts,
        options: Pairs,
        pub(crate) external_ids: Pairs,
    }

    LoadBalancerGroup in "Load_Balancer_Group", Root, Name, [load_balancer: Weak LoadBalancer], [] {
        name: Arc<str>,
        load_balancer: Vec<Uuid>,
    }

    /// Of OVN 22.12 and later.
    ChassisTemplateVar in "Chassis_Template_Var", Root, Chassis, [], [] {
        chassis: Arc<str>,
        pub(crate) variables: Pairs,
    }

    Copp in "Copp", Root, Name, [], [] {
        name: Arc<str>,
        meters: Pairs,
        external_ids: Pairs,
    }

    AddressSet in "Address_Set", Root, HashedId, [], [], large [addresses] {
        name: Arc<str>,
        pub(crate) addresses: Vec<Box<str>>,
        pub(crate) external_ids: Pairs,
    }

    GatewayChassis in "Gateway_Chassis", Part, Name, [], [] {
        name: Arc<str>,
        pub(crate) chassis_name: Box<str>,
        priority: i64,
        options: Pairs,
        external_ids: Pairs,
    }

    Acl in "ACL", Held, Id, [], [] {
        name: Option<Box<str>>,
        priority: i64,
        direction: Box<str>,
        pub(crate) matching: Box<str> = "match",
        action: Box<str>,
        tier: i64,
        log: bool,
        severity: Option<Box<str>>,
        meter: Option<Box<str>>,
        label: i64,
        options: Pairs,
        pub(crate) external_ids: Pairs,
    }

    Qos in "QoS", Held, Id, [], [] {
        direction: Box<str>,
        priority: i64,
        matching: Box<str> = "match",
        action: BTreeMap<String, i64>,
        pub(crate) external_ids: Pairs,
    }

    LogicalSwitchPort in "Logical_Switch_Port", Held, Name, [], [] {
        pub(crate) name: Arc<str>,
        pub(crate) kind: Box<str> = "type",
        pub(crate) addresses: Texts,
        /// Set by ovn-northd if `addresses` has `dynamic`.
        pub(crate) dynamic_addresses: Option<Box<str>>,
        port_security: Texts,
        enabled: Option<bool>,
        tag_request: Option<i64>,
        pub(crate) options: Pairs,
        pub(crate) external_ids: Pairs,
    }

    LogicalRouterPort in "Logical_Router_Port", Held, Name, [gateway_chassis: Strong GatewayChassis], [] {
        name: Arc<str>,
        gateway_chassis: Vec<Uuid>,
        mac: Box<str>,
        pub(crate) networks: Texts,
        options: Pairs,
        external_ids: Pairs,
    }

    StaticRoute in "Logical_Router_Static_Route", Part, Content(route_table, ip_prefix, nexthop, output_port, policy), [], [] {
        pub(crate) route_table: Box<str>,
        pub(crate) ip_prefix: Box<str>,
        pub(crate) nexthop: Box<str>,
        pub(crate) output_port: Option<Box<str>>,
        pub(crate) policy: Option<Box<str>>,
        pub(crate) external_ids: Pairs,
    }

    RouterPolicy in "Logical_Router_Policy", Part, Content(priority, matching as "match"), [], [] {
        pub(crate) priority: i64,
        pub(crate) matching: Box<str> = "match",
        pub(crate) action: Box<str>,
        nexthops: Texts,
        options: Pairs,
        external_ids: Pairs,
    }

    Nat in "NAT", Part, Content(kind as "type", external_ip, logical_ip, logical_port), [], [] {
        pub(crate) kind: Box<str> = "type",
        external_ip: Box<str>,
        pub(crate) logical_ip: Box<str>,
        pub(crate) logical_port: Option<Box<str>>,
        pub(crate) external_mac: Option<Box<str>>,
        pub(crate) external_port_range: Box<str>,
        /// Of OVN 24.03 and later.
        pub(crate) matching: Box<str> = "match",
        options: Pairs,
        pub(crate) external_ids: Pairs,
    }

    /// Of OVN 22.06 and later.
    StaticMacBinding in "Static_MAC_Binding", Root, Content(logical_port, ip), [], [] {
        pub(crate) logical_port: Box<str>,
        pub(crate) ip: Box<str>,
        mac: Box<str>,
        override_dynamic_mac: bool,
    }

    LogicalRouter in "Logical_Router", Home, Name,
        [ports: Strong LogicalRouterPort, static_routes: Strong StaticRoute,
         policies: Strong RouterPolicy, nat: Strong Nat,
         load_balancer: Weak LoadBalancer], [] {
        name: Arc<str>,
        ports: Vec<Uuid>,
        static_routes: Vec<Uuid>,
        policies: Vec<Uuid>,
        nat: Vec<Uuid>,
        load_balancer: Vec<Uuid>,
        load_balancer_group: Vec<Uuid>,
        copp: Option<Uuid>,
        options: Pairs,
        pub(crate) external_ids: Pairs,
    }

    LogicalSwitch in "Logical_Switch", Home, Name,
        [ports: Strong LogicalSwitchPort, acls: Strong Acl, qos_rules: Strong Qos,
         load_balancer: Weak LoadBalancer], [forwarding_groups] {
        name: Arc<str>,
        ports: Vec<Uuid>,
        acls: Vec<Uuid>,
        load_balancer: Vec<Uuid>,
        qos_rules: Vec<Uuid>,
        forwarding_groups: Vec<Uuid>,
        load_balancer_group: Vec<Uuid>,
        copp: Option<Uuid>,
        other_config: Pairs,
        external_ids: Pairs,
    }

    PortGroup in "Port_Group", Root, HashedId,
        [ports: Weak LogicalSwitchPort, acls: Strong Acl], [] {
        name: Arc<str>,
        ports: Vec<Uuid>,
        pub(crate) acls: Vec<Uuid>,
        pub(crate) external_ids: Pairs,
    }
}

ovsdb::table! {
    /// A single row, which ovn-northd or ovn-nbctl creates; none before. Only the mark of a new
    /// database is taken away.
    pub(crate) struct NbGlobal in "NB_Global" {
        pub(crate) name: String,
        pub(crate) external_ids: Pairs,
    }
}

impl Table {
    fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
    }

    /// The table's name in the schema.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The row with this name.
    pub fn row(self, name: impl Into<Arc<str>>) -> RowName {
        RowName { table: self, within: None, name: name.into(), id: None }
    }

    /// The row with this id, in a table whose rows are named by a hash of it.
    pub fn row_of(self, id: &ObjectId) -> RowName {
        RowName { id: Some(id.to_string().into()), ..self.row(id.hashed()) }
    }

    /// The row with these columns, within the row named `holder`. The name has only the columns
    /// that identify it.
    pub fn row_within(
        self,
        holder: impl Into<Arc<str>>,
        columns: &[(&'static str, Value)],
    ) -> RowName {
        RowName { within: Some(holder.into()), ..self.row_with(columns) }
    }

    /// The row with these columns, in a table whose rows are in no other row.
    pub fn row_with(self, columns: &[(&'static str, Value)]) -> RowName {
        let value = |key: &'static str| {
            columns.iter().find(|(column, _)| *column == key).map(|(_, value)| value)
        };
        let datum = |key| {
            if let Some(Value::Datum(datum)) = value(key) {
                datum.clone()
            } else {
                Datum::Set(Vec::new())
            }
        };
        let Identity::Content(keys) = self.spec().identity else { return self.row("") };
        self.row(content(keys.iter().map(|key| (*key, datum(key)))))
    }

    /// The table with this name in the schema.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|table| table.name() == name)
    }

    /// The column with the names of the table's rows, where they have names.
    pub(crate) fn name_column(self) -> Option<&'static str> {
        match self.spec().identity {
            Identity::Name | Identity::HashedId => Some("name"),
            Identity::Chassis => Some("chassis"),
            Identity::Id | Identity::Content(_) | Identity::Nameless => None,
        }
    }

    /// Whether rows are named by a hash of their ids, so that a row of a name may be another one.
    pub(crate) fn has_hashed_names(self) -> bool {
        matches!(self.spec().identity, Identity::HashedId)
    }

    /// Whether the holding row is part of a row's identity.
    pub(crate) fn is_within(self) -> bool {
        matches!(self.spec().identity, Identity::Content(_)) && self.needs_holder()
    }

    pub(crate) fn life(self) -> Life {
        self.spec().life
    }

    /// Whether ovsdb-server deletes a row of the table when no strong reference to it is left.
    pub(crate) fn needs_holder(self) -> bool {
        match self.spec().life {
            Life::Held | Life::Part => true,
            Life::Root | Life::Home => false,
        }
    }

    /// The sets of a row of this table that refer to rows of this controller.
    pub(crate) fn sets(self) -> &'static [Set] {
        self.spec().sets
    }

    /// Those of them whose elements would be deleted with the row.
    pub(crate) fn strong_sets(self) -> impl Iterator<Item = &'static Set> {
        self.sets().iter().filter(|set| set.strength == Strength::Strong)
    }

    /// Sets of foreign rows that would be deleted with a row of this table.
    pub(crate) fn others_sets(self) -> &'static [&'static str] {
        self.spec().others_sets
    }

    /// Sets of addresses that may be large: a change of some elements concerns no other part of the
    /// row.
    pub(crate) fn large_sets(self) -> &'static [&'static str] {
        self.spec().large_sets
    }

    /// The identity of a row, without that of its holder. Empty if the row has none; none if the
    /// replica has no such row.
    pub(crate) fn recognised(self, replica: &Replica, row: Uuid) -> Option<Arc<str>> {
        (self.spec().recognised)(replica, row)
    }
}

/// A monitor of all rows of all tables.
pub(crate) fn monitor() -> Monitor {
    Table::ALL.iter().fold(Monitor::new().table::<NbGlobal>(Where::all()), |monitor, table| {
        (table.spec().monitor)(monitor)
    })
}

/// The tables and columns above that a database of this schema lacks, as `Table` and
/// `Table.column`. Nothing is written there.
pub(crate) fn lacking(schema: &Schema) -> Vec<String> {
    let of_table = |spec: &'static Spec| {
        let has_table = schema.has_table(spec.name);
        let table = (!has_table).then(|| spec.name.to_owned());
        let columns = spec
            .columns
            .iter()
            .filter(move |column| has_table && !schema.has_column(spec.name, column));
        table.into_iter().chain(columns.map(move |column| format!("{}.{column}", spec.name)))
    };
    SPECS.iter().flat_map(of_table).collect()
}

/// The columns as text. An empty column counts as a missing one.
fn content(columns: impl Iterator<Item = (&'static str, Datum)>) -> String {
    let mut text = String::new();
    for (column, datum) in columns {
        let mut atoms: Vec<String> =
            datum.atoms().iter().map(Atom::to_string).filter(|atom| !atom.is_empty()).collect();
        // A set has no order, and two spellings of it must not be two identities.
        atoms.sort_unstable();
        if !atoms.is_empty() {
            text = format!("{text} {column}={}", atoms.join(","));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_database_lacks_is_named_by_table_and_column() {
        let tables: serde_json::Map<String, serde_json::Value> = SPECS
            .iter()
            .filter(|spec| spec.name != "Static_MAC_Binding")
            .map(|spec| {
                let columns =
                    spec.columns.iter().filter(|column| (spec.name, **column) != ("ACL", "tier"));
                let columns: serde_json::Map<String, serde_json::Value> = columns
                    .map(|column| ((*column).to_owned(), serde_json::json!({"type": "string"})))
                    .collect();
                (spec.name.to_owned(), serde_json::json!({"columns": columns}))
            })
            .collect();
        let schema = serde_json::json!({"name": "OVN_Northbound", "tables": tables});
        assert_eq!(
            lacking(&serde_json::from_value(schema).unwrap()),
            ["ACL.tier", "Static_MAC_Binding"]
        );
    }
}
