//! The control plane's laws, on a real ovsdb-server with OVN's schema: see the head of each module.

#![expect(clippy::unwrap_used, reason = "also the parts that tests share fail by panicking")]

mod cluster;
mod database;
mod first;
mod running;
