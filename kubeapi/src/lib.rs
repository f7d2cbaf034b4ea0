//! A client of Kubernetes' API server. Knows no OVN and no CNI, and nothing of what follows from what it reads.
//!
//! ```text
//! ApiServer ─▶ Connection ◀── Watch: everything, then each change
//!                  ▲ ▲ └────── Campaign ─▶ Leadership: whether this process acts
//!                  │ └──────── Teller: events
//!                  └────────── requests of other crates, over Connection::client
//! ```
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`connection`] | [`Connection`]: requests with the credentials of the moment | kubeconfig, tokens, certificates | – |
//! | [`trouble`] | [`Trouble`]: a failed request in an administrator's words | – | – |
//! | [`watch`] | [`watch::follow()`]: everything that the API server has, then changes, for ever; [`watch::Watch`]: the same as a task | API server | – |
//! | [`election`] | [`election::Leadership`]: whether this process is the one that acts | a Lease | the same |
//! | [`events`] | [`events::Teller`]: events for the owners of nodes and pods | notices | API server |
//! | [`patch`] | [`patch::Patch`]: a change of one object, and conditions for it | – | API server |
//! | [`object`] | [`object::Object`]: a node or a pod, by name | – | – |
//! | [`selector`] | [`selector::LabelSelector`] | – | – |
//! | [`metrics`] | [`metrics::Metrics`]: what is counted of the control plane's dealings with the API server | – | – |

pub mod connection;
pub mod election;
pub mod events;
pub mod metrics;
pub mod object;
pub mod patch;
#[cfg(test)]
mod scripted;
pub mod selector;
pub mod trouble;
pub mod watch;

pub use connection::{ApiServer, Authority, Cluster, Connection, Credential};
pub use trouble::{Kind, Trouble};
