//! Removes stale attachments with the code of the plugin's DEL, a slice at a time, so that no call
//! waits for many.

use std::sync::Arc;

use podnet::{
    detach::{Connections, Detacher, PartialCleanup, Removed},
    interface_lock::InterfaceLock,
    plan::Identity,
    settings::SHORT_TIMEOUT,
};

use super::{
    links::KnownLinks,
    plan::StaleAttachment,
    workers::{Workers, links},
};
use crate::{chain, kernel_thread, metrics::Reason, pods::PodSource};

/// Attachments that are removed at once. Each holds a per-interface lock, which is a descriptor,
/// and a DEL of one of them waits for all; each slice costs a list of links and a transaction.
const SLICE: usize = 50;

impl Workers {
    /// Removes those of `confirmed` that are still stale.
    pub(super) async fn sweep(self, mut confirmed: Vec<StaleAttachment>) {
        // Only the source of pods can be wrong: a link that is gone was seen on this host.
        if confirmed.iter().any(|suspect| suspect.reason == Reason::PodGone) {
            look_again(&*self.environment.pods, &mut confirmed).await;
        }
        if confirmed.is_empty() {
            return;
        }
        let detacher = Arc::new(Detacher::open(&self.plugin, SHORT_TIMEOUT).await);
        for slice in confirmed.chunks(SLICE) {
            self.sweep_slice(&detacher, slice).await;
        }
    }

    async fn sweep_slice(&self, detacher: &Arc<Detacher>, slice: &[StaleAttachment]) {
        let mut locked = Vec::new();
        for suspect in slice {
            match InterfaceLock::take_for_server(&self.plugin.calls, &suspect.identity) {
                Ok(interface_lock) if interface_lock.is_held() => {
                    locked.push((suspect, interface_lock))
                }
                // An ADD or a DEL works on it and knows better, or locks are unavailable, and none
                // can be excluded.
                Ok(_) | Err(_) => {}
            }
        }
        // Compared once more under the locks: a call may have ended just before.
        let Some(links) = links().await else { return };
        let suspects = self.rows.suspects(Arc::new(KnownLinks::of(links.iter().cloned()))).await;
        locked.retain(|(suspect, _)| suspects.contains(suspect));
        let identities: Vec<Identity> =
            locked.iter().map(|(suspect, _)| suspect.identity.clone()).collect();
        if identities.is_empty() {
            return;
        }
        // On the kernel thread, as below: it looks links up, and each look blocks while another
        // process holds the lock for links.
        let (shared, stale) = (Arc::clone(detacher), identities.clone());
        let detached = kernel_thread::ask(async move { shared.detach_all(&stale, &links).await });
        // If the runtime is shutting down, there is no result to log.
        let Ok(detached) = detached.await else { return };
        match detached {
            Ok(removed) => locked
                .iter()
                .zip(removed)
                .for_each(|((suspect, _), removed)| self.say(suspect, Ok(removed))),
            Err(leftover) if leftover.is_passing() => {
                let (attachments, error) = (identities.len(), chain(&leftover));
                tracing::warn!(attachments, error, "stale attachments cannot be removed now");
            }
            // A bad one must not keep the others from being removed: each by itself.
            Err(_) => {
                for (suspect, _) in &locked {
                    let (detacher, identity) = (Arc::clone(detacher), suspect.identity.clone());
                    let detached =
                        async move { detacher.detach(&identity, Connections::Of(&[])).await };
                    // If the runtime is shutting down, there is no result to log.
                    if let Ok(outcome) = kernel_thread::ask(detached).await {
                        self.say(suspect, outcome);
                    }
                }
            }
        }
    }

    fn say(
        &self,
        StaleAttachment { identity, pod, uid: _, reason, witnesses: _ }: &StaleAttachment,
        outcome: Result<Removed, PartialCleanup>,
    ) {
        match outcome {
            Ok(removed) => {
                self.environment.metrics.removed(*reason);
                let (sandbox, ifname) = (&identity.sandbox, &identity.if_name);
                let (ports, links) = (removed.ports.join(" "), removed.links.join(" "));
                tracing::warn!(
                    reason = reason.name(),
                    %pod,
                    %sandbox,
                    %ifname,
                    ports,
                    links,
                    "removed a stale attachment"
                );
            }
            Err(leftover) => {
                let (sandbox, error) = (&identity.sandbox, chain(&leftover));
                tracing::warn!(
                    reason = reason.name(),
                    %pod,
                    %sandbox,
                    error,
                    "a stale attachment cannot be removed"
                );
            }
        }
    }
}

/// Keeps those whose pod is gone at a second look as well, at the source itself and not in the
/// cache of this process.
async fn look_again(pods: &dyn PodSource, confirmed: &mut Vec<StaleAttachment>) {
    match pods.look_again().await {
        Ok(pods) => confirmed
            .retain(|suspect| suspect.reason != Reason::PodGone || !suspect.lives_among(&pods)),
        Err(problem) => {
            tracing::info!(
                problem,
                "cannot confirm that pods are gone: nothing of them is removed now"
            );
            confirmed.retain(|suspect| suspect.reason != Reason::PodGone);
        }
    }
}
