//! The control plane: Kubernetes objects in, rows of the OVN northbound database out. OVN distributes them.
//!
//! ```text
//! watches ─▶ Store ─▶ dirty keys ─▶ desired(key, &Store) ─▶ diff with Northbound ─▶ one transaction ─▶ done
//!              ▲         ▲                                           │                     │
//!              │         ├─ drift: a row has changed ────────────────┘                     │
//!              │         └─ refused: only the key at fault is retried ─────────────────────┘
//!              └─ annotations written ◀─ allocations
//! ```
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`config`] | [`config::ClusterConfig`]: settings that all nodes share | – | – |
//! | [`observation`] | of the store: [`observation::Observation`], a watch event; the kinds of objects | – | – |
//! | [`store`] | [`store::Store`]: the API server's objects, indexed | observations | itself |
//! | [`allocate`] | which subnets and addresses are in use, and which is next | – | itself |
//! | [`node_assignments`] | [`node_assignments::NodeAssignments`]: subnets and ids of nodes | observations | itself |
//! | [`doubt`] | safety brake: holds back a list that lacks many known objects | – | itself |
//! | [`cluster_id`] | the API server's cluster; the second look at a held list | API server | – |
//! | [`cluster_watch`] | [`cluster_watch::ClusterWatch`]: one watch per kind | API server | observations |
//! | [`trouble`] | why a pod has no address, or a node no subnet | – | – |
//! | [`key`] | [`key::Key`]: an owner of rows; [`key::Scope`]: how much of them a change concerns | – | – |
//! | [`desired`](mod@desired) | one pure function per feature: a key's desired rows | [`store`] | – |
//! | [`northbound`] | the replica of the database, indexed by name, holder and owner | database | – |
//! | `diff` | the edits that turn the existing rows into the desired ones | [`rows`], [`northbound`] | – |
//! | `commit` | edits of many keys as one transaction; the work queue of keys with their scopes; the key at fault | – | – |
//! | [`reconcile`] | [`Controller`]: the loop | all of the above | database |
//! | [`remove_node`] | removes one node's rows, once | [`northbound`], southbound database | the same |
//! | [`unidling`] | [`unidling::Unidling`]: connections to idled Services, as reports | southbound database | the same |
//! | [`resolver`] | [`resolver::Resolver`]: the addresses of names | DNS | observations |
//! | [`policy_reader`] | reads policies again for which there is room now | API server | observations |
//! | [`metrics`] | [`metrics::Metrics`]: counters and histograms | – | – |
//! | [`annotate`] | [`annotate::AnnotationWriter`]: annotations, status of policies | desired ones | API server |
//! | [`cluster_manager`] | the role that assigns subnets and ids to nodes | nodes | their annotations |
//! | [`csr_approver`] | [`csr_approver::CsrApprover`]: certificates of nodes' servers | API server | approvals |
//! | [`rows`] | [`rows::DesiredRow`]: a desired row, its columns and the sets it is in | – | – |
//!
//! Start, restart, reconnection, drift and steady state take one path: keys are dirty, their desired rows are
//! compared with the rows in the database, and the difference goes out in one transaction.

pub mod allocate;
pub mod annotate;
pub mod cluster_id;
pub mod cluster_manager;
pub mod cluster_watch;
mod commit;
pub mod config;
pub mod csr_approver;
pub mod dead_chassis;
pub mod desired;
mod diff;
pub mod doubt;
mod few;
pub mod frozen;
pub mod key;
pub mod metrics;
pub mod node_assignments;
pub mod northbound;
pub mod policy_reader;
pub mod reconcile;
pub mod remove_node;
pub mod resolver;
pub mod rows;
#[cfg(test)]
mod scripted;
pub mod store;
pub mod trouble;
pub mod unidling;

pub use reconcile::Controller;
pub use store::observation;
