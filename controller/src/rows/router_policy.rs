//! A policy of a logical router, which decides before the routes. Columns follow ovn-nb(5),
//! "Logical_Router_Policy TABLE".

use std::net::IpAddr;

use ovsdb::Datum;

use crate::rows::{DesiredRow, Membership, Table, Value};

/// A policy that sends packets to another next hop than the routes would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterPolicy {
    pub router: &'static str,
    /// The matching policy with the highest priority decides.
    pub priority: i64,
    /// In OVN's expression language, ovn-sb(5) "Logical_Flow TABLE".
    pub matching: String,
    pub via: IpAddr,
}

/// The value of the column `action` for such policies.
pub(crate) const REROUTE: &str = "reroute";

impl From<RouterPolicy> for DesiredRow {
    fn from(RouterPolicy { router, priority, matching, via }: RouterPolicy) -> Self {
        let columns = vec![
            ("priority", Value::Datum(Datum::set([priority]))),
            ("match", Value::Datum(Datum::set([matching]))),
            ("action", Value::Datum(Datum::set([REROUTE]))),
            ("nexthops", Value::Datum(Datum::set([via.to_string()]))),
        ];
        Self {
            id: Table::RouterPolicy.row_within(router, &columns),
            columns,
            member_of: vec![Membership::of(Table::LogicalRouter.row(router), "policies")],
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs: Vec::new(),
        }
    }
}
