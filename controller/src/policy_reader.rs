//! Reads NetworkPolicies again whose rules are not in memory, and which are within the limits of
//! their namespace now. Knows neither limits nor rows.

use std::collections::VecDeque;

use contract::{backoff::Backoff, names::PolicyKey};
use kubeapi::{
    Connection,
    watch::{Selection, find},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, WeakUnboundedSender},
    time::sleep,
};

use crate::{kinds::network_policy::wire::PolicyObject, watch_event::WatchEvent};

/// Reads each policy that is wanted, one after the other, until the channel of those or the
/// receiver of observations ends. A policy that the API server does not find is asked for no more:
/// its watch tells.
pub async fn run(
    connection: Connection,
    mut wanted: UnboundedReceiver<PolicyKey>,
    observations: WeakUnboundedSender<WatchEvent>,
) {
    let mut queue = VecDeque::new();
    let mut backoff = Backoff::default();
    loop {
        if queue.is_empty() {
            let Some(key) = wanted.recv().await else { return };
            queue.push_back(key);
        }
        while let Ok(key) = wanted.try_recv() {
            queue.push_back(key);
        }
        let Some(key) = queue.pop_front() else { continue };
        let found =
            find::<PolicyObject>(&connection, &Selection::default(), key.namespace(), key.name())
                .await;
        match found {
            Ok(found) => {
                backoff.reset();
                let Some(observations) = observations.upgrade() else { return };
                if let Some((key, policy)) = found
                    && observations.send(WatchEvent::Reread(key, Box::new(policy))).is_err()
                {
                    return;
                }
            }
            Err(trouble) => {
                tracing::debug!(policy = %key, why = trouble.text, "a policy cannot be read again yet");
                queue.push_back(key);
                sleep(backoff.next(trouble.retry_after)).await;
            }
        }
    }
}
