//! The fields of a Namespace object that are kept.

use std::{collections::BTreeMap, sync::Arc};

use contract::namespace_annotation::{AclLogging, BadNamespaceAnnotation, Multicast};

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    pub uid: Arc<str>,
    pub labels: BTreeMap<String, String>,
    pub logging: AclLogging,
    pub multicast: Multicast,
    /// The first value of its annotations that cannot be used.
    pub unusable: Option<Box<BadNamespaceAnnotation>>,
}
