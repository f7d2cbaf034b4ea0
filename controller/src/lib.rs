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
//! | [`selector`] | [`selector::LabelSelector`] | – | – |
//! | [`trouble`] | why a pod has no address, or a node no subnet | – | – |
//! | [`key`] | [`key::Key`]: what owns rows; which change dirties which keys | – | – |
//! | [`desired`](mod@desired) | one pure function per feature: what rows a key should have | [`store`] | – |
//! | [`rows`] | [`rows::DesiredRow`]: a row as it should be, its columns and whose set it belongs to | – | – |
//!
//! Start, restart, reconnection, drift and steady state are one path: keys are dirty, their desired rows are compared with what the
//! database holds, and the difference goes out in one transaction.

pub mod allocate;
pub mod config;
pub mod desired;
pub mod key;
pub mod observation;
pub mod rows;
pub mod selector;
pub mod store;
pub mod trouble;
