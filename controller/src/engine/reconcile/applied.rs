//! Objects whose owners ask when they are in force ([`REPORT_APPLIED`]): one report for the
//! request, and one for each change of their rows. Nothing is kept of other objects.
//!
//! [`REPORT_APPLIED`]: contract::applied_annotation::REPORT_APPLIED

use std::collections::HashSet;

use tokio::time::Instant;

use crate::{
    engine::{
        commit::work_queue::{Cause, Item},
        reconcile::{Reconciler, Report},
    },
    key::Key,
    watch_event::WatchEvent,
};

/// Objects that may ask at the same time. Each report asks every node of the zone, and a key is
/// some hundred bytes.
const MOST: usize = 1000;

/// The objects that ask.
#[derive(Debug, Default)]
pub(crate) struct AppliedRequests {
    known: HashSet<Key>,
    /// Those of them whose rows were written, or that ask for the first time.
    due: HashSet<Key>,
    /// Whether the log has that there are too many.
    told: bool,
}

impl AppliedRequests {
    /// What an event of the object says. Whether it asks, and did not before.
    fn event(&mut self, key: &Key, asks: bool) -> bool {
        if !asks {
            self.forget(key);
            return false;
        }
        let is_new = self.listed(key);
        if is_new {
            self.due.insert(key.clone());
        }
        is_new
    }

    /// It asks, and may have done so before this process began. Whether it is new here.
    fn listed(&mut self, key: &Key) -> bool {
        if self.known.contains(key) {
            return false;
        }
        if self.known.len() >= MOST {
            if !self.told {
                self.told = true;
                tracing::warn!(
                    %key,
                    limit = MOST,
                    "too many objects have the annotation k8s.ovn.org/report-applied: no report on \
                     the others"
                );
            }
            return false;
        }
        self.known.insert(key.clone())
    }

    fn forget(&mut self, key: &Key) {
        self.known.remove(key);
        self.due.remove(key);
    }

    /// Rows of the key were written.
    pub(crate) fn written(&mut self, key: &Key) {
        if self.known.contains(key) {
            self.due.insert(key.clone());
        }
    }
}

impl Reconciler {
    /// Takes what an observation says of requests.
    pub(crate) fn note_requests(&mut self, observation: &WatchEvent) {
        for (key, asks) in observation.requests(!self.requests.known.is_empty()) {
            if observation.is_list() {
                self.requests.listed(&key);
            } else if self.requests.event(&key, asks) {
                // Its rows may be right since long.
                self.work_queue.mark(Item::whole(key, Cause::Store), Instant::now());
            }
        }
    }

    /// The rows of the key are right; `since`: when they were not, if ever.
    pub(crate) fn report_applied(&mut self, key: &Key, since: Option<Instant>) {
        if self.requests.due.is_empty() || !self.requests.due.remove(key) {
            return;
        }
        match self.store.uid(key) {
            Some(uid) => {
                let since = since.unwrap_or_else(Instant::now);
                self.report(Report::Applied { key: key.clone(), uid, since });
            }
            None => self.requests.forget(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::names::PodKey;

    use super::*;

    fn key(name: usize) -> Key {
        Key::Pod(PodKey::new("shop", &format!("p{name}")).unwrap())
    }

    #[test]
    fn a_request_is_due_once_and_again_with_each_write_until_it_ends() {
        let mut requests = AppliedRequests::default();
        let pod = key(1);
        requests.written(&pod);
        assert!(requests.due.is_empty(), "nobody asks");
        assert!(requests.event(&pod, true));
        assert!(requests.due.remove(&pod));
        assert!(!requests.event(&pod, true), "it is known");
        assert!(requests.due.is_empty());
        requests.written(&pod);
        assert!(requests.due.contains(&pod));
        assert!(!requests.event(&pod, false));
        assert!(requests.due.is_empty() && requests.known.is_empty());
    }

    #[test]
    fn a_start_reports_nothing_of_what_asked_before() {
        let mut requests = AppliedRequests::default();
        assert!(requests.listed(&key(1)));
        assert!(requests.due.is_empty());
        requests.written(&key(1));
        assert!(requests.due.contains(&key(1)));
    }

    #[test]
    fn a_script_that_annotates_everything_reaches_a_bound() {
        let mut requests = AppliedRequests::default();
        for name in 0..MOST + 500 {
            requests.event(&key(name), true);
        }
        assert_eq!((requests.known.len(), requests.due.len()), (MOST, MOST));
        requests.event(&key(0), false);
        assert!(requests.event(&key(MOST), true), "there is room again");
    }
}
