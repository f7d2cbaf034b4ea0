//! The rows of a pod: what OVN should know about it.
//!
//! Column values follow ovn-nb(5), "Logical_Switch_Port TABLE".

use std::collections::BTreeMap;

use contract::names::{IfaceId, Network, PodKey};
use ovsdb::Datum;

use crate::{
    rows::{DesiredRow, Membership, RowSet, Table, Value},
    store::{Phase, Store},
};

/// The rows of pod `key`: one logical switch port on its node's switch, or none.
///
/// None as long as the pod has no node in this zone, uses the node's own network, has ended, or has no address yet. Rows that it had
/// before go away by the same rule.
pub fn pod(store: &Store, key: &PodKey) -> RowSet {
    let Some(pod) = store.pod(key).filter(|pod| pod.phase == Phase::Active && !pod.host_network) else { return Vec::new() };
    let (Some(node), Some(assigned)) = (&pod.node, store.assigned(key)) else { return Vec::new() };
    if !store.is_local(node) {
        return Vec::new();
    }
    let addresses = assigned.addresses.iter().fold(assigned.mac.to_string(), |text, net| format!("{text} {}", net.addr()));

    let mut options = BTreeMap::from([
        // ovn-controller binds only an interface of this very pod, not of its predecessor of the same name.
        ("iface-id-ver", pod.uid.to_string()),
    ]);
    if store.config.requested_chassis {
        // Only this chassis may bind the port, so a stale sandbox elsewhere cannot take it over.
        options.insert("requested-chassis", node.to_string());
    }
    vec![DesiredRow {
        id: Table::LogicalSwitchPort.row(IfaceId::new(key, &Network::Default).as_str()),
        columns: vec![
            ("addresses", Value::Datum(Datum::set([addresses.clone()]))),
            ("port_security", Value::Datum(Datum::set([addresses]))),
            ("options", Value::Pairs { with: options, without: &["requested-chassis"] }),
            (
                "external_ids",
                Value::Pairs {
                    with: BTreeMap::from([("namespace", key.namespace().to_owned()), ("pod", "true".to_owned())]),
                    without: &[],
                },
            ),
        ],
        member_of: vec![Membership { of: Table::LogicalSwitch.row(node.to_string()), column: "ports" }],
    }]
}
