//! Keeps pods attached. Ports of living pods that vanish from Open vSwitch (a restart that deletes ports, a lost database, somebody's
//! hand) are put back; what is left of pods that are gone is removed. The plugin attaches and detaches; this only repairs.
//!
//! ```text
//! Open vSwitch's rows ─▶ journal ─┐
//! links of the host ──────────────┼─▶ plan ─┬─ missing ──▶ fence ─▶ one transaction ─▶ Open vSwitch
//! pods of this node ──────────────┘         └─ suspects ─▶ suspicion ─ twice ─▶ fence ─▶ the plugin's DEL
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `journal` | what the rows of each attachment said when they were last there |
//! | `links` | the host's ends of pods' veths, as the kernel tells of them |
//! | `plan` | what is missing, and what should not be there; pure |
//! | `suspicion` | what should not be there, and since when; pure |
//! | `keeper` | the task that knows: when to look, and what to do then; it waits for nothing |
//! | `hands` | what works beside it, and may wait |
//! | `calls` | what killed calls of the plugin leave where calls are kept apart |
//! | `restore` | putting back, with the fences of the plugin's calls |
//! | `sweep` | removing |
//! | `writer` | ports that plugins ask for: written by the task that knows all rows, though it needs none of the above |
//!
//! There is no journal besides Open vSwitch's rows and the aliases of links. Nothing is written as long as nothing is wrong, and nothing is
//! polled, but for a look every half minute in case that an event was lost.

use std::{path::PathBuf, sync::Arc, time::Duration};

use ovsdb::Endpoint;
use tokio::sync::watch;

use crate::{conditions::Conditions, events::Events, metrics::Metrics, pods::PodSource};

mod calls;
mod hands;
mod journal;
mod keeper;
mod links;
mod plan;
mod restore;
mod suspicion;
mod sweep;
mod writer;

pub(crate) use calls::tidy;
pub(crate) use keeper::Keeper;
pub(crate) use plan::Reason;

/// What keeping needs to know and to reach.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// Name of the node.
    pub(crate) node: String,
    /// Open vSwitch's database.
    pub(crate) endpoint: Endpoint,
    /// The server's own, beside which the plugin's calls are kept apart.
    pub(crate) socket: PathBuf,
    pub(crate) pods: Arc<dyn PodSource>,
    pub(crate) conditions: Conditions,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    /// Whether the pods are those of this host.
    pub(crate) own_node: watch::Receiver<OwnNode>,
    /// What should not be there is removed if it is still there after this long; none: never.
    pub(crate) patience: Option<Duration>,
}

/// Whether the source of pods speaks of this host, and not of another one whose name was given to the server by mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnNode {
    /// The Node object has an address of this host.
    Confirmed,
    /// Nothing says so; and why.
    Unconfirmed(String),
}
