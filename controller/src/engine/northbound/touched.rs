//! The effects of changed rows: which keys have to be compared again, and how much of their rows.

use std::{collections::HashMap, sync::Arc};

use ovsdb::{Atom, Change, ChangeKind, Datum};

use crate::{
    engine::northbound::foreign::AddressChanges,
    key::{Key, Part, Scope},
    rows::Table,
};

/// The effects of changed rows.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// The keys whose rows have to be compared again, and how much of them.
    pub(crate) keys: HashMap<Key, Scope>,
    /// Names that a row has got or lost, or whose row has other ids, in the order of the changes.
    pub(crate) renamed: Vec<(Table, Arc<str>)>,
    /// Whether a router came, went or has another name.
    pub(crate) routers: bool,
    /// Changed addresses of foreign ports on nodes' switches.
    pub(crate) addresses: AddressChanges,
}

impl Touched {
    pub(crate) fn touch(&mut self, key: Option<&Key>, scope: Scope) {
        let Some(key) = key else { return };
        match self.keys.get_mut(key) {
            Some(before) => before.extend(scope),
            None => drop(self.keys.insert(key.clone(), scope)),
        }
    }
}

/// The addresses that have come to large sets of the row or left them; none if anything else has
/// changed.
pub(crate) fn moved_addresses(table: Table, change: &Change) -> Option<Scope> {
    let columns = change.columns();
    if change.kind != ChangeKind::Modify
        || !columns.iter().all(|column| table.large_sets().contains(column))
    {
        return None;
    }
    let differences: Vec<&Datum> =
        columns.iter().map(|column| change.difference(column)).collect::<Option<_>>()?;
    scope(differences.into_iter().flat_map(Datum::atoms))
}

/// The scope of these addresses; none without any, or with one that cannot be read.
fn scope<'a>(mut atoms: impl Iterator<Item = &'a Atom>) -> Option<Scope> {
    let part = |atom: &Atom| Some(Scope::part(Part::Address(atom.as_str()?.parse().ok()?)));
    let first = part(atoms.next()?)?;
    atoms.try_fold(first, |mut all, atom| {
        all.extend(part(atom)?);
        Some(all)
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// A text that is no address is drift, which only a comparison of the whole set finds.
    #[test]
    fn only_addresses_are_parts() {
        let of = |texts: &[&str]| {
            scope(texts.iter().map(|text| Atom::from(*text)).collect::<Vec<_>>().iter())
        };
        let parts = |addresses: &[&str]| {
            let parts = addresses.iter().map(|text| Part::Address(text.parse::<IpAddr>().unwrap()));
            Some(Scope::Parts(Box::new(parts.collect())))
        };
        assert_eq!(of(&["10.0.0.1", "fd00::1"]), parts(&["10.0.0.1", "fd00::1"]));
        assert_eq!(of(&["10.0.0.1", "10.0.0.0/24"]), None);
        assert_eq!(of(&[]), None);
    }
}
