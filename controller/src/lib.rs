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
//! | [`store`] | [`store::Store`]: what the API server said, indexed | observations | itself |
//! | [`key`] | [`key::Key`]: what owns rows; which change dirties which keys | – | – |
//! | [`desired`](mod@desired) | one pure function per feature: what rows a key should have | [`store`] | – |
//! | [`observation`] | [`observation::Observation`]: what a watch saw | – | – |
//! | [`northbound`] | the copy of the database, found by name, holder and owner | database | – |
//! | `diff` | from the rows there should be and those there are to edits | [`rows`], [`northbound`] | – |
//! | `commit` | edits of many keys as one transaction; which keys are next; whose fault a refusal is | – | – |
//! | [`reconcile`] | [`Controller`]: the loop | all of the above | database |
//! | [`lead`] | [`lead::Leadership`]: whether this process may write | – | – |
//! | [`metrics`] | [`metrics::Metrics`]: what is counted and timed | – | – |
//! | [`rows`] | [`rows::DesiredRow`]: a row as it should be, its columns and whose set it belongs to | – | – |
//!
//! Start, restart, reconnection, drift and steady state are one path: keys are dirty, their desired rows are compared with what the
//! database holds, and the difference goes out in one transaction.

mod commit;
pub mod config;
pub mod desired;
mod diff;
pub mod key;
pub mod lead;
pub mod metrics;
pub mod northbound;
pub mod observation;
pub mod reconcile;
pub mod rows;
pub mod store;

pub use reconcile::Controller;
