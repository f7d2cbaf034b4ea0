//! A static route of a logical router. Columns follow ovn-nb(5), "Logical_Router_Static_Route TABLE".

use std::net::IpAddr;

use ipnet::IpNet;
use ovsdb::Datum;

use super::{DesiredRow, Membership, Table, Value};

/// A route for packets with a source in `from`, whatever their destination. A route to the destination of the
/// same prefix length or a longer one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticRoute {
    pub router: &'static str,
    pub from: IpNet,
    pub via: IpAddr,
}

/// The value of the column `policy` for routes by source.
pub(crate) const BY_SOURCE: &str = "src-ip";

impl From<StaticRoute> for DesiredRow {
    fn from(StaticRoute { router, from, via }: StaticRoute) -> Self {
        let text = |text: String| Value::Datum(Datum::set([text]));
        let columns = vec![
            ("ip_prefix", text(from.trunc().to_string())),
            ("nexthop", text(via.to_string())),
            ("policy", text(BY_SOURCE.to_owned())),
        ];
        Self {
            id: Table::StaticRoute.row_within(router, &columns),
            columns,
            member_of: vec![Membership { of: Table::LogicalRouter.row(router), column: "static_routes" }],
            or_member_of: Vec::new(),
            needs: Vec::new(),
        }
    }
}
