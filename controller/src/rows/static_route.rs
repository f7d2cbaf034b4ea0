//! A static route of a logical router. Columns follow ovn-nb(5), "Logical_Router_Static_Route
//! TABLE".

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use ovsdb::Datum;

use crate::rows::{DesiredRow, Membership, Table, Value};

/// A static route. Of several that match a packet, the one with the longest prefix decides, and a
/// route by destination before one by source of the same length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticRoute {
    pub router: String,
    pub prefix: IpNet,
    pub of: Of,
    pub via: IpAddr,
    /// The router's port that the next hop is behind; none where OVN can tell from the port's
    /// networks.
    pub port: Option<String>,
    pub external_ids: BTreeMap<&'static str, String>,
    pub spelling: Spelling,
}

/// How upstream spells a single address in this kind of route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// `100.64.0.3`
    Address,
    /// `100.64.0.3/32`
    WithLength,
}

/// Which address of a packet is compared with a route's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Source,
    Destination,
}

/// The value of the column `policy` for routes by source.
pub(crate) const BY_SOURCE: &str = "src-ip";

impl StaticRoute {
    /// A route to this destination.
    pub fn to(router: impl Into<String>, prefix: IpNet, via: IpAddr) -> Self {
        Self {
            router: router.into(),
            prefix,
            of: Of::Destination,
            via,
            port: None,
            external_ids: BTreeMap::new(),
            spelling: Spelling::Address,
        }
    }

    /// A route for packets from this source, whatever their destination.
    pub fn from(router: impl Into<String>, prefix: IpNet, via: IpAddr) -> Self {
        Self { of: Of::Source, ..Self::to(router, prefix, via) }
    }
}

impl From<StaticRoute> for DesiredRow {
    fn from(route: StaticRoute) -> Self {
        let StaticRoute { router, prefix, of, via, port, external_ids, spelling } = route;
        let prefix = match spelling {
            Spelling::Address => spelled(&prefix),
            Spelling::WithLength => prefix.trunc().to_string(),
        };
        let text = |text: String| Value::Datum(Datum::set([text]));
        let policy = match of {
            Of::Source => Some(BY_SOURCE),
            Of::Destination => None,
        };
        // An empty set of ids is not compared: other programs write theirs.
        let ids = (!external_ids.is_empty()).then(|| ("external_ids", Value::pairs(external_ids)));
        let columns = vec![
            ("ip_prefix", text(prefix)),
            ("nexthop", text(via.to_string())),
            ("policy", Value::Datum(Datum::set(policy))),
            ("output_port", Value::Datum(Datum::set(port))),
        ];
        let columns: Vec<_> = columns.into_iter().chain(ids).collect();
        let in_router = Membership::of(Table::LogicalRouter.row(&*router), "static_routes");
        Self {
            id: Table::StaticRoute.row_within(router, &columns),
            columns,
            member_of: vec![in_router],
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs: Vec::new(),
        }
    }
}

/// The network as upstream spells it: a single address without its prefix length.
pub(crate) fn spelled(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() {
        net.addr().to_string()
    } else {
        net.trunc().to_string()
    }
}
