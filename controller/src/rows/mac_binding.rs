//! The MAC address of a neighbour of a router's port, without ARP. Columns follow ovn-nb(5),
//! "Static_MAC_Binding TABLE".

use std::net::IpAddr;

use contract::mac::Mac;
use ovsdb::Datum;

use crate::rows::{DesiredRow, Table, Value};

/// A neighbour, and its MAC address. It comes before one that was learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticMacBinding {
    pub router_port: String,
    pub neighbour: IpAddr,
    pub mac: Mac,
}

impl From<StaticMacBinding> for DesiredRow {
    fn from(StaticMacBinding { router_port, neighbour, mac }: StaticMacBinding) -> Self {
        let columns = vec![
            ("logical_port", Value::Datum(Datum::set([router_port]))),
            ("ip", Value::Datum(Datum::set([neighbour.to_string()]))),
            ("mac", Value::Datum(Datum::set([mac.to_string()]))),
            ("override_dynamic_mac", Value::Datum(Datum::set([true]))),
        ];
        Self {
            id: Table::StaticMacBinding.row_with(&columns),
            columns,
            member_of: Vec::new(),
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs: Vec::new(),
        }
    }
}
