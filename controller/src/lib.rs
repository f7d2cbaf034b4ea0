//! The control plane: Kubernetes objects in, rows of the OVN northbound database out. OVN
//! distributes them.
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
//! | [`watch_event`] | [`watch_event::WatchEvent`]; the kinds that are watched | – | – |
//! | [`world`] | [`world::Store`]: the API server's objects, indexed | watch events | itself |
//! | [`kinds`] | a folder for each kind of object: what it is, what an event changes, its desired rows | [`world`] | [`world`] |
//! | [`select`] | what matches what: labels, selectors, sets of addresses, names of the DNS | [`world`], DNS | [`world`] |
//! | [`object`] | what all kinds share while they are read: metadata, specification, price | – | – |
//! | [`custom`] | kinds of which a namespace has one object: registry, status | – | – |
//! | [`effects`] | what changes have caused, until it is handed out | – | itself |
//! | [`status_writeback`] | the status last sent for an object, and whether its rows are there | – | itself |
//! | [`problem`] | a problem of an object, worded for an event | – | – |
//! | [`allocate`] | which subnets and addresses are in use, and which is next | – | itself |
//! | [`node_assignments`] | [`node_assignments::NodeAssignments`]: subnets and ids of nodes | watch events | itself |
//! | [`safety_brake`] | holds back a list that lacks many known objects | – | itself |
//! | [`cluster_id`] | the API server's cluster; the second look at a held list | API server | – |
//! | [`cluster_watch`] | [`cluster_watch::ClusterWatch`]: one watch per kind | API server | watch events |
//! | [`key`] | [`key::Key`]: an owner of rows; [`key::Scope`]: how much of them a change concerns | – | – |
//! | [`engine`] | replica of the database, differences, transactions, and [`Controller`]: the loop | all of the above | database |
//! | [`legacy`] | [`legacy::Init`]: the rows of `ovn-k8s-overlay` of 2018 | [`engine`] | database |
//! | [`remote_chassis`] | chassis of nodes of other zones | [`tunnels`] | southbound database |
//! | `edit_pauses` | pauses between edits that others cause again and again | – | itself |
//! | [`remove_node`] | removes one node's rows, once | [`engine`], southbound database | the same |
//! | [`tunnels`] | where the tunnels to nodes of other zones end | – | – |
//! | [`unidling`] | [`unidling::Unidling`]: connections to idled Services, as reports | southbound database | the same |
//! | [`policy_reader`] | reads policies again for which there is room now | API server | watch events |
//! | [`metrics`] | [`metrics::Metrics`]: counters and histograms | – | – |
//! | [`annotate`] | [`annotate::AnnotationWriter`]: annotations, status of policies | desired ones | API server |
//! | [`cluster_manager`] | the role that assigns subnets and ids to nodes | nodes | their annotations |
//! | [`csr_approver`] | [`csr_approver::CsrApprover`]: certificates of nodes' servers | API server | approvals |
//! | [`rows`] | [`rows::DesiredRow`]: a desired row, its columns and the sets it is in | – | – |
//!
//! Start, restart, reconnection, drift and steady state take one path: keys are dirty, their
//! desired rows are compared with the rows in the database, and the difference goes out in one
//! transaction.

pub mod allocate;
pub mod annotate;
pub mod cluster_id;
pub mod cluster_manager;
pub mod cluster_watch;
pub mod config;
pub mod csr_approver;
pub mod custom;
pub mod dead_chassis;
mod edit_pauses;
pub mod effects;
pub mod engine;
mod few;
pub mod fragment_ports;
pub mod frozen;
pub mod key;
pub mod kinds;
pub mod legacy;
pub mod metrics;
pub mod node_assignments;
pub mod object;
pub mod policy_reader;
pub mod problem;
pub mod remote_chassis;
pub mod remove_node;
pub mod rows;
pub mod safety_brake;
#[cfg(test)]
mod scripted;
pub mod select;
pub mod status_writeback;
pub mod tunnels;
pub mod unidling;
pub mod watch_event;
pub mod world;

pub use engine::reconcile::Controller;
