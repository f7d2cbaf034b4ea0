//! What rows a key should have: one pure function per feature.
//!
//! No I/O, no clock, no randomness, no knowledge of earlier rows. The meaning of the product is here.
//!
//! | key | rows | where it is decided |
//! |---|---|---|
//! | [`Key::Cluster`] | router, join switch, groups, meters | [`cluster`](mod@cluster) |
//! | [`Key::Node`] | switch, router port, management port | [`node`](mod@node) |
//! | [`Key::Gateway`] | gateway router, external switch, ways to them | [`gateway`](mod@gateway) |
//! | [`Key::SourceNat`] | the translation of a pod's address | [`gateway`](mod@gateway) |
//! | [`Key::Isolation`], [`Key::Policy`] | port groups with ACLs | [`policy`](mod@policy) |
//! | [`Key::ClusterPolicy`] | a port group with ACLs | [`cluster_policy`](mod@cluster_policy) |
//! | [`Key::Namespace`] | the port group of a namespace, ACLs about its multicast | [`namespace`](mod@namespace) |
//! | [`Key::EgressFirewall`] | ACLs of that group | [`egress_firewall`](mod@egress_firewall) |
//! | [`Key::Set`] | address sets | [`set`](mod@set) |
//! | [`Key::Pod`] | logical switch port | [`pod`](mod@pod) |
//! | [`Key::Service`] | load balancers | [`service`](mod@service) |
//! | [`Key::Chassis`] | variables of templates | [`templates`](mod@templates) |

use contract::mac::Mac;
use ipnet::IpNet;

use crate::{
    key::{Key, Part},
    rows::{DesiredPart, RowSet},
    store::Store,
};

pub mod cluster;
pub mod cluster_policy;
pub mod egress_firewall;
pub mod gateway;
mod matching;
mod multicast;
pub mod namespace;
pub mod node;
pub mod pod;
pub mod policy;
mod ports;
pub mod service;
pub mod set;
pub mod templates;
pub(crate) mod tiers;

/// The rows that `key` should have now; empty if it should have none.
pub fn desired(store: &Store, key: &Key) -> RowSet {
    match key {
        Key::Cluster => cluster::cluster(store),
        Key::Node(name) => node::node(store, name),
        Key::Gateway(name) => gateway::gateway(store, name),
        Key::SourceNat(of) => gateway::of_pod(store, &of.node, of.address),
        Key::Isolation(namespace) => policy::isolation(store, namespace),
        Key::Set(id) => set::set(store, id),
        Key::Policy(key) => policy::policy(store, key),
        Key::ClusterPolicy(key) => cluster_policy::cluster_policy(store, key),
        Key::Namespace(name) => namespace::namespace(store, name),
        Key::EgressFirewall(namespace) => egress_firewall::egress_firewall(store, namespace),
        Key::Pod(pod) => pod::pod(store, pod),
        Key::Service(key) => service::service(store, key),
        Key::Chassis(name) => templates::templates(store, name),
    }
}

/// What one part of the rows of `key` should be now, or that it should not be. Together, the parts are the
/// [`Value::Elements`](crate::rows::Value::Elements) and [`Value::Entries`](crate::rows::Value::Entries) of
/// [`desired`]. None if the key has no such part: then it is compared as a whole.
pub fn desired_part(store: &Store, key: &Key, part: &Part) -> Option<DesiredPart> {
    match (key, part) {
        (Key::Set(id), Part::Address(address)) => return set::address(store, id, *address),
        (_, Part::Address(_) | Part::Entry(_)) => {}
    }
    match key {
        // Their values are small, or have no such part.
        Key::Cluster
        | Key::Node(_)
        | Key::Gateway(_)
        | Key::SourceNat(_)
        | Key::Isolation(_)
        | Key::Set(_)
        | Key::Policy(_)
        | Key::ClusterPolicy(_)
        | Key::Namespace(_)
        | Key::EgressFirewall(_)
        | Key::Pod(_)
        | Key::Chassis(_) => None,
        // What has to be compared follows from the Service's ports as a whole, in some microseconds.
        Key::Service(_) => None,
    }
}

/// `MAC IP [IP]`, the form of a port's `addresses` and `port_security`.
fn port_addresses(mac: Mac, addresses: &[IpNet]) -> String {
    addresses.iter().fold(mac.to_string(), |text, net| format!("{text} {}", net.addr()))
}

#[cfg(test)]
mod tests;
