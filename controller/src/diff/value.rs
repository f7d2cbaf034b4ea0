//! The difference between the current and the desired value of a column. Pure: values in, values out.

use std::collections::{BTreeMap, HashMap};

use ovsdb::{Datum, Uuid};

use crate::rows::Pairs;

/// The keys to remove from a map, and the pairs to add after that; none if the map is right.
pub(super) fn pairs(now: &ovsdb::Pairs, wanted: &Pairs) -> Option<(Vec<String>, BTreeMap<String, String>)> {
    let Pairs { with, without, alike: _ } = wanted;
    let there: HashMap<&str, &str> = now.iter().collect();
    let is_right = |key: &str| there.get(key).is_some_and(|value| wanted.accepts(key, value));
    let add: BTreeMap<String, String> = with
        .iter()
        .filter(|(key, _)| !is_right(key))
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    let stale = without.iter().copied().filter(|key| !with.contains_key(key));
    let stale = stale.filter(|key| !is_right(key));
    // Inserting a pair does not change the value of an existing key (RFC 7047 §5.1), so the key is removed
    // first.
    let remove: Vec<String> = add
        .keys()
        .map(String::as_str)
        .chain(stale)
        .filter(|key| there.contains_key(key))
        .map(str::to_owned)
        .collect();
    (!add.is_empty() || !remove.is_empty()).then_some((remove, add))
}

/// The columns of a row without a name.
pub(super) type Part = Vec<(&'static str, Datum)>;

/// The nameless rows that may stay, and the columns of those that are missing; none if nothing changes.
/// `holds`: whether an existing row has this value in the column.
pub(super) fn parts<'a>(
    now: &[Uuid],
    holds: impl Fn(Uuid, &'static str, &Datum) -> bool,
    wanted: &'a [Part],
) -> Option<(Vec<Uuid>, Vec<&'a Part>)> {
    // An existing row stands for one desired row only: two desired rows may be equal.
    let mut free = now.to_vec();
    let (mut kept, mut new) = (Vec::new(), Vec::new());
    for part in wanted {
        match free.iter().position(|row| part.iter().all(|(column, value)| holds(*row, column, value))) {
            Some(place) => kept.push(free.swap_remove(place)),
            None => new.push(part),
        }
    }
    (!new.is_empty() || !free.is_empty()).then_some((kept, new))
}

#[cfg(test)]
mod tests;
