//! What is read of the southbound database.

use std::sync::Arc;

use contract::ovn::IS_REMOTE;
use ovsdb::{Pairs, Uuid};

ovsdb::table! {
    pub(super) struct ChassisRow in "Chassis" {
        pub(super) name: Arc<str>,
        pub(super) hostname: Box<str>,
        pub(super) encaps: Vec<Uuid>,
        pub(super) other_config: Pairs,
    }
}

ovsdb::table! {
    pub(super) struct EncapRow in "Encap" {
        pub(super) kind: Box<str> = "type",
        pub(super) ip: Box<str>,
        pub(super) chassis_name: Box<str>,
        pub(super) options: Pairs,
    }
}

ovsdb::table! {
    pub(super) struct PortBindingRow in "Port_Binding" {
        pub(super) logical_port: Box<str>,
        pub(super) chassis: Option<Uuid>,
    }
}

ovsdb::table! {
    pub(super) struct SbGlobalRow in "SB_Global" {
        pub(super) options: Pairs,
    }
}

impl SbGlobalRow {
    /// The zone of the database: ovn-northd copies it from the northbound one. None if nobody has
    /// named it there.
    pub(super) fn zone(&self) -> Option<&str> {
        self.options.get("name").filter(|name| !name.is_empty())
    }
}

impl ChassisRow {
    pub(super) fn is_remote(&self) -> bool {
        self.other_config.get(IS_REMOTE) == Some("true")
    }
}
