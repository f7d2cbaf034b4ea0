//! Keeps pods attached: restores ports of living pods that vanish from Open vSwitch (a restart that
//! deletes ports, a lost database, a manual `del-port`), and removes what is left of pods that are
//! gone. The plugin attaches and detaches; this module only repairs, and writes the ports that
//! plugins ask for. Two tasks share one copy of the rows: `local_rows` owns it and writes ports,
//! `reconciler` repairs.
//!
//! ```text
//! plugins ─▶ writer ─▶ one transaction ─▶ Open vSwitch
//!
//! Open vSwitch's rows ─▶ local_rows ─┐
//! links of the host ─────────────────┼─▶ plan ─┬─ missing ──▶ lock ─▶ one transaction ─▶ Open vSwitch
//! pods of this node ─────────────────┘         └─ suspects ─▶ stale_candidates ─▶ lock ─▶ the plugin's DEL
//! ```
//!
//! | module | noun |
//! |---|---|
//! | `port_cache` | the rows of each attachment, as last seen |
//! | `links` | the host's ends of pods' veths, as rtnetlink reports them |
//! | `plan` | which ports are missing, and which attachments are stale; pure |
//! | `stale_candidates` | since when an attachment is stale; pure |
//! | `local_rows` | the task that owns the copy of the rows; it waits for nothing, because ADDs wait for it |
//! | `writer` | the ports that plugins ask for, in that task |
//! | `reconciler` | the task that repairs: when to look, and what to do then |
//! | `workers` | the tasks beside it, which may wait |
//! | `calls` | removes what killed calls of the plugin leave among the per-interface locks |
//! | `restore` | restores ports, under the per-interface locks (`InterfaceLock`) of the plugin's calls |
//! | `ignored_devices` | the devices of a userspace `br-int` that the host's own stack ignores |
//! | `sweep` | removes stale attachments |
//! | `unflushed` | removes tracked connections that a removal had no time for |
//! | `restored` | restored ports, until they work; only logs |
//!
//! The only record of what is attached is that of Open vSwitch's rows and the aliases of links;
//! there is no file. As long as nothing is wrong, nothing is written, and nothing is polled, except
//! for a look every 30 s in case an event was lost.

use std::{path::PathBuf, sync::Arc, time::Duration};

use ovsdb::{Client, Endpoint};
use tokio::sync::watch;

use crate::{conditions::Conditions, events::Events, metrics::Metrics, pods::PodSource};

mod calls;
mod ignored_devices;
mod links;
mod local_rows;
mod plan;
mod port_cache;
mod reconciler;
mod restore;
mod restored;
mod stale_candidates;
mod sweep;
mod unflushed;
mod workers;
mod writer;

pub(crate) use calls::tidy;
pub(crate) use reconciler::{plugin_settings, start};
pub(crate) use unflushed::finish_flushes;

/// What the reconciler needs to know and to reach.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Name of the node.
    pub(crate) node: String,
    /// Open vSwitch's database: its endpoint, for the plugin's DEL, and this process's connection.
    pub(crate) endpoint: Endpoint,
    pub(crate) client: Client,
    /// The server's socket, beside which the per-interface locks of the plugin's calls are.
    pub(crate) socket: PathBuf,
    pub(crate) pods: Arc<dyn PodSource>,
    pub(crate) conditions: Conditions,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    /// Whether the known pods are those of this host.
    pub(crate) own_node: watch::Receiver<OwnNode>,
    /// A stale attachment is removed if it is still stale after this long; `None`: never.
    pub(crate) patience: Option<Duration>,
}

/// Whether the source of pods speaks of this host, and not of another one whose name the server was
/// given by mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnNode {
    /// The Node object has an address of this host.
    Confirmed,
    /// Nothing confirms it; and why.
    Unconfirmed(String),
}

/// Whether everything was done that a look called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repaired {
    All,
    /// Something was left for later.
    NotAll,
}
