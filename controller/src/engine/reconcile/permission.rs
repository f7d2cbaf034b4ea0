//! Whether this process may write: the zone and the cluster of the database, the leadership, the
//! lock.

use std::sync::Arc;

use ovsdb::Claim;

use crate::engine::reconcile::{Reconciler, database_lock::Right};

impl Reconciler {
    /// Asks for the lock that every transaction asserts, and updates `blocked`. Returns whether
    /// another process has taken the lock from this one, which believes that it leads.
    pub(crate) fn is_overtaken(&mut self) -> bool {
        let mut why = None;
        if let Some(connection) = self.northbound.connection().cloned().filter(|_| self.loaded) {
            let (theirs, ours) = (self.northbound.zone(), &self.store.config.zone);
            // Before the lock is asked for: to take it would stop the controller of the other zone
            // or cluster.
            if theirs != *ours {
                why = Some(format!(
                    "the northbound database is of zone {:?} (NB_Global.name), this controller of zone {:?}: \
                     nothing in it is changed",
                    theirs.0, ours.0
                ));
            } else if let Some(other) = self.another_cluster() {
                why = Some(other);
            } else if self.leadership.is_leader() && self.has_asked() {
                // The Lease has decided between elected controllers. Without an election,
                // controllers that steal would do so from each other without end.
                let claim = if self.leadership.is_elected() { Claim::Steal } else { Claim::Queue };
                self.database_lock.ask(&connection, claim);
                match self.database_lock.right() {
                    Right::Held | Right::Asked => {}
                    Right::Waits(what) => why = Some(what),
                    Right::Taken if self.leadership.is_elected() => return true,
                    // A stolen lock never comes back by itself (RFC 7047 §4.1.10): return it, and
                    // queue again.
                    Right::Taken => {
                        self.database_lock.give_up();
                        self.database_lock.ask(&connection, claim);
                        why = Some("another process has taken the lock of the database".to_owned());
                    }
                }
            }
        }
        self.block(why);
        false
    }

    /// Updates `blocked`, and logs a change.
    pub(crate) fn block(&mut self, why: Option<String>) {
        if self.blocked.as_deref() != why.as_deref() {
            match &why {
                Some(why) => tracing::warn!(why, "nothing is written to the northbound database"),
                None => tracing::info!("the northbound database may be written to"),
            }
            self.blocked = why.map(Arc::from);
        }
    }

    /// Whether everything that a write depends on is known, and this process has the right to
    /// write.
    pub(crate) fn may_write(&self) -> bool {
        self.primed
            && self.loaded
            && self.leadership.is_leader()
            && self.blocked.is_none()
            && self.database_lock.right() == Right::Held
    }

    /// Whether the API server was asked for its identity, which comes before all lists.
    fn has_asked(&self) -> bool {
        self.cluster.has_asked() || self.early.as_ref().is_none_or(|early| !early.is_empty())
    }

    /// Why the database is another cluster's, if that is known.
    pub(crate) fn another_cluster(&self) -> Option<String> {
        match self.early {
            Some(_) => self.cluster.another_at_first(&self.northbound),
            None => self.cluster.another(&self.northbound, &self.store),
        }
    }
}
