//! Which pods an event lets try again to get addresses.

use contract::names::PodKey;

use crate::{kinds::pod::problem::PodProblem, world::Store};

impl Store {
    pub(crate) fn wait(&mut self, key: &PodKey, trouble: PodProblem) {
        if self.waiting.pods.get(key) == Some(&trouble) {
            // The event for this reason has been reported already.
            return;
        }
        self.waiting.remove(key);
        self.waiting.insert(key, trouble);
        self.tell_trouble(key);
    }

    pub(crate) fn trouble(&self, key: &PodKey) -> Option<&PodProblem> {
        self.waiting.pods.get(key)
    }

    /// Pods that wait for addresses, and why; for metrics and diagnostics.
    pub fn troubles(&self) -> impl Iterator<Item = (&PodKey, &PodProblem)> {
        self.waiting.pods.iter()
    }
}
