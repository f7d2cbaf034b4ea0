//! Reports every change of the conditions to the log and, if systemd started the process, to
//! systemd (`sd_notify(3)`).

use std::collections::BTreeMap;

use sd_notify::NotifyState;
use server::conditions::{Conditions, NOT_STARTED, Part};

/// Reports every change from this call on, for as long as the conditions live.
pub(crate) fn changes(conditions: &Conditions) -> impl Future<Output = ()> + use<> {
    // Here and not in the future: it also reports changes between this call and its first poll.
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

/// Notifies systemd that the unit has started. Missing conditions do not hold up other units, which
/// may have to meet them.
pub(crate) fn started() {
    notify(&[NotifyState::Ready]);
}

/// Notifies systemd that the node's unit has started: it serves its socket, or it waits for Open
/// vSwitch, without which there is no socket.
pub(crate) fn node_started(conditions: &Conditions) -> impl Future<Output = ()> + use<> {
    let mut watch = conditions.watch();
    async move {
        let is_started = |missing: &BTreeMap<Part, String>| {
            // Another reason than the initial one: the server has tried to connect, and waits.
            !missing.contains_key(&Part::SOCKET)
                || missing.get(&Part::OPEN_VSWITCH).is_some_and(|why| why != NOT_STARTED)
        };
        if watch.wait_for(is_started).await.is_ok() {
            started();
        }
    }
}

/// Notifies systemd that the process stops.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn log(before: &BTreeMap<Part, String>, now: &BTreeMap<Part, String>) {
    for (part, why) in now.iter().filter(|(part, why)| before.get(*part) != Some(*why)) {
        tracing::warn!(condition = %part, why, "waiting for condition");
    }
    for part in before.keys().filter(|part| !now.contains_key(*part)) {
        tracing::info!(condition = %part, "condition met");
    }
}

/// One line for systemd's status: the first missing condition, in the order of the start.
fn summary(missing: &BTreeMap<Part, String>) -> String {
    match missing.first_key_value() {
        None => "serving".to_owned(),
        Some((part, why)) => format!("waiting for {part}: {why}"),
    }
}

/// Does nothing if systemd did not start the process (`NOTIFY_SOCKET` is not set).
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
        let missing = [
            (Part::CNI_CONF, "not started".to_owned()),
            (Part::OPEN_VSWITCH, "refused".to_owned()),
        ]
        .into();
        assert_eq!(summary(&missing), "waiting for open-vswitch: refused");
        assert_eq!(summary(&BTreeMap::new()), "serving");
    }
}
