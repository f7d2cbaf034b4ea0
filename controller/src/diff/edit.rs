//! Changes to rows. Knows nothing of transactions: rows that do not exist yet are referred to by name.

use std::collections::BTreeMap;

use ovsdb::{Datum, Uuid};

use crate::rows::{RowName, Table};

/// An existing row, or one that the same transaction inserts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Target {
    Existing(Uuid),
    Inserted(RowName),
}

/// An existing row.
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
    /// References to the `kept` rows and to new ones with the columns in `new`.
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
    /// For a map: keys to remove, and then pairs to add.
    Pairs {
        row: Existing,
        column: &'static str,
        remove: Vec<String>,
        add: BTreeMap<String, String>,
    },
    /// For a set of references: adds an element.
    Link {
        of: Target,
        table: Table,
        column: &'static str,
        element: Target,
    },
    /// For a set of references: removes an element. A row of a non-root table is deleted with its last strong
    /// reference.
    Unlink {
        of: Existing,
        column: &'static str,
        element: Uuid,
    },
    /// Deletes the row if its sets still have exactly the elements in `holds`.
    Delete {
        row: Existing,
        holds: Vec<(&'static str, Cell)>,
    },
}

impl Edit {
    /// The row that the edit inserts, if any.
    pub(crate) fn inserted(&self) -> Option<&RowName> {
        if let Self::Insert { id, .. } = self { Some(id) } else { None }
    }

    /// The row that the edit is about. For an element of a set: the element.
    pub(crate) fn subject(&self) -> Target {
        match self {
            Self::Insert { id, .. } => Target::Inserted(id.clone()),
            Self::Update { row, .. } | Self::Pairs { row, .. } | Self::Delete { row, .. } => {
                Target::Existing(row.row)
            }
            Self::Link { element, .. } => element.clone(),
            Self::Unlink { element, .. } => Target::Existing(*element),
        }
    }
}
