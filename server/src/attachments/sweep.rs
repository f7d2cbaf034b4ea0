//! Removing what should not be there, by the code of the plugin's DEL: a slice at a time, so that nobody waits for many.

use std::sync::Arc;

use podnet::{
    detach::{Connections, Detacher, Leftover, Removed},
    fence::Fence,
    link::Link,
    plan::Identity,
    settings::SHORT_TIMEOUT,
};
use tokio::sync::oneshot;

use super::{
    hands::{Hands, Question, links},
    plan::{Reason, Suspect},
};
use crate::{chain, kernel_thread, pods::PodSource};

/// Attachments that are removed at once: each has a fence, which is a descriptor, and a DEL of one of them waits for all.
const SLICE: usize = 50;

impl Hands {
    /// Removes those of `confirmed` that should still not be there.
    pub(super) async fn sweep(self, mut confirmed: Vec<Suspect>) {
        if confirmed.iter().any(|suspect| suspect.reason == Reason::PodGone) {
            look_again(&*self.around.pods, &mut confirmed).await;
        }
        if confirmed.is_empty() {
            return;
        }
        let detacher = Arc::new(Detacher::open(&self.plugin, SHORT_TIMEOUT).await);
        for slice in confirmed.chunks(SLICE) {
            self.sweep_slice(&detacher, slice).await;
        }
    }

    async fn sweep_slice(&self, detacher: &Arc<Detacher>, slice: &[Suspect]) {
        let mut fenced = Vec::new();
        for suspect in slice {
            match Fence::take(&self.plugin.calls, &suspect.identity) {
                Ok(fence) if fence.is_held() => fenced.push((suspect, fence)),
                // An ADD or a DEL is at work on it, and knows better; or nobody can say whether one is.
                Ok(_) | Err(_) => {}
            }
        }
        let Some(links) = links().await.map(Arc::new) else { return };
        let suspects = self.suspects(Arc::clone(&links)).await;
        fenced.retain(|(suspect, _)| suspects.contains(suspect));
        let identities: Vec<Identity> = fenced.iter().map(|(suspect, _)| suspect.identity.clone()).collect();
        if identities.is_empty() {
            return;
        }
        match detacher.detach_all(&identities, &links).await {
            Ok(removed) => fenced.iter().zip(removed).for_each(|((suspect, _), removed)| self.say(suspect, Ok(removed))),
            Err(leftover) if leftover.is_passing() => {
                let (attachments, error) = (identities.len(), chain(&leftover));
                tracing::warn!(attachments, error, "what is left of pods' networks cannot be removed now");
            }
            // One of them must not keep the others.
            Err(_) => {
                for (suspect, _) in &fenced {
                    let (detacher, identity) = (Arc::clone(detacher), suspect.identity.clone());
                    let detached = async move { detacher.detach(&identity, Connections::Of(&[])).await };
                    // Nobody is left to hear of it where the runtime ends.
                    if let Ok(outcome) = kernel_thread::ask(detached).await {
                        self.say(suspect, outcome);
                    }
                }
            }
        }
    }

    /// Who is suspected now, where these are the host's links.
    async fn suspects(&self, links: Arc<Vec<Link>>) -> Vec<Suspect> {
        let (answer, suspects) = oneshot::channel();
        // Where nobody answers, the server ends.
        let _ = self.questions.send(Question { links, answer });
        suspects.await.unwrap_or_default()
    }

    fn say(&self, Suspect { identity, pod, uid: _, reason, witnesses: _ }: &Suspect, outcome: Result<Removed, Leftover>) {
        match outcome {
            Ok(removed) => {
                self.around.metrics.removed(*reason);
                let (sandbox, ifname) = (&identity.sandbox, &identity.if_name);
                let (ports, links) = (removed.ports.join(" "), removed.links.join(" "));
                tracing::warn!(reason = reason.name(), %pod, %sandbox, %ifname, ports, links, "removed what was left of a pod's network");
            }
            Err(leftover) => {
                let (sandbox, error) = (&identity.sandbox, chain(&leftover));
                tracing::warn!(reason = reason.name(), %pod, %sandbox, error, "what is left of a pod's network cannot be removed");
            }
        }
    }
}

/// Leaves those whose pod is gone at a second look, too, which does not go through what this process remembers.
async fn look_again(pods: &dyn PodSource, confirmed: &mut Vec<Suspect>) {
    match pods.look_again().await {
        Ok(pods) => confirmed.retain(|suspect| suspect.reason != Reason::PodGone || !suspect.lives_among(&pods)),
        Err(problem) => {
            tracing::info!(problem, "whether pods are gone cannot be looked at again: nothing of them is removed now");
            confirmed.retain(|suspect| suspect.reason != Reason::PodGone);
        }
    }
}
