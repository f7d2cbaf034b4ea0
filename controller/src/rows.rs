//! Desired rows of the northbound database. Knows nothing of the rows that exist.
//!
//! `rows/table.rs` declares the tables. The typed rows in `rows/` say what a feature wants;
//! [`DesiredRow`] is the one form that the diff compares.

pub mod acl;
pub mod load_balancer;
mod mac_binding;
mod meter;
pub(crate) mod multicast;
pub(crate) mod nat;
pub(crate) mod port_group;
pub(crate) mod router_policy;
mod router_port;
pub(crate) mod static_route;
pub mod switch_port;
pub(crate) mod table;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ovsdb::Datum;

pub use crate::rows::{
    acl::Acl,
    load_balancer::LoadBalancer,
    mac_binding::StaticMacBinding,
    meter::{Meter, Sharing},
    nat::SourceNat,
    router_policy::RouterPolicy,
    router_port::{GatewayChassis, RouterPort},
    static_route::StaticRoute,
    switch_port::SwitchPort,
    table::Table,
};

/// The identity of a row: its name, with its id where names follow from ids; in a table without
/// names its id; in a table without ids its content, within the row that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowName {
    pub table: Table,
    /// The name of the row that holds it, in tables where that is part of the identity.
    pub within: Option<Arc<str>>,
    pub name: Arc<str>,
    /// The id, in tables whose rows are named by a hash of it. A row of the name with another id is
    /// another row: the hash is short, and two ids with the same one are found within seconds.
    pub id: Option<Arc<str>>,
}

/// A desired row, with all columns that this controller writes. Other columns belong to other
/// programs.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredRow {
    pub id: RowName,
    pub columns: Vec<(&'static str, Value)>,
    /// The sets that refer to this row, such as the ports of a switch or of a port group. A row of
    /// a non-root table is in at least one.
    pub member_of: Vec<Membership>,
    /// Sets that together have the effect of those in `member_of`. A row that is in all of these
    /// stays in its sets.
    pub or_member_of: Vec<Membership>,
    /// Columns in another form, of upstream's or of an earlier release. A row that has exactly
    /// these stays as it is; they are never written. None: there is no such form.
    pub or_columns: Vec<(&'static str, Value)>,
    /// Rows that a text of this one names without a reference, such as the sets in an ACL's match.
    /// The row is written only when they exist, or together with them.
    pub needs: Vec<RowName>,
}

/// The desired value of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Exactly this.
    Datum(Datum),
    /// An expression of OVN's language in upstream's words. Where it has these it stays; it is
    /// written as [`acl::spelling`] spells it.
    Match(String),
    /// Some pairs of a map; other keys belong to other programs. Boxed: it is three times as large
    /// as the others, and a key may have ten thousand rows.
    Pairs(Box<Pairs>),
    /// Exactly these texts, in a set that may be large: only what differs is written.
    Elements(BTreeSet<Box<str>>),
    /// Exactly these pairs, in a map that may be large: only what differs is written.
    Entries(BTreeMap<Box<str>, String>),
    /// Exactly these pairs, in a map of which only what differs is written. Each value is a list,
    /// separated by commas, without an order: an equal list in another order stays.
    Lists(BTreeMap<Box<str>, String>),
    /// References to exactly these rows.
    References(Vec<RowName>),
    /// References to at least these rows; further ones belong to other programs.
    Including(Vec<RowName>),
    /// References to exactly these nameless rows, each given by its columns. No other row refers to
    /// them. Example: the bands of a meter.
    Parts { table: Table, rows: Vec<Vec<(&'static str, Datum)>> },
}

impl Value {
    /// Some pairs of a map.
    pub fn pairs(pairs: impl Into<Pairs>) -> Self {
        Self::Pairs(Box::new(pairs.into()))
    }
}

/// The desired pairs of a map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    pub with: BTreeMap<&'static str, String>,
    /// Keys to remove, unless they have their value in `alike`.
    pub without: &'static [&'static str],
    /// For keys in `with` or `without`: an equivalent value. It stays where it exists, and is never
    /// written.
    pub alike: BTreeMap<&'static str, String>,
    /// Pairs with which a new row begins. In a row that exists, they are any program's.
    pub initially: BTreeMap<&'static str, String>,
}

/// The set of references, in the column `column` of the row `of`, that a row is in. Another key may
/// own `of`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Membership {
    pub of: RowName,
    pub column: &'static str,
    pub joins: Joins,
}

/// Whether a row waits for a set that it should be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Joins {
    /// It is not written before it can be in the set.
    WithIt,
    /// It is written without, and joins the set later: the set only gives it something.
    OnceThere,
}

impl Membership {
    /// The row is only written together with its place in the set.
    pub fn of(of: RowName, column: &'static str) -> Self {
        Self { of, column, joins: Joins::WithIt }
    }
}

/// All rows of one key.
pub type RowSet = Vec<DesiredRow>;

/// What one element or entry of a large value should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredPart {
    pub row: RowName,
    pub column: &'static str,
    pub piece: Piece,
}

/// An element of [`Value::Elements`] or an entry of [`Value::Entries`], or the absence of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Element(Box<str>),
    NoElement(Box<str>),
    Entry(Box<str>, String),
    NoEntry(Box<str>),
}

impl Pairs {
    /// Whether this value of the key may stay.
    pub fn accepts(&self, key: &str, value: &str) -> bool {
        [self.with.get(key), self.alike.get(key)]
            .into_iter()
            .flatten()
            .any(|wanted| wanted == value)
    }
}

impl<const N: usize> From<[(&'static str, String); N]> for Pairs {
    fn from(with: [(&'static str, String); N]) -> Self {
        BTreeMap::from(with).into()
    }
}

impl From<BTreeMap<&'static str, String>> for Pairs {
    fn from(with: BTreeMap<&'static str, String>) -> Self {
        Self { with, ..Self::default() }
    }
}

impl RowName {
    /// In words for people, such as `Port_Group a10810684934486818000`.
    pub(crate) fn describe(&self) -> String {
        // NUL separates the holder's name (`path`).
        format!("{} {}", self.table.name(), self.path().replace('\0', ":"))
    }

    /// Without the id: what at most one row can be called.
    pub(crate) fn called(&self) -> Self {
        Self { table: self.table, within: None, name: self.path().into(), id: None }
    }

    /// Both names as one text, separated by NUL, which no name contains.
    pub(crate) fn path(&self) -> Cow<'_, str> {
        match &self.within {
            Some(holder) => path(holder, &self.name).into(),
            None => (&*self.name).into(),
        }
    }
}

/// See [`RowName::path`].
pub(crate) fn path(holder: &str, name: &str) -> String {
    format!("{holder}\0{name}")
}
