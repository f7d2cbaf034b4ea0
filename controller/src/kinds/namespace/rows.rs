//! The rows of a namespace: the group of its pods, and the rules about their multicast. The group
//! also has the rules of the namespace's EgressFirewall (`kinds/egress_firewall/rows.rs`).

use contract::ovn::ObjectId;

use crate::{
    kinds::namespace::multicast_rows::of_namespace,
    rows::{RowSet, port_group::group},
    world::Store,
};

/// The rows of the namespace; none if nothing is about its pods.
pub fn namespace(store: &Store, namespace: &str) -> RowSet {
    if !store.has_namespace_group(namespace) {
        return Vec::new();
    }
    let group = group(&ObjectId::namespace_group(namespace));
    std::iter::once(group).chain(of_namespace(store, namespace)).collect()
}
