//! A port of a logical router, and the chassis that it is pinned to. Columns follow ovn-nb(5),
//! "Logical_Router_Port TABLE".

use contract::{mac::Mac, ovn};
use ipnet::IpNet;
use ovsdb::Datum;

use crate::rows::{DesiredRow, Membership, Pairs, Table, Value};

/// A port of a logical router.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterPort {
    pub router: String,
    pub name: String,
    pub mac: Mac,
    /// The router's addresses on the port, with the prefix lengths of the attached networks.
    pub networks: Vec<IpNet>,
    pub options: Pairs,
    pub external_ids: Pairs,
}

/// The chassis that a router's port is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayChassis {
    pub router_port: String,
    pub chassis: String,
}

impl From<RouterPort> for DesiredRow {
    fn from(port: RouterPort) -> Self {
        let RouterPort { router, name, mac, networks, options, external_ids } = port;
        let ids = Some(external_ids).filter(|ids| *ids != Pairs::default());
        let ids = ids.map(|ids| ("external_ids", Value::pairs(ids)));
        Self {
            id: Table::LogicalRouterPort.row(name),
            columns: vec![
                ("mac", Value::Datum(Datum::set([mac.to_string()]))),
                ("networks", Value::Datum(Datum::set(networks.iter().map(IpNet::to_string)))),
                ("options", Value::pairs(options)),
            ]
            .into_iter()
            .chain(ids)
            .collect(),
            member_of: vec![Membership::of(Table::LogicalRouter.row(router), "ports")],
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs: Vec::new(),
        }
    }
}

impl From<GatewayChassis> for DesiredRow {
    fn from(GatewayChassis { router_port, chassis }: GatewayChassis) -> Self {
        Self {
            id: Table::GatewayChassis.row(ovn::gateway_chassis(&router_port, &chassis)),
            columns: vec![
                ("chassis_name", Value::Datum(Datum::set([chassis]))),
                // With a single chassis the priority has no effect; this is upstream's value.
                ("priority", Value::Datum(Datum::set([1_i64]))),
            ],
            member_of: vec![Membership::of(
                Table::LogicalRouterPort.row(router_port),
                "gateway_chassis",
            )],
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs: Vec::new(),
        }
    }
}
