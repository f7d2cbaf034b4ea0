//! What a column lacks to hold what it should. Pure: values in, values out.

use std::{cmp::Ordering, collections::BTreeMap};

use ovsdb::{Atom, Datum, Uuid};

/// Whether both are the same value; sets and maps have no order.
pub(super) fn same(one: &Datum, other: &Datum) -> bool {
    match (one, other) {
        (Datum::Set(one), Datum::Set(other)) => one == other || one.len() == other.len() && sorted(one) == sorted(other),
        (Datum::Map(one), Datum::Map(other)) => one.len() == other.len() && one.iter().all(|pair| other.iter().any(|same| same == pair)),
        // An empty map and an empty set are spelled alike.
        (Datum::Set(atoms), Datum::Map(pairs)) | (Datum::Map(pairs), Datum::Set(atoms)) => atoms.is_empty() && pairs.is_empty(),
    }
}

fn sorted(atoms: &[Atom]) -> Vec<&Atom> {
    let mut atoms: Vec<&Atom> = atoms.iter().collect();
    atoms.sort_by(|one, other| order(one, other));
    atoms
}

fn order(one: &Atom, other: &Atom) -> Ordering {
    match (one, other) {
        (Atom::Integer(one), Atom::Integer(other)) => one.cmp(other),
        (Atom::Real(one), Atom::Real(other)) => one.total_cmp(other),
        (Atom::Boolean(one), Atom::Boolean(other)) => one.cmp(other),
        (Atom::String(one), Atom::String(other)) | (Atom::NamedUuid(one), Atom::NamedUuid(other)) => one.cmp(other),
        (Atom::Uuid(one), Atom::Uuid(other)) => one.cmp(other),
        // A column has one type; any order does.
        (one, other) => kind(one).cmp(&kind(other)),
    }
}

fn kind(atom: &Atom) -> u8 {
    match atom {
        Atom::Integer(_) => 0,
        Atom::Real(_) => 1,
        Atom::Boolean(_) => 2,
        Atom::String(_) => 3,
        Atom::Uuid(_) => 4,
        Atom::NamedUuid(_) => 5,
    }
}

/// The keys to remove from a map and the pairs to add after that, so that it has `with` and nothing of `without`.
pub(super) fn pairs(
    now: &Datum,
    with: &BTreeMap<&'static str, String>,
    without: &[&'static str],
) -> Option<(Vec<String>, BTreeMap<String, String>)> {
    let value = |key: &str| now.pairs().iter().find(|(own, _)| own.as_str() == Some(key)).map(|(_, value)| value);
    let add: BTreeMap<String, String> = with
        .iter()
        .filter(|(key, wanted)| value(key).and_then(Atom::as_str) != Some(wanted.as_str()))
        .map(|(key, wanted)| ((*key).to_owned(), wanted.clone()))
        .collect();
    let stale = without.iter().copied().filter(|key| !with.contains_key(key));
    // A key that is there keeps its value when a pair is inserted (RFC 7047 §5.1), so it goes first.
    let remove: Vec<String> = add.keys().map(String::as_str).chain(stale).filter(|key| value(key).is_some()).map(str::to_owned).collect();
    (!add.is_empty() || !remove.is_empty()).then_some((remove, add))
}

/// The columns of a row without a name.
pub(super) type Part = Vec<(&'static str, Datum)>;

/// Rows without names, each by its columns: those that can stay, and the contents of those that are missing; none if nothing changes.
pub(super) fn parts<'a>(now: &[(Uuid, Part)], wanted: &'a [Part]) -> Option<(Vec<Uuid>, Vec<&'a Part>)> {
    let mut free: Vec<_> = now.iter().collect();
    let (mut kept, mut new) = (Vec::new(), Vec::new());
    for row in wanted {
        let holds = |columns: &[(&'static str, Datum)]| {
            row.iter().all(|(column, value)| columns.iter().any(|(own, now)| own == column && same(now, value)))
        };
        match free.iter().position(|(_, columns)| holds(columns)) {
            Some(place) => kept.push(free.swap_remove(place).0),
            None => new.push(row),
        }
    }
    (!new.is_empty() || !free.is_empty()).then_some((kept, new))
}

#[cfg(test)]
mod tests;
