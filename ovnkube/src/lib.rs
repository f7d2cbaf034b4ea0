//! The executable `ovnkube`: its options, its roles, and the lifecycle of a process. The work of a
//! role is in other packages: `server`, `controller`, `uplink`.
//!
//! ```text
//! arguments, file, environment ─▶ options ─▶ configurations ─▶ node: server, with control_plane: controller
//!                                                          ├─▶ control_plane: controller
//!                                                          └─▶ one task: node::cleanup, explain,
//!                                                              control_plane::remove_node
//! ```
//!
//! This is a library for its own tests and the fuzzer only; no other program links it. A module
//! uses only modules below it.
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`cli`] | [`cli::Invocation`]: the command, or else options | arguments | – |
//! | [`applied`] | `applied`: on how many nodes an object is in force | OVN | OVN: `nb_cfg` |
//! | [`node`] | the process of a node's server; `--cleanup-node` | [`options`], signals | as `server` |
//! | [`explain`] | `policy explain`: which policies let a pod connect to another | API server, OVN | – |
//! | [`bundle`] | `support-bundle`: an archive of what others read | the same | the archive |
//! | [`check`] | `check`: whether a machine is fit for a node | this machine, API server | – |
//! | [`connectivity`] | `connectivity test`: pods, Services and policies that are tested | API server | two namespaces of its own |
//! | [`probe`] | `probe`: what its pods run | a variable | its output |
//! | [`status`] | `status`: whether the network works | API server, OVN, this node | – |
//! | [`legacy`] | the commands of 2016 to 2018, by their own names | OVN, Open vSwitch | the same |
//! | [`trace`] | `trace`: where a packet ends, and why | API server, OVN, this node | – |
//! | [`hand_back`] | `hand-back`: rows that upstream does not know | OVN | removes them |
//! | [`zones`] | `zones migrate`: nodes on their way between zones | API server | an annotation |
//! | [`top`] | `top`: ports, rows and flows, live | OVN, this node | – |
//! | [`node_server`] | questions to this node's server | its socket | – |
//! | `node_pods` | the same to any node's, in its pod | API server | – |
//! | [`diagnose`] | `diagnose`: how far a pod's network is | API server, OVN, this node | – |
//! | `disk` | room on a disk | file systems | – |
//! | `file_end` | the end of a long file | the file | – |
//! | `hypervisor_sync` | which nodes have what the northbound database has | OVN | OVN: `nb_cfg` |
//! | `api_query` | questions to the API server, each with an end | API server | – |
//! | `ovn_query` | questions to OVN's databases, each with an end | OVN | – |
//! | [`findings`] | [`findings::Report`]: what a command has found, as text, JSON, YAML | – | – |
//! | [`options`] | [`options::Options`]: what the command line asks for | all sources of options | – |
//! | [`control_plane`] | the control plane's roles: their lifecycle | API server, OVN | OVN, annotations |
//! | [`endpoints`] | `/metrics`, `/healthz`, `/readyz` over TCP | [`metrics`], [`server::conditions`] | TCP |
//! | [`exporter`] | metrics of OVN and Open vSwitch | their sockets | – |
//! | [`ovs_exporter`] | `ovs-exporter`: those of Open vSwitch alone, served | [`exporter`] | TCP |
//! | [`metrics`] | [`metrics::Page`]: the text of `/metrics` | `/proc`, sizes of logs | – |
//! | [`roles`] | [`roles::Roles`]: the parts of the control plane in a process | – | – |
//! | [`process`] | what every process of this program has | signals | pidfile, log, systemd |

mod api_query;
pub mod applied;
pub mod bundle;
pub mod check;
pub mod cli;
pub mod connectivity;
pub mod control_plane;
pub mod diagnose;
mod disk;
pub mod endpoints;
pub mod explain;
pub mod exporter;
mod file_end;
pub mod findings;
pub mod hand_back;
mod hypervisor_sync;
pub mod legacy;
pub mod metrics;
pub mod node;
mod node_pods;
pub mod node_server;
pub mod options;
mod ovn_query;
pub mod ovs_exporter;
pub mod probe;
pub mod process;
pub mod roles;
pub mod status;
pub mod top;
pub mod trace;
pub mod zones;

pub(crate) use contract::error::chain;
