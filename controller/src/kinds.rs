//! The kinds of objects, and what rows a key should have: one pure function per feature.
//!
//! A kind's folder has up to six files: `wire` (the API's spelling), `object` (what is kept of
//! one), `state` (all of them, indexed), `changes` and `fanout` (what an event changes, and which
//! keys it concerns), `problem` (what an event on the object says), `rows` (its desired rows). No
//! kind needs another one but its `object`; what it has to know of others it asks the [`Store`].
//!
//! Functions of rows: no I/O, no clock, no randomness, no knowledge of earlier rows. The meaning of
//! the product is here.
//!
//! | key | rows | where it is decided |
//! |---|---|---|
//! | [`Key::Cluster`] | router, join switch, groups, meters | [`cluster::rows`] |
//! | [`Key::Node`] | switch, router port, management port | [`node::rows`] |
//! | [`Key::Gateway`] | gateway router, external switch, ways to them | [`node::gateway_rows`] |
//! | [`Key::Transit`] | port on the transit switch, ways to other zones | [`node::transit_rows`] |
//! | [`Key::SourceNat`] | the translation of a pod's address | [`node::gateway_rows`] |
//! | [`Key::Isolation`], [`Key::Policy`] | port groups with ACLs | [`network_policy::rows`] |
//! | [`Key::ClusterPolicy`] | a port group with ACLs | [`cluster_policy::rows`] |
//! | [`Key::Namespace`] | the port group of a namespace, ACLs about its multicast | [`namespace::rows`] |
//! | [`Key::Custom`] of an EgressFirewall | ACLs of that group | [`egress_firewall::rows`] |
//! | the same of an EgressQoS | QoS of all nodes' switches | [`egress_qos::rows`] |
//! | [`Key::Set`] | address sets | [`set_rows`] |
//! | [`Key::Pod`] | logical switch port | [`pod::rows`] |
//! | [`Key::Service`] | load balancers | [`service::rows`] |
//! | [`Key::Chassis`] | variables of templates | [`service::templates`] |

use crate::{
    custom::registry::of_kind,
    key::{Key, Part},
    rows::{DesiredPart, RowSet},
    select::set_rows,
    world::{Store, custom::CustomChanges as _},
};

pub mod cluster;
pub mod cluster_policy;
pub mod egress_firewall;
pub mod egress_qos;
pub mod namespace;
pub mod network_policy;
pub mod node;
pub mod pod;
pub mod service;

/// The rows that `key` should have now; empty if it should have none.
pub fn desired(store: &Store, key: &Key) -> RowSet {
    match key {
        Key::Cluster => cluster::rows::cluster(store),
        Key::Node(name) => node::rows::node(store, name),
        Key::Gateway(name) => node::gateway_rows::gateway(store, name),
        Key::Transit(name) => node::transit_rows::transit(store, name),
        Key::SourceNat(of) => node::gateway_rows::of_pod(store, &of.node, of.address),
        Key::Isolation(namespace) => network_policy::rows::isolation(store, namespace),
        Key::Set(id) => set_rows::set(store, id),
        Key::Policy(key) => network_policy::rows::policy(store, key),
        Key::ClusterPolicy(key) => cluster_policy::rows::cluster_policy(store, key),
        Key::Namespace(name) => namespace::rows::namespace(store, name),
        Key::Custom(of) => of_kind!(of.kind, K => K::rows(store, &of.namespace)),
        Key::Pod(pod) => pod::rows::pod(store, pod),
        Key::Service(key) => service::rows::service(store, key),
        Key::Chassis(name) => service::templates::templates(store, name),
    }
}

/// What one part of the rows of `key` should be now, or that it should not be. Together, the parts
/// are the [`Value::Elements`](crate::rows::Value::Elements) and
/// [`Value::Entries`](crate::rows::Value::Entries) of [`desired`]. None if the key has no such
/// part: then it is compared as a whole.
pub fn desired_part(store: &Store, key: &Key, part: &Part) -> Option<DesiredPart> {
    match (key, part) {
        (Key::Set(id), Part::Address(address)) => return set_rows::address(store, id, *address),
        (_, Part::Address(_) | Part::Entry(_)) => {}
    }
    match key {
        // Their values are small, or have no such part.
        Key::Cluster
        | Key::Node(_)
        | Key::Gateway(_)
        | Key::Transit(_)
        | Key::SourceNat(_)
        | Key::Isolation(_)
        | Key::Set(_)
        | Key::Policy(_)
        | Key::ClusterPolicy(_)
        | Key::Namespace(_)
        | Key::Custom(_)
        | Key::Pod(_)
        | Key::Chassis(_) => None,
        // What has to be compared follows from the Service's ports as a whole, in some
        // microseconds.
        Key::Service(_) => None,
    }
}

#[cfg(test)]
mod tests;
