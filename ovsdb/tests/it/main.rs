//! The client against a real `ovsdb-server`, and against servers that misbehave as no real one does on request.
//!
//! No privileges and no fixed ports: everything lives in a temporary directory, which is kept when a test fails.

#![expect(clippy::unwrap_used, reason = "also the parts that tests share fail by panicking")]

mod cluster;
mod connection;
mod daemon;
mod errors;
mod eventually;
mod examples;
mod faults;
mod lock;
mod monitor;
mod old_server;
mod pki;
mod proxy;
mod reconnect;
mod resume;
mod script;
mod ssl;
mod switch;
mod transaction;
