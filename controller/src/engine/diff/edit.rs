//! Changes to rows. Knows nothing of transactions: rows that do not exist yet are referred to by
//! name.

use std::collections::BTreeMap;

use ovsdb::{Atom, Datum, Uuid};

use crate::rows::{RowName, Table};

/// Bytes of an operation beside its values: its name, its table, the UUID of its row.
const OPERATION: usize = 100;
/// Bytes of a reference: `["uuid","…"]`.
const REFERENCE: usize = 47;
/// Bytes around a text or an element.
const QUOTES: usize = 4;

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

impl Cell {
    /// About how many bytes of a transaction the value takes.
    fn size(&self) -> usize {
        // Of the atoms only texts can be long: a UUID is the longest of the others.
        let atom = |atom: &Atom| atom.as_str().map_or(REFERENCE, str::len) + QUOTES;
        let datum = |datum: &Datum| -> usize {
            let pairs = datum.pairs().iter().map(|(key, value)| atom(key) + atom(value));
            datum.atoms().iter().map(atom).chain(pairs).sum()
        };
        match self {
            Self::Datum(value) => datum(value),
            Self::References(rows) => rows.len() * REFERENCE,
            Self::Parts { kept, new, table: _ } => {
                let columns =
                    new.iter().flatten().map(|(column, value)| column.len() + datum(value));
                kept.len() * REFERENCE + new.len() * OPERATION + columns.sum::<usize>()
            }
        }
    }
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
    /// For a set of texts: elements to remove, and then elements to add.
    Elements {
        row: Existing,
        column: &'static str,
        remove: Vec<String>,
        add: Vec<String>,
    },
    /// For a set of references: adds an element.
    Link {
        of: Target,
        table: Table,
        column: &'static str,
        element: Target,
    },
    /// For a set of references: removes an element. A row of a non-root table is deleted with its
    /// last strong reference.
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

    /// About how many bytes of a transaction the edit takes.
    pub(crate) fn size(&self) -> usize {
        let columns = |columns: &[(&'static str, Cell)]| -> usize {
            columns.iter().map(|(column, cell)| column.len() + cell.size()).sum()
        };
        let texts =
            |texts: &[String]| -> usize { texts.iter().map(|text| text.len() + QUOTES).sum() };
        OPERATION
            + match self {
                Self::Insert { columns: own, .. } | Self::Update { columns: own, .. } => {
                    columns(own)
                }
                Self::Delete { holds, .. } => columns(holds),
                Self::Pairs { remove, add, .. } => {
                    // Quotes around both, and the brackets of the pair.
                    let pairs = add.iter().map(|(key, value)| key.len() + value.len() + 3 * QUOTES);
                    texts(remove) + pairs.sum::<usize>()
                }
                Self::Elements { remove, add, .. } => texts(remove) + texts(add),
                Self::Link { .. } | Self::Unlink { .. } => REFERENCE,
            }
    }

    /// The row that the edit is about. For an element of a set: the element.
    pub(crate) fn subject(&self) -> Target {
        match self {
            Self::Insert { id, .. } => Target::Inserted(id.clone()),
            Self::Update { row, .. }
            | Self::Pairs { row, .. }
            | Self::Elements { row, .. }
            | Self::Delete { row, .. } => Target::Existing(row.row),
            // Of a set only the element changes hands: the row that has the set may be another
            // key's.
            Self::Link { element, .. } => element.clone(),
            Self::Unlink { element, .. } => Target::Existing(*element),
        }
    }
}
