//! What is missing and what is done: every change of it to the log and, where systemd started the server, to systemd (sd_notify(3)).

use std::collections::BTreeMap;

use sd_notify::NotifyState;

use crate::conditions::{Conditions, NOT_STARTED, Part};

/// Tells of every change from now on, whenever it is polled, for as long as the server lives.
pub(crate) fn changes(conditions: &Conditions) -> impl Future<Output = ()> + use<> {
    let mut watch = conditions.watch();
    let mut before = watch.borrow().clone();
    async move {
        loop {
            let now = watch.borrow_and_update().clone();
            log(&before, &now);
            notify(&[NotifyState::Status(&summary(&now))]);
            before = now;
            if watch.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The unit counts as started. What is still missing is no reason to hold up other units: it may be their work.
pub(crate) fn started() {
    notify(&[NotifyState::Ready]);
}

/// The node's unit counts as started: its socket is served, or Open vSwitch, without which there is none, is waited for.
pub(crate) fn node_started(conditions: &Conditions) -> impl Future<Output = ()> + use<> {
    let mut watch = conditions.watch();
    async move {
        let is_started = |missing: &BTreeMap<Part, String>| {
            !missing.contains_key(&Part::Socket) || missing.get(&Part::OpenVSwitch).is_some_and(|why| why != NOT_STARTED)
        };
        if watch.wait_for(is_started).await.is_ok() {
            started();
        }
    }
}

/// The server was told to stop.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn log(before: &BTreeMap<Part, String>, now: &BTreeMap<Part, String>) {
    for (part, why) in now.iter().filter(|(part, why)| before.get(*part) != Some(*why)) {
        tracing::warn!(%part, why, "missing");
    }
    for part in before.keys().filter(|part| !now.contains_key(*part)) {
        tracing::info!(%part, "there");
    }
}

/// One line: what is waited for first, in the order of the start.
fn summary(missing: &BTreeMap<Part, String>) -> String {
    match missing.first_key_value() {
        None => "serving".to_owned(),
        Some((part, why)) => format!("waiting for {part}: {why}"),
    }
}

/// Where nobody listens, nothing is told.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::debug!(%error, "systemd was not told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_the_first_thing_that_is_missing() {
        let missing = [(Part::CniConf, "not started".to_owned()), (Part::OpenVSwitch, "refused".to_owned())].into();
        assert_eq!(summary(&missing), "waiting for open-vswitch: refused");
        assert_eq!(summary(&BTreeMap::new()), "serving");
    }
}
