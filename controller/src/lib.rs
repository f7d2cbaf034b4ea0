//! The control plane: Kubernetes objects in, rows of the OVN northbound database out. OVN distributes them.
//!
//! ```text
//! watches ─▶ Store ─▶ dirty keys ─▶ desired(key, &Store) ─▶ diff with Northbound ─▶ one transaction ─▶ outcome
//!              ▲                                                   │                                  ok: done
//!              └─ annotations written ◀─ allocations               └─ drift: the row's key is dirty   refused: that key alone is retried
//! ```
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`config`] | [`config::ClusterConfig`]: what the options say about the cluster | – | – |
//! | [`observation`] | [`observation::Observation`]: what a watch saw | – | – |
//! | [`store`] | [`store::Store`]: what the API server said, indexed | observations | itself |
//! | [`allocate`] | what the cluster manager gives to nodes, and how addresses are given to pods | [`store`]'s nodes | itself |
//! | [`doubt`] | whether a list that lacks much is believed | – | itself |
//! | [`cluster_id`] | which cluster an API server is; the second look at what is doubted | API server | – |
//! | [`cluster_watch`] | [`cluster_watch::ClusterWatch`]: one watch of each kind, for one party or for two | API server | observations |
//! | [`trouble`] | why a pod has no address, or a node no subnet | – | – |
//! | [`key`] | [`key::Key`]: what owns rows; which change dirties which keys | – | – |
//! | [`desired`](mod@desired) | one pure function per feature: what rows a key should have | [`store`] | – |
//! | [`northbound`] | the copy of the database, found by name, holder and owner | database | – |
//! | `diff` | from the rows there should be and those there are to edits | [`rows`], [`northbound`] | – |
//! | `commit` | edits of many keys as one transaction; which keys are next; whose fault a refusal is | – | – |
//! | [`reconcile`] | [`Controller`]: the loop | all of the above | database |
//! | [`remove_node`] | one node's rows leave, once | [`northbound`], southbound database | the same |
//! | [`metrics`] | [`metrics::Metrics`]: what is counted and timed | – | – |
//! | [`annotate`] | [`annotate::Writing`]: annotations of nodes and pods | wishes | API server |
//! | [`cluster_manager`] | the role that gives nodes what they need | nodes | their annotations |
//! | [`rows`] | [`rows::DesiredRow`]: a row as it should be, its columns and whose set it belongs to | – | – |
//!
//! Start, restart, reconnection, drift and steady state are one path: keys are dirty, their desired rows are compared with what the
//! database holds, and the difference goes out in one transaction.

pub mod allocate;
pub mod annotate;
pub mod cluster_id;
pub mod cluster_manager;
pub mod cluster_watch;
mod commit;
pub mod config;
pub mod desired;
mod diff;
pub mod doubt;
pub mod key;
pub mod metrics;
pub mod northbound;
pub mod observation;
pub mod reconcile;
pub mod remove_node;
pub mod rows;
#[cfg(test)]
mod scripted;
pub mod store;
pub mod trouble;

pub use reconcile::Controller;
