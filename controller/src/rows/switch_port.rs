//! A port of a logical switch, as a feature describes it. Columns follow ovn-nb(5),
//! "Logical_Switch_Port TABLE".

use std::collections::BTreeMap;

use contract::{mac::Mac, ovn::REMOTE_PORT};
use ipnet::IpNet;
use ovsdb::Datum;

use crate::rows::{DesiredRow, Joins, Membership, Pairs, RowName, Table, Value};

/// Of `options`: the only chassis on which the port may be.
pub(crate) const REQUESTED_CHASSIS: &str = "requested-chassis";

/// A port of a logical switch.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchPort {
    pub switch: String,
    pub name: String,
    pub kind: Kind,
    /// The allowed sources of packets from the port, in the form of `addresses`; none allows any
    /// source.
    pub port_security: Option<String>,
    pub options: Pairs,
    pub external_ids: BTreeMap<&'static str, String>,
    /// The port groups that it belongs to.
    pub groups: Vec<RowName>,
    /// Those of them whose rules only allow: the port does not wait for them.
    pub allowing: Vec<RowName>,
}

/// What a port connects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An interface with these addresses: `MAC IP [IP]`.
    Interface { addresses: String },
    /// A port of a router.
    Router { port: String },
    /// A port of a router on a physical network, where it answers for this MAC address alone.
    Gateway { port: String, mac: Mac },
    /// A bridge of the node, by the name of its physical network. `vlan`: the tag of its packets.
    Localnet { network: &'static str, vlan: Option<u16> },
    /// A port of the same switch in another zone, with these addresses.
    Remote { addresses: String },
}

impl SwitchPort {
    /// A port without options, ids, groups and port security.
    pub fn new(switch: impl Into<String>, name: impl Into<String>, kind: Kind) -> Self {
        Self {
            switch: switch.into(),
            name: name.into(),
            kind,
            port_security: None,
            options: Pairs::default(),
            external_ids: BTreeMap::new(),
            groups: Vec::new(),
            allowing: Vec::new(),
        }
    }
}

impl From<SwitchPort> for DesiredRow {
    fn from(port: SwitchPort) -> Self {
        let SwitchPort {
            switch,
            name,
            kind,
            port_security,
            mut options,
            external_ids,
            groups,
            allowing,
        } = port;
        // Other programs may tag the packets of other ports.
        let tag =
            if let Kind::Localnet { vlan, .. } = &kind { Some(vlan.map(i64::from)) } else { None };
        let tag = tag.map(|tag| ("tag_request", Value::Datum(Datum::set(tag))));
        // ovn-nb(5): an empty type is the interface of a VM or container; the address `router`
        // stands for those of the router's port.
        let (kind, addresses) = match kind {
            Kind::Interface { addresses } => ("", addresses),
            Kind::Router { port } => {
                options.with.insert("router-port", port);
                ("router", "router".to_owned())
            }
            Kind::Gateway { port, mac } => {
                options.with.insert("router-port", port);
                // The router announces its own addresses, and not those of load balancers, of which
                // a cluster has thousands.
                options.with.insert("nat-addresses", "router".to_owned());
                options.with.insert("exclude-lb-vips-from-garp", "true".to_owned());
                ("router", mac.to_string())
            }
            Kind::Localnet { network, vlan: _ } => {
                options.with.insert("network_name", network.to_owned());
                ("localnet", "unknown".to_owned())
            }
            Kind::Remote { addresses } => (REMOTE_PORT, addresses),
        };
        let in_switch = Membership::of(Table::LogicalSwitch.row(switch), "ports");
        Self {
            id: Table::LogicalSwitchPort.row(name),
            columns: vec![
                ("type", Value::Datum(Datum::set([kind]))),
                ("addresses", Value::Datum(Datum::set([addresses]))),
                ("port_security", Value::Datum(Datum::set(port_security))),
                ("options", Value::pairs(options)),
                ("external_ids", Value::pairs(external_ids)),
            ]
            .into_iter()
            .chain(tag)
            .collect(),
            member_of: std::iter::once(in_switch)
                .chain(groups.into_iter().map(|of| Membership::of(of, "ports")))
                .chain(allowing.into_iter().map(|of| Membership {
                    joins: Joins::OnceThere,
                    ..Membership::of(of, "ports")
                }))
                .collect(),
            or_member_of: Vec::new(),
            or_columns: Vec::new(),
            needs: Vec::new(),
        }
    }
}

/// `MAC IP/LENGTH [IP/LENGTH]`: as upstream writes the addresses of a remote port. OVN ignores the
/// lengths.
pub(crate) fn port_networks(mac: Mac, networks: &[IpNet]) -> String {
    networks.iter().fold(mac.to_string(), |text, net| format!("{text} {net}"))
}

/// `MAC IP [IP]`, the form of a port's `addresses` and `port_security`.
pub(crate) fn port_addresses(mac: Mac, addresses: &[IpNet]) -> String {
    addresses.iter().fold(mac.to_string(), |text, net| format!("{text} {}", net.addr()))
}
