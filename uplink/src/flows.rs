//! The OpenFlow flows of a gateway node's external bridge: which packets go to the node's gateway router,
//! which to the node itself, and which leave.
//!
//! ```text
//!                            ┌────────── bridge ──────────┐
//!  world ── NIC ── uplink P ─┤                            ├─ T patch ── br-int ── gateway router
//!                            └──────────── L ─────────────┘
//!                                    host: the node
//! ```
//!
//! | module | noun | reads | writes |
//! |---|---|---|---|
//! | `config` | [`Config`]: what the flows follow from | – | – |
//! | `flow` | [`Flow`]: a table, a priority, a match, actions; [`Flows`]: a set of them | – | – |
//! | `table` | [`table()`]: the flows; pure | – | – |
//!
//! It must not know of Kubernetes' objects, nor find out ports and addresses by itself.

mod config;
mod flow;
mod table;

pub use config::{
    BadVlan, BadZone, Config, Datapath, Exposed, ExternalBridge, Front, HostAddresses, Masquerade, Mode,
    PodSource, Ports, Vlan, Zone,
};
pub use flow::{
    Action, Commit, ConnectionState, Ct, Family, Flow, Flows, Fragment, Icmp, Match, Nat, OfPort, Packet,
    Protocol, Slot,
};
pub use table::{bootstrap, table};

/// The cookie of the flows: upstream's, so that either program takes over the flows of the other. A flow with
/// another cookie is foreign.
pub const COOKIE: u64 = 0xdeff105;
