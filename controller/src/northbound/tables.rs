//! The columns of the northbound database that are ours to write or that tell whose a row is (ovn-nb(5)).
//!
//! What is not here is not copied, compared or written. Knows nothing of keys.

use std::collections::BTreeMap;

use ovsdb::{Datum, Monitor, Replica, Uuid, Where};

use crate::rows::Table;

type Map = BTreeMap<String, String>;

ovsdb::table! {
    /// One row; none before ovn-northd or ovn-nbctl has made it.
    pub(super) struct NbGlobal in "NB_Global" {
        pub(super) name: String,
    }

    pub(super) struct LoadBalancerGroup in "Load_Balancer_Group" {
        name: String,
    }

    pub(super) struct Copp in "Copp" {
        name: String,
        meters: Map,
        external_ids: Map,
    }

    pub(super) struct Meter in "Meter" {
        name: String,
        unit: String,
        bands: Vec<Uuid>,
        fair: Option<bool>,
        external_ids: Map,
    }

    pub(super) struct MeterBand in "Meter_Band" {
        action: String,
        rate: i64,
        burst_size: i64,
    }

    pub(super) struct LogicalRouter in "Logical_Router" {
        name: String,
        ports: Vec<Uuid>,
        load_balancer_group: Vec<Uuid>,
        copp: Option<Uuid>,
        options: Map,
        external_ids: Map,
    }

    pub(super) struct LogicalSwitch in "Logical_Switch" {
        name: String,
        ports: Vec<Uuid>,
        acls: Vec<Uuid>,
        qos_rules: Vec<Uuid>,
        forwarding_groups: Vec<Uuid>,
        load_balancer_group: Vec<Uuid>,
        copp: Option<Uuid>,
        other_config: Map,
        external_ids: Map,
    }

    pub(super) struct LogicalRouterPort in "Logical_Router_Port" {
        name: String,
        gateway_chassis: Vec<Uuid>,
        mac: String,
        pub(super) networks: Vec<String>,
        options: Map,
        external_ids: Map,
    }

    pub(super) struct LogicalSwitchPort in "Logical_Switch_Port" {
        pub(super) name: String,
        pub(super) kind: String = "type",
        pub(super) addresses: Vec<String>,
        /// What northd makes of an address that is to be `dynamic`.
        pub(super) dynamic_addresses: Option<String>,
        port_security: Vec<String>,
        enabled: Option<bool>,
        tag_request: Option<i64>,
        pub(super) options: Map,
        pub(super) external_ids: Map,
    }

    pub(super) struct GatewayChassis in "Gateway_Chassis" {
        name: String,
        chassis_name: String,
        priority: i64,
        options: Map,
        external_ids: Map,
    }

    pub(super) struct Acl in "ACL" {
        name: Option<String>,
        priority: i64,
        direction: String,
        matching: String = "match",
        action: String,
        tier: i64,
        log: bool,
        severity: Option<String>,
        meter: Option<String>,
        label: i64,
        options: Map,
        external_ids: Map,
    }

    pub(super) struct PortGroup in "Port_Group" {
        name: String,
        ports: Vec<Uuid>,
        acls: Vec<Uuid>,
        external_ids: Map,
    }

    pub(super) struct AddressSet in "Address_Set" {
        name: String,
        addresses: Vec<String>,
        external_ids: Map,
    }
}

/// A set of references: its column, the table whose rows it holds, and whether a row of theirs lives only as long as it is in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) column: &'static str,
    pub(crate) holds: Table,
    pub(crate) strong: bool,
}

const fn strong(column: &'static str, holds: Table) -> Set {
    Set { column, holds, strong: true }
}

impl Table {
    /// All tables; those that others refer to come before these, so that a transaction can insert in this order.
    pub(crate) const ALL: [Self; 12] = [
        Self::MeterBand,
        Self::Meter,
        Self::LoadBalancerGroup,
        Self::Copp,
        Self::AddressSet,
        Self::GatewayChassis,
        Self::Acl,
        Self::LogicalSwitchPort,
        Self::LogicalRouterPort,
        Self::LogicalRouter,
        Self::LogicalSwitch,
        Self::PortGroup,
    ];

    /// The place in [`ALL`](Self::ALL).
    pub(crate) fn rank(self) -> usize {
        Self::ALL.iter().position(|table| *table == self).unwrap_or_default()
    }

