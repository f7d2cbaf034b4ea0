//! Putting ports back: never while a call of the plugin is at work on one, never without its link, all of them in one transaction.

use std::{collections::HashSet, sync::Arc, time::Duration};

use ovsdb::{ErrorKind, TransactError, Uuid};
use podnet::{fence::Fence, rows};
use tokio::time::timeout;

use super::{
    hands::{Hands, links},
    journal::Attached,
    keeper::Done,
};
use crate::chain;

/// Ports in one transaction: each has a fence, which is a descriptor.
const BATCH: usize = 250;
/// How long the database may take: less than a DEL waits for a fence.
const PATIENCE: Duration = Duration::from_secs(10);
/// Names in a line of the log.
const NAMED: usize = 5;

/// A port that is missing, and its QoS row if that is there.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) attached: Arc<Attached>,
    pub(super) qos: Option<Uuid>,
}

/// What putting back came to.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) done: Done,
    /// The Interface rows of the ports that were put back.
    pub(super) interfaces: Vec<Uuid>,
}

impl Hands {
    pub(super) async fn restore(self, missing: Vec<Missing>) -> Restored {
        let mut all = Restored { done: Done::All, interfaces: Vec::new() };
        for batch in missing.chunks(BATCH) {
            let Restored { done, interfaces } = self.restore_batch(batch).await;
            all.interfaces.extend(interfaces);
            if done == Done::NotAll {
                all.done = Done::NotAll;
            }
        }
        all
    }

    async fn restore_batch(&self, batch: &[Missing]) -> Restored {
        let nothing = || Restored { done: Done::NotAll, interfaces: Vec::new() };
        let (mut done, mut fenced) = (Done::All, Vec::new());
        for missing in batch {
            match Fence::take(&self.plugin.calls, &missing.attached.identity) {
                Ok(fence) if fence.is_held() => fenced.push((missing, fence)),
                // An ADD or a DEL is at work on it, and knows better; or nobody can say whether one is.
                Ok(_) | Err(_) => done = Done::NotAll,
            }
        }
        // A DEL that ended before has taken the link; one that comes now waits for the fence.
        let Some(links) = links().await else { return nothing() };
        let names: HashSet<&str> = links.iter().filter(|link| link.is_veth).map(|link| link.name.as_str()).collect();
        fenced.retain(|(Missing { attached, .. }, _)| names.contains(attached.name.as_str()));
        if fenced.is_empty() {
            return Restored { done, interfaces: Vec::new() };
        }
        let ports = fenced.iter().map(|(Missing { attached, qos }, _)| (attached.name.as_str(), &attached.content, *qos));
        let (transaction, interfaces) = rows::insert_new(ports, "put back");
        let outcome = match timeout(PATIENCE, self.client.transact(transaction)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                say(&error, fenced.len());
                return nothing();
            }
            Err(_) => {
                tracing::warn!(ports = fenced.len(), "Open vSwitch's database does not answer: ports of pods cannot be put back");
                return nothing();
            }
        };
        let attached = || fenced.iter().map(|(Missing { attached, .. }, _)| attached);
        let pods: Vec<String> = attached().take(NAMED).map(|attached| attached.pod.to_string()).collect();
        let (ports, more) = (fenced.len(), fenced.len().saturating_sub(NAMED));
        tracing::warn!(ports, pods = pods.join(" "), more, "put back ports of pods that had vanished from Open vSwitch");
        self.around.metrics.put_back(ports);
        attached().for_each(|attached| self.around.events.put_back(&attached.pod, attached.uid()));
        Restored { done, interfaces: interfaces.iter().map(|interface| outcome.uuid(interface)).collect() }
    }
}

fn say(error: &TransactError, ports: usize) {
    match error.kind() {
        // Somebody else was faster.
        Some(ErrorKind::TimedOut) => tracing::debug!(ports, "not put back: rows have changed meanwhile"),
        _ => tracing::warn!(ports, error = chain(error), "ports of pods cannot be put back"),
    }
}
