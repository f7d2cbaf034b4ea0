//! Removing what should not be there, by the code of the plugin's DEL.

use cni::{detach::Detacher, fence::Fence, settings::SHORT_TIMEOUT};

use super::{keeper::Keeper, plan::Suspect};
use crate::chain;

impl Keeper {
    /// Removes those of `confirmed` that should still not be there.
    pub(super) async fn sweep(&mut self, confirmed: Vec<Suspect>) {
        if confirmed.is_empty() {
            return;
        }
        let detacher = Detacher::open(&self.plugin, SHORT_TIMEOUT).await;
        for suspect in confirmed {
            let Suspect { identity, pod, reason } = &suspect;
            // An ADD or a DEL is at work on it, and knows better; or nobody can say whether one is.
            let Some(_fence) = Fence::take(identity).await.ok().filter(Fence::is_held) else { continue };
            if self.links.list().await.is_err() || !self.compare().await.is_ok_and(|plan| plan.suspects.contains(&suspect)) {
                continue;
            }
            match detacher.detach(identity, &[]).await {
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
}
