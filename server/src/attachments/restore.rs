//! Putting ports back: never while a call of the plugin is at work on one, never without its link, all of them in one transaction.

use std::{collections::HashSet, sync::Arc, time::Duration};

use cni::{fence::Fence, rows};
use ovsdb::{ErrorKind, TransactError};
use tokio::time::{Instant, timeout};

use super::{
    journal::{self, Attached},
    keeper::{Awaited, Done, Keeper},
};
use crate::chain;

/// Ports in one transaction: each has a fence, which is a descriptor.
const BATCH: usize = 250;
/// How long the database may take: less than a DEL waits for a fence.
const PATIENCE: Duration = Duration::from_secs(10);
/// Names in a line of the log.
const NAMED: usize = 5;

impl Keeper {
    pub(super) async fn restore(&mut self, missing: Vec<Arc<Attached>>) -> Done {
        let mut done = Done::All;
        for batch in missing.chunks(BATCH) {
            if self.restore_batch(batch).await == Done::NotAll {
                done = Done::NotAll;
            }
        }
        done
    }

    async fn restore_batch(&mut self, batch: &[Arc<Attached>]) -> Done {
        let (mut done, mut fenced) = (Done::All, Vec::new());
        for attached in batch {
            match Fence::take(&attached.identity).await {
                Ok(fence) if fence.is_held() => fenced.push((attached, fence)),
                // An ADD or a DEL is at work on it, and knows better; or nobody can say whether one is.
                Ok(_) | Err(_) => done = Done::NotAll,
            }
        }
        // A DEL that ended before has taken the link; one that comes now waits for the fence.
        match self.present_links().await {
            Some(links) => fenced.retain(|(attached, _)| links.contains(&attached.name)),
            None => return Done::NotAll,
        }
        if fenced.is_empty() {
            return done;
        }
        let ports = fenced.iter().map(|(attached, _)| {
            let qos = attached.qos.filter(|qos| journal::has_qos(&self.updates, *qos));
            (attached.name.as_str(), &attached.content, qos)
        });
        let (transaction, interfaces) = rows::insert_new(ports, "put back");
        let outcome = match timeout(PATIENCE, self.client.transact(transaction)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                say(&error, fenced.len());
                return Done::NotAll;
            }
            Err(_) => {
                tracing::warn!(ports = fenced.len(), "Open vSwitch's database does not answer: ports of pods cannot be put back");
                return Done::NotAll;
            }
        };
        let pods: Vec<String> = fenced.iter().take(NAMED).map(|(attached, _)| attached.pod.to_string()).collect();
        let (ports, more) = (fenced.len(), fenced.len().saturating_sub(NAMED));
        tracing::warn!(ports, pods = pods.join(" "), more, "put back ports of pods that had vanished from Open vSwitch");
        self.around.metrics.put_back(ports);
        fenced.iter().for_each(|(attached, _)| self.around.events.put_back(&attached.pod, attached.uid()));
        let interfaces = interfaces.iter().map(|interface| outcome.uuid(interface));
        let awaited = self.awaited.get_or_insert_with(|| Awaited { since: Instant::now(), interfaces: HashSet::new() });
        awaited.interfaces.extend(interfaces);
        done
    }

    /// Names of the veths that the kernel has now.
    async fn present_links(&mut self) -> Option<HashSet<String>> {
        match self.links.list().await {
            Ok(links) => Some(links.values().map(|link| link.name.clone()).collect()),
            Err(error) => {
                tracing::warn!(error = chain(&error), "the links of this host cannot be listed");
                None
            }
        }
    }
}

fn say(error: &TransactError, ports: usize) {
    match error.kind() {
        // Somebody else was faster.
        Some(ErrorKind::TimedOut) => tracing::debug!(ports, "not put back: rows have changed meanwhile"),
        _ => tracing::warn!(ports, error = chain(error), "ports of pods cannot be put back"),
    }
}
