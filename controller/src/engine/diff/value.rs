//! The difference between the current and the desired value of a column. Pure: values in, values
//! out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ovsdb::{Datum, Field, Uuid};

use crate::rows::{Pairs, Piece};

/// The keys to remove from a map, and the pairs to add after that; none if the map is right.
pub(crate) fn pairs(
    now: &ovsdb::Pairs,
    wanted: &Pairs,
) -> Option<(Vec<String>, BTreeMap<String, String>)> {
    let Pairs { with, without, alike: _, initially: _ } = wanted;
    let there: HashMap<&str, &str> = now.iter().collect();
    let is_right = |key: &str| there.get(key).is_some_and(|value| wanted.accepts(key, value));
    let add: BTreeMap<String, String> = with
        .iter()
        .filter(|(key, _)| !is_right(key))
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    let stale = without.iter().copied().filter(|key| !with.contains_key(key));
    let stale = stale.filter(|key| !is_right(key));
    // Inserting a pair does not change the value of an existing key (RFC 7047 §5.1), so the key is
    // removed first.
    let remove: Vec<String> = add
        .keys()
        .map(String::as_str)
        .chain(stale)
        .filter(|key| there.contains_key(key))
        .map(str::to_owned)
        .collect();
    (!add.is_empty() || !remove.is_empty()).then_some((remove, add))
}

/// What has to be removed from a large value, and what is added after that.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Elements of a set, or keys of a map.
    pub(crate) remove: Vec<String>,
    pub(crate) elements: Vec<String>,
    pub(crate) entries: BTreeMap<String, String>,
}

impl Delta {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.remove.len() + self.elements.len() + self.entries.len()
    }

    /// Whether the whole value is shorter than this difference to it: more than half of it changes.
    pub(crate) fn is_most_of(&self, elements: usize) -> bool {
        self.len() * 2 > elements
    }
}

/// The difference between the elements of a set, which are sorted, and the desired ones.
pub(crate) fn elements(now: &[Box<str>], wanted: &BTreeSet<Box<str>>) -> Delta {
    let stale = now.iter().filter(|text| !wanted.contains(*text));
    let new = wanted.iter().filter(|text| now.binary_search(text).is_err());
    Delta {
        remove: stale.map(|text| text.to_string()).collect(),
        elements: new.map(|text| text.to_string()).collect(),
        entries: BTreeMap::new(),
    }
}

/// The difference between the pairs of a map and the desired ones. `same`: whether the present
/// value, the first, is the desired one.
pub(crate) fn entries(
    now: &ovsdb::Pairs,
    wanted: &BTreeMap<Box<str>, String>,
    same: fn(&str, &str) -> bool,
) -> Delta {
    // Most of the time nothing differs, and both are in the order of the keys.
    if now.iter().eq(wanted.iter().map(|(key, value)| (&**key, value.as_str()))) {
        return Delta::default();
    }
    let there: HashMap<&str, &str> = now.iter().collect();
    let is_right = |key: &str, value: &str| there.get(key).is_some_and(|own| same(own, value));
    let wrong = wanted.iter().filter(|(key, value)| !is_right(key, value));
    let stale =
        now.iter().filter(|(key, value)| wanted.get(*key).is_none_or(|own| !same(value, own)));
    Delta {
        remove: stale.map(|(key, _)| key.to_owned()).collect(),
        elements: Vec::new(),
        entries: wrong.map(|(key, value)| (key.to_string(), value.clone())).collect(),
    }
}

/// Whether two lists, separated by commas, have the same elements in any order, each equally often:
/// upstream lists a backend once for each address of its node, which means the same.
pub(crate) fn same_list(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    fn sorted(list: &str) -> Vec<&str> {
        let mut elements: Vec<&str> = list.split(',').collect();
        elements.sort_unstable();
        elements
    }
    let (mut few, mut many) = (sorted(one), sorted(other));
    if few.len() > many.len() {
        std::mem::swap(&mut few, &mut many);
    }
    let times = many.len() / few.len();
    times * few.len() == many.len()
        && many.chunks(times).zip(&few).all(|(same, element)| same.iter().all(|it| it == element))
}

/// Whether two texts are equal.
pub(crate) fn same_text(one: &str, other: &str) -> bool {
    one == other
}

/// Adds to `delta` what one element or entry needs. None if the field is not a large value of that
/// kind.
pub(crate) fn piece(now: &dyn Field, piece: &Piece, delta: &mut Delta) -> Option<()> {
    let has = |text: &str| Some(now.texts()?.binary_search_by(|own| (**own).cmp(text)).is_ok());
    match piece {
        Piece::Element(text) if !has(text)? => delta.elements.push(text.to_string()),
        Piece::NoElement(text) if has(text)? => delta.remove.push(text.to_string()),
        Piece::Entry(key, value) => match now.pairs()?.get(key) {
            Some(own) if own == value => {}
            there => {
                delta.remove.extend(there.map(|_| key.to_string()));
                delta.entries.insert(key.to_string(), value.clone());
            }
        },
        Piece::NoEntry(key) => delta.remove.extend(now.pairs()?.get(key).map(|_| key.to_string())),
        Piece::Element(_) | Piece::NoElement(_) => {}
    }
    Some(())
}

/// The columns of a row without a name.
pub(crate) type Part = Vec<(&'static str, Datum)>;

/// The nameless rows that may stay, and the columns of those that are missing; none if nothing
/// changes. `holds`: whether an existing row has this value in the column.
pub(crate) fn parts<'a>(
    now: &[Uuid],
    holds: impl Fn(Uuid, &'static str, &Datum) -> bool,
    wanted: &'a [Part],
) -> Option<(Vec<Uuid>, Vec<&'a Part>)> {
    // An existing row stands for one desired row only: two desired rows may be equal.
    let mut free = now.to_vec();
    let (mut kept, mut new) = (Vec::new(), Vec::new());
    for part in wanted {
        match free
            .iter()
            .position(|row| part.iter().all(|(column, value)| holds(*row, column, value)))
        {
            Some(place) => kept.push(free.swap_remove(place)),
            None => new.push(part),
        }
    }
    (!new.is_empty() || !free.is_empty()).then_some((kept, new))
}

#[cfg(test)]
mod tests;
