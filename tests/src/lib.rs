//! What the contract tests stand on: the real executables, the real daemons of Open vSwitch and OVN in a temporary directory, and
//! scripted partners where a real one would behave too well. Everything runs as whoever starts the tests; nothing needs privileges,
//! and nothing of the machine is changed.
//!
//! | module | noun | what it is |
//! |---|---|---|
//! | [`node`] | [`Node`]: a directory with the places of one node | where all others are |
//! | [`scratch`] | [`Scratch`]: that directory | kept when a test fails |
//! | [`plugin`] | [`Plugin`]: one call of `ovn-k8s-cni-overlay`, and its [`Outcome`] | real executable |
//! | [`node_server`] | [`NodeServer`]: `ovnkube --init-node` | real executable |
//! | [`pod`] | [`Pod`]: a manifest in the server's directory | – |
//! | [`database`] | [`Database`]: Open vSwitch's | real ovsdb-server |
//! | [`ports`] | [`Port`]: rows as plugins leave them there | – |
//! | [`daemons`] | [`Daemons`]: ovs-vswitchd and ovn-controller | real, connected |
//! | [`namespace`] | [`Namespace`]: a network namespace that is not the caller's own | real, of an unprivileged user |
//! | [`scripted_server`] | [`ScriptedServer`]: upstream's server, and hostile ones | answers with given bytes |
//! | [`scripted_api`] | [`ScriptedApi`]: an API server of Kubernetes | answers what a test says, request by request |
//! | [`http`] | requests and answers on a unix socket, byte by byte | – |
//! | [`process`], [`program`], [`executable`] | child processes, the programs of this machine, the executables under test | – |
//! | [`eventually()`] | the wait for a state that nothing announces | – |
//!
//! Functions here panic where a test cannot go on, at the test's line.

pub mod daemons;
pub mod database;
mod eventually;
pub mod executable;
pub mod http;
pub mod namespace;
pub mod node;
pub mod node_server;
pub mod plugin;
pub mod pod;
pub mod ports;
pub mod process;
pub mod program;
pub mod scratch;
pub mod scripted_api;
pub mod scripted_server;

pub use daemons::Daemons;
pub use database::Database;
pub use eventually::eventually;
pub use namespace::Namespace;
pub use node::Node;
pub use node_server::NodeServer;
pub use plugin::{Outcome, Plugin};
pub use pod::Pod;
pub use ports::Port;
pub use scratch::Scratch;
pub use scripted_api::ScriptedApi;
pub use scripted_server::{Answer, ScriptedServer};
