//! A client of the Kubernetes API server: credentials, list and watch, leader election, events,
//! patches. It knows neither OVN nor CNI, and does not act on what it reads.
//!
//! ```text
//! ApiServer ─▶ Connection ◀── Watch: a list, then each change
//!                  ▲ ▲ └────── LeaderElector ─▶ Leadership: whether this process leads
//!                  │ └──────── Recorder: events
//!                  └────────── requests of other crates, over Connection::client
//! ```
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | [`connection`] | [`Connection`]: requests with current credentials | kubeconfig, tokens, PEM | – |
//! | [`trouble`] | [`Trouble`]: why a request failed, for an administrator | – | – |
//! | [`discovery`] | [`discovery::Served`]: the version of a kind that an administrator defines | API server | – |
//! | [`watch`] | [`watch::follow()`]: list, then watch; [`watch::Watch`]: as a task | API server | – |
//! | [`election`] | [`election::Leadership`]: whether this process is the leader | a Lease | the same |
//! | [`events`] | [`events::Recorder`]: the event recorder, for nodes and pods | – | API server |
//! | [`exec`] | [`Connection::exec`]: a command in a container | – | what the command does |
//! | [`patch`] | [`patch::Patch`]: a patch of one object's status, with conditions | – | API server |
//! | [`object`] | [`object::Object`]: a node or a pod, by name | – | – |
//! | [`selector`] | [`selector::parse()`]: a label selector | its text | – |
//! | [`address`] | addresses and networks as API servers take them | their text | – |
//! | [`services`] | [`services::Service`], [`services::Slice`]: what Services and EndpointSlices say | their JSON | – |
//! | `allowance` | [`Allowance`]: so many requests at once, and one more after each interval | – | – |
//! | [`metrics`] | [`metrics::Metrics`]: watch restarts and leadership, as metrics | – | – |

pub mod address;
mod allowance;
pub mod connection;
pub mod discovery;
pub mod election;
pub mod events;
pub mod exec;
pub mod metrics;
pub mod object;
pub mod patch;
#[cfg(test)]
mod scripted;
pub mod selector;
pub mod services;
pub mod trouble;
pub mod watch;

pub use allowance::Allowance;
pub use connection::{ApiServer, Authority, Cluster, Connection, Credential};
pub use trouble::{Kind, Trouble};
