//! Ports that were restored, until they work. Only logs.

use std::{collections::HashSet, future::pending, time::Duration};

use ovsdb::{Updates, Uuid};
use tokio::time::{Instant, sleep_until};

use super::port_cache;

/// How long ovn-controller may take to install restored ports before that is logged: it may be
/// restarting, too, and then goes through all of its flows.
const INSTALL: Duration = Duration::from_secs(10);

/// Restored interfaces that do not work yet, and since when.
#[derive(Debug, Default)]
pub(super) struct RestoredPorts(Option<(Instant, HashSet<Uuid>)>);

impl RestoredPorts {
    pub(super) fn add(&mut self, interfaces: Vec<Uuid>, updates: &Updates) {
        if !interfaces.is_empty() {
            self.0.get_or_insert_with(|| (Instant::now(), HashSet::new())).1.extend(interfaces);
            self.changed(updates);
        }
    }

    /// Logs once all of them work.
    pub(super) fn changed(&mut self, updates: &Updates) {
        let Some((since, interfaces)) = &mut self.0 else { return };
        interfaces.retain(|interface| !port_cache::is_installed(updates, *interface));
        if interfaces.is_empty() {
            tracing::info!(
                ms = since.elapsed().as_millis(),
                "ovn-controller has connected the ports that were put back"
            );
            self.0 = None;
        }
    }

    /// Waits until they have had enough time; for ever if there are none. Cancellation-safe.
    pub(super) async fn late(&self) {
        match &self.0 {
            Some((since, _)) => sleep_until(*since + INSTALL).await,
            None => pending().await,
        }
    }

    /// Warns of those that do not work although they have had enough time, and forgets all.
    pub(super) fn say_late(&mut self, updates: &Updates) {
        let Some((_, mut interfaces)) = self.0.take() else { return };
        // A port that was detached meanwhile is not late.
        interfaces
            .retain(|interface| updates.row::<port_cache::InterfaceRow>(*interface).is_some());
        let ports = interfaces.len();
        if ports > 0 {
            let hint = "does OVN know them (ovn-nbctl lsp-get-type), and is ovn-controller on this node \
                        connected? See its log";
            tracing::warn!(ports, hint, "ports that were put back do not work yet");
        }
    }
}
