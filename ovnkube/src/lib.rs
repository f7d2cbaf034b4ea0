//! The executable `ovnkube`: its options, its roles, and the lifecycle of a process. The work of a role is in
//! other packages: `server`, `controller`, `uplink`.
//!
//! ```text
//! arguments, file, environment ─▶ options ─▶ configurations ─▶ node: server, with control_plane: controller
//!                                                          ├─▶ control_plane: controller
//!                                                          └─▶ one task: node::cleanup, explain,
//!                                                              control_plane::remove_node
//! ```
//!
//! This is a library for its own tests and the fuzzer only; no other program links it. A module uses only
//! modules below it.
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`node`] | the process of a node's server; `--cleanup-node` | [`options`], signals | as `server` |
//! | [`explain`] | `policy explain`: which policies let a pod connect to another | API server, OVN | – |
//! | [`options`] | [`options::Options`]: what the command line asks for | all sources of options | – |
//! | [`control_plane`] | the control plane's roles: their lifecycle | API server, OVN | OVN, annotations |
//! | [`endpoints`] | `/metrics`, `/healthz`, `/readyz` over TCP | [`metrics`], [`server::conditions`] | TCP |
//! | [`metrics`] | [`metrics::Page`]: the text of `/metrics` | `/proc`, sizes of logs | – |
//! | [`roles`] | [`roles::Roles`]: the parts of the control plane in a process | – | – |
//! | [`process`] | what every process of this program has | signals | pidfile, log, systemd |

pub mod control_plane;
pub mod endpoints;
pub mod explain;
pub mod metrics;
pub mod node;
pub mod options;
pub mod process;
pub mod roles;

pub(crate) use contract::error::chain;
