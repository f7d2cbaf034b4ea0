//! Every option, once. Command line, file, help, manual, completion and `--print-config` are made
//! of this table.
//!
//! Names, keys and defaults are those of OVN-Kubernetes, from the Python programs of 2016 on.
//! Options that only this project has follow their style.

use super::spec::Spec;

macro_rules! options {
    ($group:expr; $($id:ident = $spec:expr;)*) => {
        $(pub(in crate::options) static $id: Spec = $spec.under($group);)*
        pub(super) static ALL: &[&Spec] = &[$(&$id),*];
    };
}

pub(super) mod cluster;
pub(super) mod cni;
pub(super) mod control_plane;
pub(super) mod databases;
pub(super) mod endpoints;
pub(super) mod gateway;
pub(super) mod kubernetes;
pub(super) mod later;
pub(super) mod logs;
pub(super) mod node;
pub(super) mod open_vswitch;
pub(super) mod roles;

/// The groups, in the order of the manual.
static GROUPS: [&[&Spec]; 12] = [
    roles::ALL,
    kubernetes::ALL,
    node::ALL,
    gateway::ALL,
    cni::ALL,
    open_vswitch::ALL,
    databases::ALL,
    cluster::ALL,
    control_plane::ALL,
    logs::ALL,
    endpoints::ALL,
    later::ALL,
];

/// Every option, in the order of the manual.
pub fn all() -> impl Iterator<Item = &'static Spec> {
    GROUPS.iter().copied().flatten().copied()
}
