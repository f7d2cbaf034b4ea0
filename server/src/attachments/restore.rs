//! Restores ports: never while a call of the plugin works on one, never without its link, up to 250
//! in one transaction.

use std::{collections::HashSet, sync::Arc, time::Duration};

use ovsdb::{ErrorKind, TransactError, Uuid};
use podnet::{interface_lock::InterfaceLock, rows};
use tokio::time::timeout;

use super::{
    Repaired,
    port_cache::RecordedPort,
    workers::{Workers, links},
};
use crate::chain;

/// Ports in one transaction. Each holds a per-interface lock, which is a descriptor; a process
/// usually has
/// 1024. Fewer means more transactions, for each of which ovs-vswitchd goes through its
///       configuration.
const BATCH: usize = 250;
/// How long the database may take. A DEL of one of the pods, which needs the database, too, does
/// not wait as long for the lock.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pods that a log line names; the others are counted.
const NAMED: usize = 5;

/// A port that is missing, and its QoS row if that still exists.
#[derive(Debug)]
pub(super) struct MissingPort {
    pub(super) attached: Arc<RecordedPort>,
    pub(super) qos: Option<Uuid>,
}

/// The result of a restoration.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) done: Repaired,
    /// The Interface rows of the restored ports.
    pub(super) interfaces: Vec<Uuid>,
}

impl Workers {
    pub(super) async fn restore(self, missing: Vec<MissingPort>) -> Restored {
        let mut all = Restored { done: Repaired::All, interfaces: Vec::new() };
        for batch in missing.chunks(BATCH) {
            let Restored { done, interfaces } = self.restore_batch(batch).await;
            all.interfaces.extend(interfaces);
            if done == Repaired::NotAll {
                all.done = Repaired::NotAll;
            }
        }
        all
    }

    async fn restore_batch(&self, batch: &[MissingPort]) -> Restored {
        let nothing = || Restored { done: Repaired::NotAll, interfaces: Vec::new() };
        let (mut done, mut locked) = (Repaired::All, Vec::new());
        for missing in batch {
            match InterfaceLock::take_for_server(&self.plugin.calls, &missing.attached.identity) {
                Ok(interface_lock) if interface_lock.is_held() => {
                    locked.push((missing, interface_lock))
                }
                // An ADD or a DEL works on it and knows better, or locks are unavailable, and none
                // can be excluded.
                Ok(_) | Err(_) => done = Repaired::NotAll,
            }
        }
        // Listed under the locks: a DEL that has ended has removed the link, and one that comes now
        // waits.
        let Some(links) = links().await else { return nothing() };
        let names: HashSet<&str> =
            links.iter().filter(|link| link.is_veth).map(|link| link.name.as_str()).collect();
        locked.retain(|(MissingPort { attached, .. }, _)| names.contains(attached.name.as_str()));
        if locked.is_empty() {
            return Restored { done, interfaces: Vec::new() };
        }
        let ports = locked.iter().map(|(MissingPort { attached, qos }, _)| {
            (attached.name.as_str(), &attached.content, *qos)
        });
        let (transaction, interfaces) = rows::insert_new(ports, "put back");
        // `locked` holds the locks until the database has answered.
        let outcome = match timeout(PATIENCE, self.environment.client.transact(transaction)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                say(&error, locked.len());
                return nothing();
            }
            Err(_) => {
                tracing::warn!(
                    ports = locked.len(),
                    "Open vSwitch's database does not answer: ports of pods cannot be put back"
                );
                return nothing();
            }
        };
        let attached = || locked.iter().map(|(MissingPort { attached, .. }, _)| attached);
        let pods: Vec<String> =
            attached().take(NAMED).map(|attached| attached.pod.to_string()).collect();
        let (ports, more) = (locked.len(), locked.len().saturating_sub(NAMED));
        tracing::warn!(
            ports,
            pods = pods.join(" "),
            more,
            "put back ports of pods that had vanished from Open vSwitch"
        );
        self.environment.metrics.put_back(ports);
        attached()
            .for_each(|attached| self.environment.events.put_back(&attached.pod, attached.uid()));
        Restored {
            done,
            interfaces: interfaces.iter().map(|interface| outcome.uuid(interface)).collect(),
        }
    }
}

fn say(error: &TransactError, ports: usize) {
    match error.kind() {
        // A wait operation of the transaction has failed (RFC 7047, section 5.2.6): another writer
        // was faster.
        Some(ErrorKind::TimedOut) => {
            tracing::debug!(ports, "not put back: rows have changed meanwhile")
        }
        _ => tracing::warn!(ports, error = chain(error), "ports of pods cannot be put back"),
    }
}