    /// Whether rows of the table have a column `name` that tells them apart.
    pub(crate) fn has_names(self) -> bool {
        !matches!(self, Self::Acl | Self::MeterBand)
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// The sets by which a row of this table holds others of ours.
    pub(crate) fn sets(self) -> &'static [Set] {
        const METER: [Set; 1] = [strong("bands", Table::MeterBand)];
        const ROUTER: [Set; 1] = [strong("ports", Table::LogicalRouterPort)];
        const ROUTER_PORT: [Set; 1] = [strong("gateway_chassis", Table::GatewayChassis)];
        const SWITCH: [Set; 2] = [strong("ports", Table::LogicalSwitchPort), strong("acls", Table::Acl)];
        const GROUP: [Set; 2] = [Set { column: "ports", holds: Table::LogicalSwitchPort, strong: false }, strong("acls", Table::Acl)];
        match self {
            Self::Meter => &METER,
            Self::LogicalRouter => &ROUTER,
            Self::LogicalRouterPort => &ROUTER_PORT,
            Self::LogicalSwitch => &SWITCH,
            Self::PortGroup => &GROUP,
            Self::LoadBalancerGroup
            | Self::Copp
            | Self::MeterBand
            | Self::LogicalSwitchPort
            | Self::GatewayChassis
            | Self::Acl
            | Self::AddressSet => &[],
        }
    }

    /// Sets of rows that are never ours and that would be gone with a row of this table.
    pub(crate) fn others_sets(self) -> &'static [&'static str] {
        if self == Self::LogicalSwitch { &["qos_rules", "forwarding_groups"] } else { &[] }
    }
}

/// A row whose table is known only when the program runs.
pub(crate) trait Columns {
    /// The value of a column; none where the column is not copied.
    fn column(&self, name: &str) -> Option<Datum>;
}

impl<T: ovsdb::Table> Columns for T {
    fn column(&self, name: &str) -> Option<Datum> {
        T::COLUMNS.iter().position(|column| *column == name).map(|index| self.field(index).datum())
    }
}

/// Asks for all rows of all tables.
pub(super) fn monitor() -> Monitor {
    Monitor::new()
        .table::<NbGlobal>(Where::all())
        .table::<LoadBalancerGroup>(Where::all())
        .table::<Copp>(Where::all())
        .table::<Meter>(Where::all())
        .table::<MeterBand>(Where::all())
        .table::<LogicalRouter>(Where::all())
        .table::<LogicalSwitch>(Where::all())
        .table::<LogicalRouterPort>(Where::all())
        .table::<LogicalSwitchPort>(Where::all())
        .table::<GatewayChassis>(Where::all())
        .table::<Acl>(Where::all())
        .table::<PortGroup>(Where::all())
        .table::<AddressSet>(Where::all())
}

/// One row, if it is there.
pub(super) fn row(replica: &Replica, table: Table, uuid: Uuid) -> Option<&dyn Columns> {
    fn typed<T: ovsdb::Table>(replica: &Replica, uuid: Uuid) -> Option<&dyn Columns> {
        replica.row::<T>(uuid).map(|row| row as &dyn Columns)
    }
    match table {
        Table::LoadBalancerGroup => typed::<LoadBalancerGroup>(replica, uuid),
        Table::Copp => typed::<Copp>(replica, uuid),
        Table::Meter => typed::<Meter>(replica, uuid),
        Table::MeterBand => typed::<MeterBand>(replica, uuid),
        Table::LogicalRouter => typed::<LogicalRouter>(replica, uuid),
        Table::LogicalSwitch => typed::<LogicalSwitch>(replica, uuid),
        Table::LogicalRouterPort => typed::<LogicalRouterPort>(replica, uuid),
        Table::LogicalSwitchPort => typed::<LogicalSwitchPort>(replica, uuid),
        Table::GatewayChassis => typed::<GatewayChassis>(replica, uuid),
        Table::Acl => typed::<Acl>(replica, uuid),
        Table::PortGroup => typed::<PortGroup>(replica, uuid),
        Table::AddressSet => typed::<AddressSet>(replica, uuid),
    }
}

/// The id that rows without a name of their own carry.
const ID: &str = "k8s.ovn.org/id";

/// What a row is recognised by, as [`crate::rows::RowName`] says; empty where the table has no names.
pub(super) fn name(replica: &Replica, table: Table, uuid: Uuid) -> Option<&str> {
    Some(match table {
        Table::MeterBand => "",
        Table::Acl => replica.row::<Acl>(uuid)?.external_ids.get(ID).map_or("", String::as_str),
        Table::LoadBalancerGroup => &replica.row::<LoadBalancerGroup>(uuid)?.name,
        Table::Copp => &replica.row::<Copp>(uuid)?.name,
        Table::Meter => &replica.row::<Meter>(uuid)?.name,
        Table::LogicalRouter => &replica.row::<LogicalRouter>(uuid)?.name,
        Table::LogicalSwitch => &replica.row::<LogicalSwitch>(uuid)?.name,
        Table::LogicalRouterPort => &replica.row::<LogicalRouterPort>(uuid)?.name,
        Table::LogicalSwitchPort => &replica.row::<LogicalSwitchPort>(uuid)?.name,
        Table::GatewayChassis => &replica.row::<GatewayChassis>(uuid)?.name,
        Table::PortGroup => &replica.row::<PortGroup>(uuid)?.name,
        Table::AddressSet => &replica.row::<AddressSet>(uuid)?.name,
    })
}
