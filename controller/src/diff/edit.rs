//! What has to be done to a row. Knows nothing of transactions: rows that are still to come are called by their names.

use std::collections::BTreeMap;

use ovsdb::{Datum, Uuid};

use crate::rows::{RowName, Table};

/// A row that is there, or one that is inserted along.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Target {
    Existing(Uuid),
    Inserted(RowName),
}

/// A row that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Existing {
    pub(crate) table: Table,
    pub(crate) row: Uuid,
}

/// A value to write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Datum(Datum),
    References(Vec<Target>),
    /// References to these rows and to new ones with these contents.
    Parts {
        table: Table,
        kept: Vec<Uuid>,
        new: Vec<Vec<(&'static str, Datum)>>,
    },
}

/// One change to one row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Edit {
    Insert {
        id: RowName,
        columns: Vec<(&'static str, Cell)>,
    },
    Update {
        row: Existing,
        columns: Vec<(&'static str, Cell)>,
    },
    /// Of a map: pairs whose keys go, and pairs that come after that.
    Pairs {
        row: Existing,
        column: &'static str,
        remove: Vec<String>,
        add: BTreeMap<String, String>,
    },
    /// Of a set of references: one more.
    Link {
        of: Target,
        table: Table,
        column: &'static str,
        element: Target,
    },
    /// Of a set of references: one less. A row that needs a holder is gone with its last.
    Unlink {
        of: Existing,
        column: &'static str,
        element: Uuid,
    },
    /// Only as long as the row still holds these others.
    Delete {
        row: Existing,
        holds: Vec<(&'static str, Cell)>,
    },
}

impl Edit {
    /// The row that would be new.
    pub(crate) fn inserted(&self) -> Option<&RowName> {
        if let Self::Insert { id, .. } = self { Some(id) } else { None }
    }

    /// The row that is concerned.
    pub(crate) fn subject(&self) -> Target {
        match self {
            Self::Insert { id, .. } => Target::Inserted(id.clone()),
            Self::Update { row, .. } | Self::Pairs { row, .. } | Self::Delete { row, .. } => Target::Existing(row.row),
            Self::Link { element, .. } => element.clone(),
            Self::Unlink { element, .. } => Target::Existing(*element),
        }
    }
}
