//! What changes have caused, for the caller: each result is handed out once.

use std::{collections::BTreeSet, sync::Arc};

use contract::names::{PolicyKey, ServiceKey};

use crate::{custom::CustomStatus, problem::Problem, world::Store};

impl Store {
    /// Problems that arose since the last call, for events.
    ///
    /// A node without a subnet is not reported here: that is one problem of the node, not one of
    /// each of its pods.
    pub fn take_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.outbox.problems)
    }

    /// Idled Services that clients have connected to since the last call, with their UIDs.
    pub fn take_needs_of_pods(&mut self) -> Vec<(ServiceKey, Arc<str>)> {
        std::mem::take(&mut self.outbox.need_pods)
    }

    /// A client connects to a Service without pods. One that is not known any more needs none.
    pub(crate) fn need_pods(&mut self, service: ServiceKey) {
        if let Some((known, _)) = self.service(&service) {
            let uid = Arc::clone(&known.uid);
            self.outbox.need_pods.push((service, uid));
        }
    }

    /// Statuses to write, each returned once.
    pub fn take_statuses(&mut self) -> Vec<CustomStatus> {
        std::mem::take(&mut self.outbox.statuses)
    }

    /// Policies that count now, and whose rules are not in memory.
    pub fn take_rereads(&mut self) -> BTreeSet<PolicyKey> {
        std::mem::take(&mut self.outbox.rereads)
    }
}
