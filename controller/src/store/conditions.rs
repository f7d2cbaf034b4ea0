//! The condition of a policy of the whole cluster in this zone: whether the database has the policy's rows.
//! Type, status and reasons are upstream's. Knows no request.
//!
//! ```text
//! rows are there, or are refused ─▶ Standing ─┐
//!                                             ├─ differs ─▶ outbox ─▶ API server
//! the policy's status ─▶ Condition ───────────┘                          │
//!                             ▲                                          │
//!                             └──────────────── watch ───────────────────┘
//! ```

use std::sync::Arc;

use contract::names::ClusterPolicyKey;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Store, specification::Specification};
use crate::{config::Zone, key::Key};

/// The type of the condition begins with it; the name of the zone follows.
const READY_IN_ZONE: &str = "Ready-In-Zone-";
/// Characters of a message. The API server takes 32,768; a person reads a few lines.
const LONGEST_MESSAGE: usize = 1000;

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

/// Whether the database has the rows of a policy, all of them and as they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Ready,
    /// It has not, for this reason.
    Failed(Arc<str>),
}

/// A condition to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyCondition {
    pub policy: ClusterPolicyKey,
    pub uid: Arc<str>,
    pub zone: Zone,
    /// `metadata.generation` of the policy that this is about.
    pub generation: i64,
    pub standing: Standing,
    /// Since when the status has been this one; none: until now it was another.
    pub since: Option<Box<str>>,
}

impl Condition {
    /// The conditions of zones in a status. Anything else in it is left out: others write it, too.
    pub fn of_zones(status: &Specification) -> Box<[Self]> {
        let all: Vec<serde_json::Value> = status.field("conditions").unwrap_or_default();
        let read = all.into_iter().filter_map(|condition| Self::deserialize(condition).ok());
        read.filter(|condition| condition.kind.starts_with(READY_IN_ZONE)).collect()
    }
}

impl Standing {
    fn status(&self) -> &'static str {
        match self {
            Self::Ready => "True",
            Self::Failed(_) => "False",
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Ready => "SetupSucceeded",
            Self::Failed(_) => "SetupFailed",
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::Ready => "its rows are in OVN's northbound database",
            Self::Failed(why) => why,
        }
    }

    /// Whether the condition says this of the generation.
    fn is_said_by(&self, condition: &Condition, generation: i64) -> bool {
        let Condition { kind: _, status, reason, message, observed_generation, last_transition_time: _ } =
            condition;
        (&**status, &**reason, &**message) == (self.status(), self.reason(), self.message())
            && *observed_generation == generation
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

impl Store {
    /// Conditions to write, each returned once. The writer retries until the policy is gone or has another
    /// UID. The store returns a condition again if it disappears from the status or changes there.
    pub fn take_conditions(&mut self) -> Vec<PolicyCondition> {
        let keys = self.outbox.take_conditions();
        keys.into_iter().filter_map(|key| self.condition_to_write(key)).collect()
    }

    /// The database has refused rows of the key, or another program changes them again and again.
    pub fn rows_failed(&mut self, key: &Key, why: &str) {
        let failed = || Standing::Failed(why.chars().take(LONGEST_MESSAGE).collect::<String>().into());
        match key {
            Key::ClusterPolicy(policy) => self.stands(policy, failed()),
            Key::EgressFirewall(namespace) => self.firewall_stands(namespace, failed()),
            Key::Cluster
            | Key::Node(_)
            | Key::Gateway(_)
            | Key::SourceNat(_)
            | Key::Isolation(_)
            | Key::Set(_)
            | Key::Policy(_)
            | Key::Namespace(_)
            | Key::Pod(_)
            | Key::Service(_)
            | Key::Chassis(_) => {}
        }
    }

    /// The database shows the rows of the policy.
    pub(super) fn rows_written(&mut self, key: &ClusterPolicyKey) {
        self.stands(key, Standing::Ready);
    }

    /// What the condition should say; none before the rows have been compared. Rows that are there do not make
    /// up for what of the policy cannot be done.
    fn wanted_standing(&self, key: &ClusterPolicyKey) -> Option<Standing> {
        match self.cluster_policies.said(key)?.standing.as_ref()? {
            Standing::Ready => Some(match self.cluster_policy_trouble(key) {
                None => Standing::Ready,
                Some(trouble) => Standing::Failed(trouble.to_string().into()),
            }),
            failed @ Standing::Failed(_) => Some(failed.clone()),
        }
    }

    fn stands(&mut self, key: &ClusterPolicyKey, standing: Standing) {
        if let Some(said) = self.cluster_policies.said_mut(key) {
            said.standing = Some(standing);
            self.say_condition(key);
        }
    }

    /// Queues the condition, unless the policy's status has it already.
    pub(super) fn say_condition(&mut self, key: &ClusterPolicyKey) {
        let Some(policy) = self.cluster_policy(key) else { return };
        let generation = policy.generation;
        let observed = self.observed_condition(key).cloned();
        let Some(standing) = self.wanted_standing(key) else { return };
        let Some(said) = self.cluster_policies.said_mut(key) else { return };
        if observed.is_some_and(|condition| standing.is_said_by(&condition, generation)) {
            said.arrived();
            self.outbox.forget_condition(key);
        } else if said.hand_out((generation, standing)) {
            self.outbox.say_condition(key.clone());
        }
    }

    /// This zone's condition in the status of the policy.
    fn observed_condition(&self, key: &ClusterPolicyKey) -> Option<&Condition> {
        let conditions = &self.cluster_policy(key)?.conditions;
        let of_zone = |condition: &&Condition| {
            condition.kind.strip_prefix(READY_IN_ZONE) == Some(self.config.zone.0.as_str())
        };
        conditions.iter().find(of_zone)
    }

    fn condition_to_write(&self, key: ClusterPolicyKey) -> Option<PolicyCondition> {
        let policy = self.cluster_policy(&key)?;
        let (generation, standing) = self.cluster_policies.said(&key)?.sent()?.clone();
        let same = self.observed_condition(&key).filter(|condition| *condition.status == *standing.status());
        let since = same.map(|condition| condition.last_transition_time.clone());
        Some(PolicyCondition {
            uid: Arc::clone(&policy.uid),
            zone: self.config.zone.clone(),
            generation,
            standing,
            since: since.filter(|since| !since.is_empty()),
            policy: key,
        })
    }
}
