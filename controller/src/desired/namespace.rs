//! The rows of a namespace: the group of its pods, and the rules about their multicast. The group also has
//! the rules of the namespace's EgressFirewall (`desired/egress_firewall.rs`).

use contract::ovn::ObjectId;

use super::{
    multicast,
    policy::{group, group_name},
};
use crate::{
    rows::{RowName, RowSet},
    store::Store,
};

/// The rows of the namespace; none if nothing is about its pods.
pub fn namespace(store: &Store, namespace: &str) -> RowSet {
    if !store.has_namespace_group(namespace) {
        return Vec::new();
    }
    let group = group(&ObjectId::namespace_group(namespace));
    std::iter::once(group).chain(multicast::of_namespace(store, namespace)).collect()
}

/// The group of the namespace's pods, if something is about them.
pub(super) fn group_of(store: &Store, namespace: &str) -> Option<RowName> {
    store.has_namespace_group(namespace).then(|| group_name(&ObjectId::namespace_group(namespace)))
}
