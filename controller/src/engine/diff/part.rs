//! The edits that single elements and entries of large values need. Looks at nothing else of the
//! values, so that one address in a set of thousands costs one lookup.

use std::collections::BTreeMap;

use crate::{
    engine::{
        diff::{
            edit::{Edit, Existing},
            value::{self, Delta},
        },
        northbound::Northbound,
    },
    key::Key,
    rows::{DesiredPart, Piece},
};

/// The edits for these parts of the key's rows. None if the rows have to be compared as a whole:
/// one does not exist, belongs to another key, or has no such column.
pub(crate) fn diff_parts(
    key: &Key,
    parts: &[DesiredPart],
    northbound: &Northbound,
) -> Option<Vec<Edit>> {
    let mut sets: BTreeMap<(Existing, &'static str), Delta> = BTreeMap::new();
    let mut maps: BTreeMap<(Existing, &'static str), Delta> = BTreeMap::new();
    for DesiredPart { row: id, column, piece } in parts {
        let row =
            northbound.find(id).filter(|row| northbound.index.claim(*row).owner() == Some(key))?;
        // An older schema may lack the column: then nothing is written.
        let now = northbound
            .column(id.table, row, column)
            .filter(|_| northbound.has_column(id.table, column))?;
        let place = (Existing { table: id.table, row }, *column);
        let deltas = match piece {
            Piece::Element(_) | Piece::NoElement(_) => &mut sets,
            Piece::Entry(..) | Piece::NoEntry(_) => &mut maps,
        };
        value::piece(now, piece, deltas.entry(place).or_default())?;
    }
    let sets = sets.into_iter().filter(|(_, delta)| !delta.is_empty());
    let sets = sets.map(|((row, column), Delta { remove, elements, .. })| Edit::Elements {
        row,
        column,
        remove,
        add: elements,
    });
    let maps = maps.into_iter().filter(|(_, delta)| !delta.is_empty());
    let maps = maps.map(|((row, column), Delta { remove, entries, .. })| Edit::Pairs {
        row,
        column,
        remove,
        add: entries,
    });
    Some(sets.chain(maps).collect())
}
