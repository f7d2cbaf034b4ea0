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
//! | `keeper` | the task: when to look, and what to do then |
//! | `restore` | putting back, with the fences of the plugin's calls |
//! | `sweep` | removing |
//! | `writer` | ports that plugins ask for: written by the same task, which knows all rows, though it needs none of the above |
//!
//! There is no journal besides Open vSwitch's rows and the aliases of links. Nothing is written as long as nothing is wrong, and nothing is
//! polled, but for a look every half minute in case that an event was lost.

use std::{sync::Arc, time::Duration};

use ovsdb::Endpoint;

use crate::{conditions::Conditions, events::Events, metrics::Metrics, pods::PodSource};

mod journal;
mod keeper;
mod links;
mod plan;
mod restore;
mod suspicion;
mod sweep;
mod writer;

pub(crate) use keeper::Keeper;
pub(crate) use plan::Reason;

/// What keeping needs to know and to reach.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// Open vSwitch's database.
    pub(crate) endpoint: Endpoint,
    pub(crate) pods: Arc<dyn PodSource>,
    pub(crate) conditions: Conditions,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    /// What should not be there is removed if it is still there after this long; none: never.
    pub(crate) patience: Option<Duration>,
}
