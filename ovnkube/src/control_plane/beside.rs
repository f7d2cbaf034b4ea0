//! The control plane's roles in one process with a node's server. When they lose the leadership,
//! they end and start again as a standby; the node's server goes on
//! (docs/decisions/losing-the-lease.md).

use std::sync::Arc;

use contract::backoff::Backoff;
use kubeapi::Connection;
use server::conditions::Conditions;
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use super::{ControlPlaneConfig, work::Work};
use crate::{chain, metrics::ControlPlaneMetrics};

/// The task of the roles.
#[derive(Debug)]
pub(crate) struct EmbeddedRoles {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl EmbeddedRoles {
    pub(crate) fn start(
        config: ControlPlaneConfig,
        conditions: Conditions,
        metrics: Arc<ControlPlaneMetrics>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(again_and_again(config, conditions, metrics, stopped));
        Self { stop, task }
    }

    /// Ends the roles, and releases the Lease. Takes some seconds at most.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

/// Runs the roles, and starts them again when they have ended, until `stopped`.
async fn again_and_again(
    config: ControlPlaneConfig,
    conditions: Conditions,
    metrics: Arc<ControlPlaneMetrics>,
    mut stopped: oneshot::Receiver<()>,
) {
    let connection = Connection::open(config.api_server.clone());
    let mut backoff = Backoff::default();
    loop {
        let mut work = Work::start(&config, &connection, &conditions, &metrics);
        tokio::select! {
            _ = &mut stopped => {
                work.stop().await;
                return;
            }
            ended = work.ended() => {
                // With all that the roles knew: another process may write from now on.
                work.end(&ended).await;
                tracing::error!(
                    error = chain(&ended),
                    "the control plane's roles have ended and stand by; this node's server goes on"
                );
            }
        }
        tokio::select! {
            _ = &mut stopped => return,
            // An election paces the rounds. A defect that ends the roles at once would spin without
            // this.
            () = sleep(backoff.next(None)) => {}
        }
    }
}
