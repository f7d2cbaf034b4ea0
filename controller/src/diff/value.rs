//! What a column lacks to hold what it should. Pure: values in, values out.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
};

use ovsdb::{Atom, Datum, Uuid};

use crate::rows::Pairs;

/// Whether both are the same value; sets and maps have no order.
pub(super) fn same(one: &Datum, other: &Datum) -> bool {
    match (one, other) {
        (Datum::Set(one), Datum::Set(other)) => one == other || one.len() == other.len() && sorted(one) == sorted(other),
        (Datum::Map(one), Datum::Map(other)) => one == other || one.len() == other.len() && by_key(one) == by_key(other),
        // An empty map and an empty set are spelled alike.
        (Datum::Set(atoms), Datum::Map(pairs)) | (Datum::Map(pairs), Datum::Set(atoms)) => atoms.is_empty() && pairs.is_empty(),
    }
}

fn sorted(atoms: &[Atom]) -> Vec<&Atom> {
    let mut atoms: Vec<&Atom> = atoms.iter().collect();
    atoms.sort_by(|one, other| order(one, other));
    atoms
}

fn by_key(pairs: &[(Atom, Atom)]) -> Vec<&(Atom, Atom)> {
    let mut pairs: Vec<&(Atom, Atom)> = pairs.iter().collect();
    pairs.sort_by(|(one, _), (other, _)| order(one, other));
    pairs
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

/// The keys to remove from a map and the pairs to add after that, so that it holds what it should.
pub(super) fn pairs(now: &Datum, wanted: &Pairs) -> Option<(Vec<String>, BTreeMap<String, String>)> {
    let Pairs { with, without, alike: _ } = wanted;
    let there: HashMap<&str, &Atom> = now.pairs().iter().filter_map(|(key, value)| Some((key.as_str()?, value))).collect();
    let value = |key: &str| there.get(key).copied();
    let add: BTreeMap<String, String> = with
        .iter()
        .filter(|(key, _)| !value(key).and_then(Atom::as_str).is_some_and(|there| wanted.accepts(key, there)))
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    let stale = without.iter().copied().filter(|key| !with.contains_key(key));
    let stale = stale.filter(|key| !value(key).and_then(Atom::as_str).is_some_and(|there| wanted.accepts(key, there)));
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
