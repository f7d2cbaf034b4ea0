//! The rows of a set of addresses: one for each family of pods' addresses.

use std::net::IpAddr;

use contract::{
    definition::CustomKind,
    ovn::{self, ObjectId},
};
use kubeapi::services::Family;

use crate::{
    key::{PortIn, SetId},
    rows::{DesiredPart, DesiredRow, Piece, RowName, RowSet, Table, Value, port_group::bare},
    select::peer::{rule_of, rule_text},
    world::Store,
};

/// The rows of the set; none if no policy names it.
pub fn set(store: &Store, set: &SetId) -> RowSet {
    if !store.is_set(set) {
        return Vec::new();
    }
    let row = |family| {
        let ids = ("external_ids", Value::pairs(id(set, family).external_ids()));
        let addresses = || {
            let addresses =
                store.set_addresses(set).filter(|address| Family::of(address) == family);
            addresses.map(|address| address.to_string().into()).collect()
        };
        // Until a name has an answer, the addresses stay that the set has from before.
        let addresses =
            store.knows_addresses(set).then(|| ("addresses", Value::Elements(addresses())));
        DesiredRow {
            columns: [ids].into_iter().chain(addresses).collect(),
            ..bare(set_name(set, family))
        }
    };
    store.config.families().map(row).collect()
}

/// Whether the set has the address. None if there is no such set.
pub fn address(store: &Store, set: &SetId, address: IpAddr) -> Option<DesiredPart> {
    let family = Family::of(&address);
    let is_there = store.is_set(set)
        && store.knows_addresses(set)
        && store.config.families().any(|own| own == family);
    let text = address.to_string().into();
    let piece =
        if store.set_has(set, address) { Piece::Element(text) } else { Piece::NoElement(text) };
    is_there.then(|| DesiredPart { row: set_name(set, family), column: "addresses", piece })
}

/// The row of the set with the addresses of the family.
pub(crate) fn set_name(set: &SetId, family: Family) -> RowName {
    Table::AddressSet.row_of(&id(set, family))
}

fn id(set: &SetId, family: Family) -> ObjectId {
    let family = match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    };
    match set {
        SetId::Namespace(name) => ObjectId::address_set(ovn::NAMESPACE_SET, name, family),
        SetId::Pods(text) => match rule_of(text) {
            Some((kind, namespace, priority)) => {
                ObjectId::rule_set(kind, namespace, priority, family)
            }
            None => ObjectId::address_set(ovn::POD_SELECTOR_SET, text, family),
        },
        SetId::Port(name, protocol, number) => ObjectId::address_set(
            ovn::NAMED_PORT_SET,
            &format!("{name}:{protocol}:{number}"),
            family,
        ),
        // The name of a port has no slash.
        SetId::PortIn(port) => {
            let PortIn { namespace, name, protocol, number } = &**port;
            let name = format!("{namespace}/{name}:{protocol}:{number}");
            ObjectId::address_set(ovn::NAMED_PORT_SET, &name, family)
        }
        SetId::Name(name) => ObjectId::address_set(ovn::NAME_SET, name, family),
        SetId::Nodes(text) => ObjectId::address_set(ovn::NODE_SELECTOR_SET, text, family),
    }
}

/// The set in the ids of a row. `priority`: of the rule that it is of, if it is of one.
pub(crate) fn of_ids(owner_type: &str, name: &str, priority: Option<&str>) -> Option<SetId> {
    match owner_type {
        ovn::NAMESPACE_SET => {
            (name != ovn::HOST_NETWORK_NAMESPACE).then(|| SetId::Namespace(name.into()))
        }
        ovn::POD_SELECTOR_SET => Some(SetId::Pods(name.into())),
        ovn::NAME_SET => Some(SetId::Name(name.into())),
        ovn::NODE_SELECTOR_SET => Some(SetId::Nodes(name.into())),
        ovn::NAMED_PORT_SET => {
            let mut parts = name.splitn(3, ':');
            let (port, protocol, number) = (parts.next()?, parts.next()?, parts.next()?);
            let protocol = kubeapi::services::Protocol::ALL
                .into_iter()
                .find(|known| known.as_str() == protocol)?;
            let (namespace, port) = match port.split_once('/') {
                Some((namespace, port)) => (Some(namespace), port),
                None => (None, port),
            };
            Some(SetId::port(namespace, &port.into(), protocol, number.parse().ok()?))
        }
        _ => {
            let kind = CustomKind::ALL.into_iter().find(|kind| kind.as_str() == owner_type)?;
            Some(SetId::Pods(rule_text(kind, name, priority?).into()))
        }
    }
}
