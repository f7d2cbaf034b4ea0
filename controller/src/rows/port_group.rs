//! Port groups: of the pods that a policy is about, and of others.

use contract::{names::ClusterPolicyKey, ovn::ObjectId};

use crate::rows::{DesiredRow, RowName, Table, Value};

pub(crate) fn group_name(id: &ObjectId) -> RowName {
    Table::PortGroup.row_of(id)
}

pub(crate) fn group(id: &ObjectId) -> DesiredRow {
    DesiredRow {
        columns: vec![("external_ids", Value::pairs(id.external_ids()))],
        ..bare(group_name(id))
    }
}

/// The cluster's port group with this base name.
pub(crate) fn port_group(name: &str) -> RowName {
    Table::PortGroup.row_of(&ObjectId::cluster_port_group(name))
}

/// A row without columns beside its name.
pub(crate) fn bare(id: RowName) -> DesiredRow {
    DesiredRow {
        id,
        columns: Vec::new(),
        member_of: Vec::new(),
        or_member_of: Vec::new(),
        or_columns: Vec::new(),
        needs: Vec::new(),
    }
}

/// The groups of the policies that are about a pod.
pub(crate) fn cluster_policy_groups<'a>(
    policies: impl IntoIterator<Item = &'a ClusterPolicyKey>,
) -> Vec<RowName> {
    policies.into_iter().map(|key| group_name(&ObjectId::cluster_policy(key))).collect()
}
