//! The condition of a policy of the whole cluster in this zone: whether the database has the
//! policy's rows. Type, status and reasons are upstream's. Knows no request.
//!
//! ```text
//! rows are there, or are refused ─▶ RowsState ─┐
//!                                             ├─ differs ─▶ outbox ─▶ API server
//! the policy's status ─▶ Condition ───────────┘                          │
//!                             ▲                                          │
//!                             └──────────────── watch ───────────────────┘
//! ```

use std::sync::Arc;

use contract::names::ClusterPolicyKey;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{config::Zone, object::specification::Specification, status_writeback::RowsState};

/// The type of the condition begins with it; the name of the zone follows.
pub(crate) const READY_IN_ZONE: &str = "Ready-In-Zone-";
/// Characters of a message. The API server takes 32,768; a person reads a few lines.
pub(crate) const LONGEST_MESSAGE: usize = 1000;

/// A condition in a policy's status, as the API spells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub status: Box<str>,
    #[serde(default)]
    pub reason: Box<str>,
    #[serde(default)]
    pub message: Box<str>,
    #[serde(default)]
    pub observed_generation: i64,
    #[serde(default)]
    pub last_transition_time: Box<str>,
}

/// A condition to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyCondition {
    pub policy: ClusterPolicyKey,
    pub uid: Arc<str>,
    pub zone: Zone,
    /// `metadata.generation` of the policy that this is about.
    pub generation: i64,
    pub standing: RowsState,
    /// Since when the status has been this one; none: until now it was another.
    pub since: Option<Box<str>>,
}

impl Condition {
    /// Whether it says this of the generation.
    pub(crate) fn says(&self, state: &RowsState, generation: i64) -> bool {
        let Self { kind: _, status, reason, message, observed_generation, last_transition_time: _ } =
            self;
        (&**status, &**reason, &**message) == (state.status(), state.reason(), state.message())
            && *observed_generation == generation
    }

    /// The conditions of zones in a status. Anything else in it is left out: others write it, too.
    pub fn of_zones(status: &Specification) -> Box<[Self]> {
        let all: Vec<serde_json::Value> = status.field("conditions").unwrap_or_default();
        let read = all.into_iter().filter_map(|condition| Self::deserialize(condition).ok());
        read.filter(|condition| condition.kind.starts_with(READY_IN_ZONE)).collect()
    }
}

impl PolicyCondition {
    /// The condition, if it is written now.
    pub fn condition(&self, now: Timestamp) -> Condition {
        let Self { policy: _, uid: _, zone, generation, standing, since } = self;
        Condition {
            kind: format!("{READY_IN_ZONE}{}", zone.0).into(),
            status: standing.status().into(),
            reason: standing.reason().into(),
            message: standing.message().into(),
            observed_generation: *generation,
            // Whole seconds, as the API server keeps them.
            last_transition_time: since
                .clone()
                .unwrap_or_else(|| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()),
        }
    }
}
