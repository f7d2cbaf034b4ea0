//! The versions in which kinds that an administrator defines were found, for requests about single
//! objects.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use contract::definition::Definition;

/// By resource.
#[derive(Debug, Default)]
pub(super) struct Versions(Mutex<BTreeMap<String, &'static str>>);

impl Versions {
    pub(super) fn of(&self, definition: &Definition) -> &'static str {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(&definition.resource()).copied().unwrap_or_else(|| definition.newest())
    }

    pub(super) fn found(&self, definition: &Definition, version: &'static str) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(definition.resource(), version);
    }
}
