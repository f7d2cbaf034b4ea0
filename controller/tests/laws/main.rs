//! The control plane's laws, on a real ovsdb-server with OVN's schema: see the head of each module.

#![expect(clippy::unwrap_used, reason = "the shared parts of tests fail by panicking")]

mod bad_input;
mod bad_policies;
mod bench;
mod closed;
mod cluster;
mod collisions;
mod conditions;
mod cost;
mod database;
mod denials;
mod dry_runs;
mod egress_firewalls;
mod expected;
mod first;
mod foreign_addresses;
mod gateways;
mod guards;
mod histories;
mod history;
mod hostile_policies;
mod idling;
mod leaving;
mod logical;
mod many_nodes;
mod multicast;
mod policies;
mod reference;
mod refusals;
mod running;
mod second_writer;
mod service_cost;
mod services;
mod static_pods;
mod templates;
mod unreadable_nodes;
mod world;
mod worst_namespace;
mod zones;
