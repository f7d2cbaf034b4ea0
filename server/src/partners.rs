//! Whether those whom an ADD needs answer at all: Open vSwitch's database, ovs-vswitchd, ovn-controller.
//!
//! The plugin asks them itself whenever it is called for STATUS. It cannot wait until one that says nothing is busy no longer, and
//! must not call it missing because of a moment; so it is asked here, all the time and with patience. A daemon that hangs is nothing that
//! an event tells of: hence the clock. Must not know what a silent partner means for a node; says nothing of one that it cannot see.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cni::{
    settings::Settings,
    status::{Missing, PATIENCE, Partner},
};
use contract::wire::{Pulse, StatusAnswer};
use ovsdb::Endpoint;
use tokio::time::{MissedTickBehavior, interval};

/// Between two questions: a partner that hangs is known as such this much and its patience later, at the latest.
const EVERY: Duration = Duration::from_secs(2);

/// How each partner was when it was asked last. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Partners {
    seen: Arc<Mutex<BTreeMap<String, Pulse>>>,
}

impl Partners {
    /// Asks each of them from now on, for as long as the runtime lives: the database at `ovsdb`, ovs-vswitchd beside it, ovn-controller at
    /// its usual place.
    pub fn watch(ovsdb: &Endpoint) -> Self {
        let partners = Self::default();
        let settings = Arc::new(Settings::with_ovsdb(ovsdb, PATIENCE));
        for partner in Partner::ALL {
            tokio::spawn(partners.clone().keep_asking(partner, Arc::clone(&settings)));
        }
        partners
    }

    /// For the plugin.
    pub fn seen(&self) -> StatusAnswer {
        StatusAnswer { partners: self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }

    async fn keep_asking(self, partner: Partner, settings: Arc<Settings>) {
        let place = partner.place(&settings);
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.note(&place, pulse(&partner.ask(&settings, PATIENCE).await));
        }
    }

    /// Keeps what was seen, and says on the log when it has changed.
    fn note(&self, place: &str, pulse: Pulse) {
        let before = self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(place.to_owned(), pulse);
        match (before, pulse) {
            (Some(Pulse::Silent), Pulse::Silent) => {}
            (_, Pulse::Silent) => tracing::warn!(partner = place, patience_s = PATIENCE.as_secs(), "does not answer"),
            (Some(Pulse::Silent), Pulse::Answers) => tracing::info!(partner = place, "answers again"),
            (_, Pulse::Answers | Pulse::Unknown) => {}
        }
    }
}

/// One that is gone is seen by the plugin better than from here, where its files may be out of sight.
fn pulse(seen: &Result<(), Missing>) -> Pulse {
    match seen {
        Ok(()) | Err(Missing::Bridge | Missing::ControllerNotConnected(_)) => Pulse::Answers,
        Err(missing) if missing.is_silence() => Pulse::Silent,
        Err(_) => Pulse::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn who_says_something_bad_answers_and_who_is_gone_is_unknown() {
        assert_eq!(pulse(&Ok(())), Pulse::Answers);
        assert_eq!(pulse(&Err(Missing::ControllerNotConnected("not connected".to_owned()))), Pulse::Answers);
        assert_eq!(pulse(&Err(Missing::Vswitchd(io::ErrorKind::TimedOut.into()))), Pulse::Silent);
        assert_eq!(pulse(&Err(Missing::Vswitchd(io::ErrorKind::NotFound.into()))), Pulse::Unknown);
    }

    #[test]
    fn what_was_seen_last_counts() {
        let partners = Partners::default();
        assert!(partners.seen().partners.is_empty());
        partners.note("a", Pulse::Silent);
        partners.clone().note("a", Pulse::Answers);
        assert_eq!(partners.seen().partners, [("a".to_owned(), Pulse::Answers)].into());
    }
}
