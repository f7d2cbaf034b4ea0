//! When the condition of a policy of the whole cluster is written.

use std::sync::Arc;

use contract::names::ClusterPolicyKey;

use crate::{
    key::Key,
    kinds::cluster_policy::condition::{
        Condition, LONGEST_MESSAGE, PolicyCondition, READY_IN_ZONE,
    },
    status_writeback::RowsState,
    world::Store,
};

impl Store {
    /// Conditions to write, each returned once. The writer retries until the policy is gone or has
    /// another UID. The store returns a condition again if it disappears from the status or changes
    /// there.
    pub fn take_conditions(&mut self) -> Vec<PolicyCondition> {
        let keys = self.outbox.take_conditions();
        keys.into_iter().filter_map(|key| self.condition_to_write(key)).collect()
    }

    /// The database has refused rows of the key, or another program changes them again and again.
    pub fn rows_failed(&mut self, key: &Key, why: &str) {
        let failed =
            || RowsState::Failed(why.chars().take(LONGEST_MESSAGE).collect::<String>().into());
        match key {
            Key::ClusterPolicy(policy) => self.stands(policy, failed()),
            Key::Custom(of) => self.custom_stands(of.kind, &of.namespace, failed()),
            Key::Cluster
            | Key::Node(_)
            | Key::Gateway(_)
            | Key::Transit(_)
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
    pub(crate) fn rows_written(&mut self, key: &ClusterPolicyKey) {
        self.stands(key, RowsState::Ready);
    }

    /// What the condition should say; none before the rows have been compared. Rows that are there
    /// do not make up for what of the policy cannot be done.
    fn wanted_standing(&self, key: &ClusterPolicyKey) -> Option<RowsState> {
        match self.cluster_policies.said(key)?.standing.as_ref()? {
            RowsState::Ready => Some(match self.cluster_policy_trouble(key) {
                None => RowsState::Ready,
                Some(trouble) => RowsState::Failed(trouble.to_string().into()),
            }),
            failed @ RowsState::Failed(_) => Some(failed.clone()),
        }
    }

    fn stands(&mut self, key: &ClusterPolicyKey, standing: RowsState) {
        if let Some(said) = self.cluster_policies.said_mut(key) {
            said.standing = Some(standing);
            self.say_condition(key);
        }
    }

    /// Queues the condition, unless the policy's status has it already.
    pub(crate) fn say_condition(&mut self, key: &ClusterPolicyKey) {
        let Some(policy) = self.cluster_policy(key) else { return };
        let generation = policy.generation;
        let observed = self.observed_condition(key).cloned();
        let Some(standing) = self.wanted_standing(key) else { return };
        let Some(said) = self.cluster_policies.said_mut(key) else { return };
        if observed.is_some_and(|condition| condition.says(&standing, generation)) {
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
        let same = self
            .observed_condition(&key)
            .filter(|condition| *condition.status == *standing.status());
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
