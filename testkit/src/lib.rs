//! What every test needs: the real executables, the real daemons of Open vSwitch and OVN in a
//! temporary directory, and scripted peers where a real one cannot be made to misbehave. Everything
//! runs as the user that starts the tests, needs no privileges, and changes nothing on the machine.
//!
//! A dev-dependency of the packages under test, so it needs none of them but `contract`. `ovsdb`
//! has small copies of its own: its tests are in the package that it can be published as, without
//! paths to others.
//!
//! | module | noun | what it is |
//! |---|---|---|
//! | [`node`] | [`Node`]: a directory with the paths of one node | used by all others |
//! | [`scratch`] | [`Scratch`]: that directory | kept when a test fails |
//! | [`plugin`] | [`Plugin`]: one call of `ovn-k8s-cni-overlay`, and its [`Outcome`] | real executable |
//! | [`node_server`] | [`NodeServer`]: `ovnkube --init-node` | real executable |
//! | [`pod`] | [`Pod`]: a manifest in the server's directory | – |
//! | [`database`] | [`Database`]: Open vSwitch's database | real ovsdb-server |
//! | [`ports`] | [`Port`]: rows as plugins write them | – |
//! | [`daemons`] | [`Daemons`]: ovs-vswitchd and ovn-controller | real, connected |
//! | [`namespace`] | [`Namespace`]: a separate network namespace | real, of an unprivileged user |
//! | [`scripted_server`] | [`ScriptedServer`]: upstream's or a hostile server; [`scripted_server::serve`] | answers given bytes, or what a closure says |
//! | [`scripted_api`] | [`ScriptedApi`]: a Kubernetes API server | answers each request as the test says |
//! | [`proxy`] | [`proxy::Proxy`]: passes bytes on to a real server | injects faults, shows messages |
//! | [`http`] | requests and answers on a unix socket | by hyper's client, and byte by byte |
//! | [`socket`] | addresses of unix sockets and TCP | – |
//! | [`process`], [`command`] | child processes; commands that run to their end | – |
//! | [`program`], [`executable`] | installed programs; the programs under test, and tools | – |
//! | [`preload`] | libraries that replace calls of the C library in a process | built on demand |
//! | [`eventually()`], [`until`] | waiting for a state that is not announced by an event | panics, or returns its error |
//! | [`let_pass`] | waiting for so long | – |
//!
//! If a test cannot go on, these functions panic with the test's line as location.

pub mod command;
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
pub mod preload;
pub mod process;
pub mod program;
pub mod proxy;
pub mod scratch;
pub mod scripted_api;
pub mod scripted_server;
pub mod socket;

pub use daemons::Daemons;
pub use database::Database;
pub use eventually::{eventually, let_pass, until};
pub use namespace::Namespace;
pub use node::Node;
pub use node_server::NodeServer;
pub use plugin::{Outcome, Plugin};
pub use pod::Pod;
pub use ports::Port;
pub use scratch::Scratch;
pub use scripted_api::ScriptedApi;
pub use scripted_server::{Answer, ScriptedServer};
