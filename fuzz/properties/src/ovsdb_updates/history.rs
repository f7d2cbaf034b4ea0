//! A history of inserts, changes and deletes of rows. It is reported according to ovsdb-server(7)
//! §4.1.14 and RFC 7047 §4.1.6 to one replica for each form, and compared with a model of the rows.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Result, Unstructured};
use ovsdb::fuzzing::{self, Form};
use serde_json::{Value, json};

use super::{FORMS, Port, empty, row_id, rows, snapshot_text};

/// The model of a row.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    name: u8,
    tag: Option<u8>,
    addresses: BTreeSet<u8>,
    ids: BTreeMap<u8, u8>,
}

pub(super) fn check(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut model: BTreeMap<u8, Model> = BTreeMap::new();
    let mut replicas = FORMS.map(|form| (form, empty()));
    while let Ok(Some((id, next))) = step(&mut u) {
        let before = model.get(&id).cloned();
        let next = next.map(|change| change.to(before.clone().unwrap_or_default()));
        if before == next {
            continue;
        }
        match &next {
            Some(row) => drop(model.insert(id, row.clone())),
            None => drop(model.remove(&id)),
        }
        for (form, replica) in &mut replicas {
            let report = report(*form, id, before.as_ref(), next.as_ref());
            let (changes, result) = fuzzing::update(replica, *form, &report);
            result.unwrap_or_else(|error| panic!("{report} is refused: {error}"));
            assert_eq!(changes, 1, "{report}");
        }
    }
    for (form, replica) in &mut replicas {
        let mut fresh = empty();
        let all: Vec<_> = model.iter().map(|(id, row)| (row_id(*id), row.whole())).collect();
        let snapshot = snapshot_text(*form, &all);
        fuzzing::load(&mut fresh, *form, &snapshot).1.expect("a snapshot");
        let expected: BTreeMap<_, _> =
            model.iter().map(|(id, row)| (row_id(*id), Port::from(row))).collect();
        assert_eq!(rows(replica), expected, "{form:?}: step by step");
        assert_eq!(rows(&fresh), expected, "{form:?}: at once");
        // The same contents once more, as after a lost connection, are no change.
        assert_eq!(fuzzing::load(replica, *form, &snapshot).0, 0, "{form:?}: nothing new");
    }
}

/// A change of a row: the new values, and elements to add or remove.
struct Edit {
    name: Option<u8>,
    tag: Option<Option<u8>>,
    address: Option<u8>,
    pair: Option<(u8, Option<u8>)>,
}

impl Edit {
    fn to(self, mut row: Model) -> Model {
        let Self { name, tag, address, pair } = self;
        row.name = name.unwrap_or(row.name);
        row.tag = tag.unwrap_or(row.tag);
        if let Some(address) = address
            && !row.addresses.remove(&address)
        {
            row.addresses.insert(address);
        }
        match pair {
            Some((key, Some(value))) => drop(row.ids.insert(key, value)),
            Some((key, None)) => drop(row.ids.remove(&key)),
            None => {}
        }
        row
    }
}

/// The next step: a row, and its change or `None` for its deletion. `None` at the end of the bytes.
fn step(u: &mut Unstructured<'_>) -> Result<Option<(u8, Option<Edit>)>> {
    if u.is_empty() {
        return Ok(None);
    }
    let id = u.int_in_range(1..=4)?;
    if u.ratio(1, 5)? {
        return Ok(Some((id, None)));
    }
    let small = |u: &mut Unstructured<'_>| u.int_in_range(0..=5_u8);
    let edit = Edit {
        name: u.arbitrary::<bool>()?.then(|| small(u)).transpose()?,
        tag: if u.arbitrary()? {
            Some(u.arbitrary::<bool>()?.then(|| small(u)).transpose()?)
        } else {
            None
        },
        address: u.arbitrary::<bool>()?.then(|| small(u)).transpose()?,
        pair: if u.arbitrary()? {
            Some((small(u)?, u.arbitrary::<bool>()?.then(|| small(u)).transpose()?))
        } else {
            None
        },
    };
    Ok(Some((id, Some(edit))))
}

fn text(value: u8) -> String {
    format!("v{value}")
}

/// A set in the notation of RFC 7047 §5.1: a set with one element is written as the element.
fn set(elements: &BTreeSet<u8>) -> Value {
    match Vec::from_iter(elements).as_slice() {
        [one] => json!(text(**one)),
        all => json!(["set", all.iter().map(|element| text(**element)).collect::<Vec<_>>()]),
    }
}

fn map(pairs: impl IntoIterator<Item = (u8, u8)>) -> Value {
    json!([
        "map",
        pairs.into_iter().map(|(key, value)| [text(key), text(value)]).collect::<Vec<_>>()
    ])
}

fn tag(tag: Option<u8>) -> Value {
    tag.map_or(json!(["set", []]), |tag| json!(tag))
}

impl Model {
    fn whole(&self) -> Value {
        json!({"name": text(self.name), "tag": tag(self.tag), "addresses": set(&self.addresses), "ids": map(self.ids.clone())})
    }

    /// The columns in which `self` differs from `next`, with the old values that `update` reports.
    fn old_values(&self, next: &Self) -> Value {
        let mut columns = self.whole();
        let new = next.whole();
        columns
            .as_object_mut()
            .expect("an object")
            .retain(|column, value| new[column.as_str()] != *value);
        columns
    }

    /// The columns of `modify`: sets and maps as differences.
    fn difference(&self, next: &Self) -> Value {
        let mut columns = next.old_values(self);
        let fields = columns.as_object_mut().expect("an object");
        if let Some(addresses) = fields.get_mut("addresses") {
            *addresses =
                set(&self.addresses.symmetric_difference(&next.addresses).copied().collect());
        }
        if let Some(ids) = fields.get_mut("ids") {
            let gone = self.ids.iter().filter(|(key, _)| !next.ids.contains_key(key));
            let here = next.ids.iter().filter(|(key, value)| self.ids.get(key) != Some(value));
            *ids = map(gone.chain(here).map(|(key, value)| (*key, *value)));
        }
        columns
    }
}

impl From<&Model> for Port {
    fn from(row: &Model) -> Self {
        Self {
            name: text(row.name),
            tag: row.tag.map(i64::from),
            addresses: row.addresses.iter().copied().map(text).collect(),
            ids: row.ids.iter().map(|(key, value)| (text(*key), text(*value))).collect(),
        }
    }
}

/// The parameters of one update.
fn report(form: Form, id: u8, before: Option<&Model>, after: Option<&Model>) -> String {
    let what = match (form, before, after) {
        (Form::Rfc, Some(before), Some(after)) => {
            json!({"old": before.old_values(after), "new": after.whole()})
        }
        (Form::Rfc, before, after) => {
            let members = [("old", before), ("new", after)]
                .into_iter()
                .filter_map(|(name, row)| Some((name, row?.whole())));
            members.collect()
        }
        (_, None, Some(after)) => json!({"insert": after.whole()}),
        (_, Some(before), Some(after)) => json!({"modify": before.difference(after)}),
        (_, _, None) => json!({"delete": null}),
    };
    let tables = json!({"Port": {row_id(id).to_string(): what}});
    match form {
        Form::Rfc | Form::Conditional => json!([1, tables]).to_string(),
        Form::Since => json!([1, row_id(9).to_string(), tables]).to_string(),
    }
}
