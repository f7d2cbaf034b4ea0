//! Rows of the northbound database as they should be. Knows nothing of what the database holds.
//!
//! The typed rows of `rows/` say what a feature wants; [`DesiredRow`] is the one form that the diff compares.

pub mod acl;
mod meter;
mod router_port;
pub mod switch_port;

use std::collections::BTreeMap;

use ovsdb::Datum;

pub use acl::Acl;
pub use meter::Meter;
pub use router_port::{GatewayChassis, RouterPort};
pub use switch_port::SwitchPort;

/// The tables that hold rows of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    LoadBalancerGroup,
    Copp,
    Meter,
    MeterBand,
    LogicalRouter,
    LogicalSwitch,
    LogicalRouterPort,
    LogicalSwitchPort,
    GatewayChassis,
    Acl,
    PortGroup,
    AddressSet,
}

/// By what a row is recognised: its name, or for tables without names `external_ids:k8s.ovn.org/id`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowName {
    pub table: Table,
    pub name: String,
}

/// A row as it should be: all columns that are ours. Columns that are not named are somebody else's.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredRow {
    pub id: RowName,
    pub columns: Vec<(&'static str, Value)>,
    /// The sets that refer to this row: the ports of a switch, of a port group. A row of a table that is no root has at least one.
    pub member_of: Vec<Membership>,
}

/// What a column should hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Exactly this.
    Datum(Datum),
    /// Some pairs of a map; other keys are somebody else's.
    Pairs(Pairs),
    /// Exactly references to these rows.
    References(Vec<RowName>),
    /// At least references to these rows; others are somebody else's.
    Including(Vec<RowName>),
    /// Exactly references to rows with these contents, which nobody else refers to and which have no name: bands of a meter.
    Parts { table: Table, rows: Vec<Vec<(&'static str, Datum)>> },
}

/// What a map should hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    pub with: BTreeMap<&'static str, String>,
    /// Keys that must not be there, but with a value in `alike`.
    pub without: &'static [&'static str],
    /// Of keys in `with` or `without`: another value that means the same. One that is there stays; none is written.
    pub alike: BTreeMap<&'static str, String>,
}

/// An element of a set of references of another row, which another key may own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Membership {
    pub of: RowName,
    pub column: &'static str,
}

/// All rows of one key.
pub type RowSet = Vec<DesiredRow>;

impl Pairs {
    /// Whether this value of the key is as it should be.
    pub fn accepts(&self, key: &str, value: &str) -> bool {
        [self.with.get(key), self.alike.get(key)].into_iter().flatten().any(|wanted| wanted == value)
    }
}

impl<const N: usize> From<[(&'static str, String); N]> for Pairs {
    fn from(with: [(&'static str, String); N]) -> Self {
        BTreeMap::from(with).into()
    }
}

impl From<BTreeMap<&'static str, String>> for Pairs {
    fn from(with: BTreeMap<&'static str, String>) -> Self {
        Self { with, without: &[], alike: BTreeMap::new() }
    }
}

impl Table {
    /// As the schema spells it (ovn-nb(5)).
    pub fn name(self) -> &'static str {
        match self {
            Self::LoadBalancerGroup => "Load_Balancer_Group",
            Self::Copp => "Copp",
            Self::Meter => "Meter",
            Self::MeterBand => "Meter_Band",
            Self::LogicalRouter => "Logical_Router",
            Self::LogicalSwitch => "Logical_Switch",
            Self::LogicalRouterPort => "Logical_Router_Port",
            Self::LogicalSwitchPort => "Logical_Switch_Port",
            Self::GatewayChassis => "Gateway_Chassis",
            Self::Acl => "ACL",
            Self::PortGroup => "Port_Group",
            Self::AddressSet => "Address_Set",
        }
    }

    /// The row of that name.
    pub fn row(self, name: impl Into<String>) -> RowName {
        RowName { table: self, name: name.into() }
    }
}
