//! The executable `ovnkube --init-node`, as seen by a plugin, an administrator and an ill-behaved
//! program. Needs no privileges.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "node/exposition.rs"]
mod exposition;
#[path = "node/lab.rs"]
mod lab;

#[path = "node/add.rs"]
mod add;
#[path = "node/api_server.rs"]
mod api_server;
#[path = "node/caller.rs"]
mod caller;
#[path = "node/endpoints.rs"]
mod endpoints;
#[path = "node/kernel.rs"]
mod kernel;
#[path = "node/life.rs"]
mod life;
#[path = "node/release.rs"]
mod release;
#[path = "node/start.rs"]
mod start;
