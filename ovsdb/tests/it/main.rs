//! The client against a real `ovsdb-server`, and against scripted servers that misbehave.
//!
//! No privileges and no fixed ports: all files are in a temporary directory, which is kept when a
//! test fails.

#![expect(clippy::unwrap_used, reason = "shared parts of the tests also fail by panicking")]

mod bootstrap;
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
mod readers;
mod reconnect;
mod resume;
mod script;
mod ssl;
mod switch;
mod transaction;
