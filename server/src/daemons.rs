//! The health of the daemons that an ADD needs: Open vSwitch's database, ovs-vswitchd,
//! ovn-controller.
//!
//! The plugin probes them itself at each STATUS. It cannot wait until a busy daemon answers, and
//! must not call it missing because of a short silence, so the server probes them all the time and
//! with patience. No event tells of a daemon that hangs, hence the clock. Must not know what a
//! silent daemon means for a node; says nothing of a daemon that it cannot see.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use contract::{
    external_ids::OVN_INSTALLED,
    wire::{Health, StatusAnswer},
};
use podnet::{
    bridge::Bridge,
    conntrack::why_zones_are_slow,
    daemon::{Daemon, DaemonError, PATIENCE},
    settings::Settings,
};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::{
    conditions::{Conditions, Part},
    metrics::{Degraded, Metrics},
};

/// Interval between two probes: a daemon that hangs is known as such after this and `PATIENCE`, 4
/// s, at the latest. Longer, and STATUS reports a dead node late; shorter, and idle nodes pay for
/// the probes.
const EVERY: Duration = Duration::from_secs(2);

/// The last result of each probe. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Daemons {
    seen: Arc<Mutex<StatusAnswer>>,
}

/// Where the daemons are probed, and where their failures are reported.
#[derive(Debug, Clone)]
pub struct Rounds {
    /// The daemons' places as this server sees them.
    pub from_here: Settings,
    /// Their places as the plugin on the host sees them, which name the results.
    pub from_host: Settings,
    pub conditions: Conditions,
    pub metrics: Arc<Metrics>,
}

impl Daemons {
    /// Probes each daemon from now on, for as long as the runtime lives.
    pub fn watch(rounds: Rounds) -> Self {
        let daemons = Self::default();
        let rounds = Arc::new(rounds);
        // A task for each: a daemon that hangs must not delay the probes of the others.
        for daemon in Daemon::ALL {
            tokio::spawn(daemons.clone().keep_asking(daemon, Arc::clone(&rounds)));
        }
        daemons
    }

    /// The results, for the plugin.
    pub fn seen(&self) -> StatusAnswer {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, StatusAnswer> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep_asking(self, daemon: Daemon, rounds: Arc<Rounds>) {
        let place = daemon.place(&rounds.from_host);
        let (mut was_in_sight, mut is_connected) = (false, true);
        let mut ticks = interval(EVERY);
        // After a slow probe the next one is due a whole interval later, not at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let seen = daemon.ask(&rounds.from_here, PATIENCE).await;
            self.note(daemon, &place, health(&seen));
            if daemon != Daemon::Controller {
                continue;
            }
            // A process id that was never seen may be out of sight, in a container's directory. The
            // ports that OVN has installed then prove that there is an ovn-controller.
            was_in_sight |= !matches!(seen, Err(DaemonError::NoController(_)));
            let elsewhere = !was_in_sight && has_installed_ports(&rounds.from_here).await;
            self.lock().controller_elsewhere = elsewhere;
            match seen {
                Ok(()) => rounds.southbound(&mut is_connected, None),
                Err(missing @ DaemonError::ControllerNotConnected(_)) => {
                    rounds.southbound(&mut is_connected, Some(&missing))
                }
                // Such a failure says nothing about the southbound database.
                Err(_) => {}
            }
        }
    }

    /// Stores the result, and logs a change.
    fn note(&self, daemon: Daemon, place: &str, health: Health) {
        let before = self.lock().daemons.insert(place.to_owned(), health);
        match (before, health) {
            (Some(Health::Silent), Health::Silent) => {}
            (_, Health::Silent) => {
                let why = if daemon == Daemon::Vswitchd { why_zones_are_slow() } else { None };
                tracing::warn!(
                    daemon = place,
                    patience_s = PATIENCE.as_secs(),
                    why,
                    "does not answer"
                )
            }
            (Some(Health::Silent), Health::Answers) => {
                tracing::info!(daemon = place, "answers again")
            }
            (_, Health::Answers | Health::Unknown) => {}
        }
    }
}

impl Rounds {
    /// Logs that ovn-controller loses the southbound database, or is connected again. STATUS does
    /// not mention it: the database is not this node's, and all nodes would be out of service at
    /// once.
    fn southbound(&self, is_connected: &mut bool, trouble: Option<&DaemonError>) {
        match trouble {
            Some(trouble) => {
                self.metrics.degraded(Degraded::SouthboundDatabase);
                let why = format!("{trouble}: running pods go on, new ones wait");
                // Logged once for each loss; the probe repeats.
                if *is_connected {
                    tracing::warn!(why, "degraded");
                }
                self.conditions.remark(Part::OPEN_VSWITCH, why);
            }
            None => {
                self.metrics.recovered(Degraded::SouthboundDatabase);
                if !*is_connected {
                    tracing::info!("ovn-controller is connected to the southbound database again");
                }
                self.conditions.unremark(Part::OPEN_VSWITCH);
            }
        }
        *is_connected = trouble.is_none();
    }
}

/// Whether OVN has installed a pod's port: then there is an ovn-controller, wherever its files are.
async fn has_installed_ports(settings: &Settings) -> bool {
    let look = async { Bridge::connect(&settings.ovsdb, PATIENCE).await?.of_all_sandboxes().await };
    let Ok(Ok(rows)) = timeout(PATIENCE, look).await else { return false };
    rows.iter().any(|row| row.id(OVN_INSTALLED) == Some("true"))
}

/// The result for STATUS. A daemon that seems to be gone is `Unknown`: the plugin on the host sees
/// that better than this server, from which the daemon's files may be out of sight.
fn health(seen: &Result<(), DaemonError>) -> Health {
    match seen {
        Ok(()) | Err(DaemonError::Bridge | DaemonError::ControllerNotConnected(_)) => {
            Health::Answers
        }
        Err(missing) if missing.is_silence() => Health::Silent,
        Err(_) => Health::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn who_says_something_bad_answers_and_who_is_gone_is_unknown() {
        assert_eq!(health(&Ok(())), Health::Answers);
        assert_eq!(
            health(&Err(DaemonError::ControllerNotConnected("not connected".to_owned()))),
            Health::Answers
        );
        assert_eq!(
            health(&Err(DaemonError::Vswitchd(io::ErrorKind::TimedOut.into()))),
            Health::Silent
        );
        assert_eq!(
            health(&Err(DaemonError::Vswitchd(io::ErrorKind::NotFound.into()))),
            Health::Unknown
        );
    }

    #[test]
    fn what_was_seen_last_counts() {
        let daemons = Daemons::default();
        assert!(daemons.seen().daemons.is_empty());
        daemons.note(Daemon::Vswitchd, "a", Health::Silent);
        daemons.clone().note(Daemon::Vswitchd, "a", Health::Answers);
        assert_eq!(daemons.seen().daemons, [("a".to_owned(), Health::Answers)].into());
    }
}
