//! What rows a key should have: one pure function per feature.
//!
//! No I/O, no clock, no chance, no knowledge of what was there before. This is where the product's meaning is.
//!
//! | key | rows | where it is decided |
//! |---|---|---|
//! | [`Key::Cluster`] | router, join switch, groups, meters | [`cluster`](mod@cluster) |
//! | [`Key::Node`] | switch, router port, management port | [`node`](mod@node) |
//! | [`Key::Pod`] | logical switch port | [`pod`](mod@pod) |

use contract::mac::Mac;
use ipnet::IpNet;

use crate::{key::Key, rows::RowSet, store::Store};

pub mod cluster;
pub mod node;
pub mod pod;

/// The rows that `key` should have now; none where there is no reason for any.
pub fn desired(store: &Store, key: &Key) -> RowSet {
    match key {
        Key::Cluster => cluster::cluster(store),
        Key::Node(name) => node::node(store, name),
        Key::Pod(pod) => pod::pod(store, pod),
    }
}

/// `MAC IP [IP]`, the form of a port's `addresses` and `port_security`.
fn port_addresses(mac: Mac, addresses: &[IpNet]) -> String {
    addresses.iter().fold(mac.to_string(), |text, net| format!("{text} {}", net.addr()))
}

#[cfg(test)]
mod tests;
