//! The namespaces, by their labels, and what their annotations say about policies and multicast.

use std::{collections::BTreeMap, sync::Arc};

use contract::namespace_annotation::{AclLogging, BadNamespaceAnnotation, Multicast};

use crate::select::selectors::Selectors;

/// The known namespaces. A namespace that is not known yet matches no selector, not even one
/// without requirements.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    pub(crate) known: BTreeMap<Arc<str>, Known>,
    pub(crate) selectors: Selectors<Arc<str>>,
}

/// What is kept of a namespace beside its labels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) uid: Arc<str>,
    pub(crate) logging: AclLogging,
    pub(crate) multicast: Multicast,
    pub(crate) unusable: Option<Box<BadNamespaceAnnotation>>,
}

impl Namespaces {
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Their names and UIDs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.known.iter().map(|(name, known)| (name, &known.uid))
    }

    pub(crate) fn uid(&self, name: &str) -> Option<&Arc<str>> {
        self.known.get(name).map(|known| &known.uid)
    }
}
