//! What changes of the store have caused and nobody has taken yet: annotations and conditions to
//! write, and problems to report as events. Knows nothing of requests.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::{ClusterPolicyKey, PodKey, PolicyKey, ServiceKey};

use crate::{custom::CustomStatus, problem::Problem};

/// Items that wait for the caller.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) annotations: BTreeSet<PodKey>,
    pub(crate) problems: Vec<Problem>,
    /// Idled Services that clients connect to, with their UIDs.
    pub(crate) need_pods: Vec<(ServiceKey, Arc<str>)>,
    /// Policies to read again.
    pub(crate) rereads: BTreeSet<PolicyKey>,
    pub(crate) conditions: BTreeSet<ClusterPolicyKey>,
    pub(crate) statuses: Vec<CustomStatus>,
}

impl Outbox {
    pub(crate) fn reread(&mut self, key: PolicyKey) {
        self.rereads.insert(key);
    }

    pub(crate) fn write_status(&mut self, status: CustomStatus) {
        self.statuses.push(status);
    }

    pub(crate) fn forget(&mut self, key: &PodKey) {
        self.annotations.remove(key);
    }

    pub(crate) fn say_condition(&mut self, key: ClusterPolicyKey) {
        self.conditions.insert(key);
    }

    pub(crate) fn forget_condition(&mut self, key: &ClusterPolicyKey) {
        self.conditions.remove(key);
    }

    pub(crate) fn take_conditions(&mut self) -> BTreeSet<ClusterPolicyKey> {
        std::mem::take(&mut self.conditions)
    }
}
