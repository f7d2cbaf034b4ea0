//! A translation of addresses by a logical router. Columns follow ovn-nb(5), "NAT TABLE".

use std::net::IpAddr;

use ipnet::IpNet;
use ovsdb::Datum;

use crate::rows::{DesiredRow, Membership, Table, Value, static_route::spelled};

/// What comes from `inside` leaves with the source `outside`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceNat {
    pub router: String,
    pub inside: IpNet,
    pub outside: IpAddr,
}

/// The value of the column `type`.
pub(crate) const SOURCE: &str = "snat";

/// Source ports of connections from the cluster: those that Linux gives to a host's own
/// connections, as upstream's. NodePorts (30000 to 32767) are not among them, so no connection from
/// a pod takes the number of one.
pub(crate) const PORTS: &str = "32768-60999";

impl From<SourceNat> for DesiredRow {
    fn from(SourceNat { router, inside, outside }: SourceNat) -> Self {
        let columns = vec![
            ("type", Value::Datum(Datum::set([SOURCE]))),
            ("external_ip", Value::Datum(Datum::set([outside.to_string()]))),
            ("logical_ip", Value::Datum(Datum::set([spelled(&inside)]))),
            ("external_port_range", Value::Datum(Datum::set([PORTS]))),
            ("options", Value::pairs([("stateless", "false".to_owned())])),
        ];
        let in_router = Membership::of(Table::LogicalRouter.row(&*router), "nat");
        Self {
            id: Table::Nat.row_within(router, &columns),
            columns,
            member_of: vec![in_router],
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs: Vec::new(),
        }
    }
}
