//! Names of ports in policies that none of the pods has which they are about: most often a
//! misspelled one.
//!
//! A policy is looked at when its rows or those of a pod that it selects are written, so that what
//! comes together is told once or not at all. A policy without pods is not in doubt.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::{PodKey, PolicyKey};
use kubeapi::object::Object;

use crate::{
    kinds::network_policy::{object::Policy, problem::PolicyProblem, state::PortName},
    problem::Problem,
    select::{
        peer::{Direction, Number, shown},
        selectors::SelectorId,
    },
    world::Store,
};

fn names(policy: &Policy) -> BTreeSet<PortName> {
    let of = |direction| {
        let rules = policy.rules(direction).into_iter().flatten();
        let ports = rules.filter_map(|rule| rule.ports.as_ref()).flatten();
        ports.filter_map(move |port| match &port.number {
            Number::Named(name) => {
                Some(PortName { direction, name: Arc::clone(name), protocol: port.protocol })
            }
            Number::All | Number::Range(..) => None,
        })
    };
    Direction::ALL.into_iter().flat_map(of).collect()
}

impl Store {
    /// The rows of a pod are written: policies that select it may have a name now, or lack one.
    pub(crate) fn check_names_of_pod(&mut self, pod: &PodKey) {
        let policies = self.policies_of(pod).into_iter().filter(|key| self.policies.has_names(key));
        let policies: Vec<PolicyKey> = policies.cloned().collect();
        policies.iter().for_each(|policy| self.check_names(policy));
    }

    /// Queues an event about each name of the policy's ports that no pod has and that was not told
    /// before.
    pub(crate) fn check_names(&mut self, key: &PolicyKey) {
        let Some(policy) = self.policy(key) else {
            self.policies.nameless.remove(key);
            return;
        };
        let missing: BTreeSet<PortName> =
            names(policy).into_iter().filter(|port| self.is_missing(key, port)).collect();
        let uid = Arc::clone(&policy.uid);
        let told = self.policies.nameless.get(key);
        let new: Vec<&PortName> =
            missing.iter().filter(|port| told.is_none_or(|told| !told.contains(port))).collect();
        for PortName { direction, name, protocol } in new {
            let why = PolicyProblem::NoSuchPort {
                place: *direction,
                name: shown(name),
                protocol: *protocol,
            };
            let object = Object::NetworkPolicy(key.clone());
            self.outbox.problems.push(Problem::new(object, &uid, &why));
        }
        match missing.is_empty() {
            true => drop(self.policies.nameless.remove(key)),
            false => drop(self.policies.nameless.insert(key.clone(), missing)),
        }
    }

    /// Whether the policy selects pods, and no pod has the name: none of the selected ones for
    /// connections to them, and none at all for their own connections.
    fn is_missing(
        &self,
        key: &PolicyKey,
        PortName { direction, name, protocol }: &PortName,
    ) -> bool {
        let selectors = &self.pods.selectors;
        let is_used = |id: &SelectorId| selectors.matching(*id).next().is_some();
        let Some(selected) = self.policies.selected(key).filter(is_used) else { return false };
        let mut pods = self.policies.sets.with_port(name, *protocol);
        match direction {
            Direction::Ingress => !pods.any(|pod| selectors.matches(selected, pod)),
            Direction::Egress => pods.next().is_none(),
        }
    }
}
