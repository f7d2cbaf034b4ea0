//! The OpenFlow flows of a gateway node's external bridge: which packets go to the node's gateway
//! router, which to the node itself, and which leave.
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
//! | `wire` | flows as OpenFlow messages; pure | – | – |
//! | `difference` | what has to change in a bridge; pure | – | – |
//! | `session` | a connection to a bridge, and what the bridge has | flows | flows |
//! | `keep` | [`keep()`], [`install()`], [`release()`] | through `session` | through `session` |
//!
//! Only differences are written, in one bundle: packets see the flows before or those after.
//! Foreign flows (those with another cookie, but for Services' of upstream) stay. Where one has the
//! slot of ours and does the same, as the flow `NORMAL` of every new bridge, it serves; if it does
//! something else, it is reported.
//!
//! It must not know of Kubernetes' objects, nor find out ports and addresses by itself.

mod config;
mod difference;
mod flow;
mod keep;
mod session;
mod table;
mod wire;

pub use config::{
    BadVlan, BadZone, Config, Datapath, Exposed, ExternalBridge, Front, HostAddresses, Masquerade,
    Mode, PodSource, Ports, Vlan, Zone,
};
pub use flow::{
    Action, Commit, ConnectionState, Ct, Family, Flow, Flows, Icmp, Match, Nat, OfPort, Packet,
    Protocol, Slot,
};
pub use keep::{Event, install, keep, release};
pub use session::{InstallError, Outcome};
pub use table::{bootstrap, table};
#[cfg(any(test, feature = "fuzzing"))]
pub use wire::bridge_side;

/// The cookie of the flows: upstream's, so that either program takes over the flows of the other. A
/// flow with another cookie is foreign, unless it has the table and priority of those of Services.
pub const COOKIE: u64 = 0xdeff105;
