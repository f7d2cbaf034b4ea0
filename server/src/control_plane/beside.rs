//! The control plane's roles in one process with a node's server. When they lose the election, they end and stand by again: the node's
//! pods go on (docs/decisions/losing-the-lease.md).

use std::sync::Arc;

use contract::backoff::Backoff;
use kubeapi::Connection;
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use super::{ControlPlaneConfig, work::Work};
use crate::{chain, conditions::Conditions, metrics::ControlPlaneMetrics};

/// The roles, as a task.
#[derive(Debug)]
pub(crate) struct Beside {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Beside {
    pub(crate) fn start(config: ControlPlaneConfig, conditions: Conditions, metrics: Arc<ControlPlaneMetrics>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(again_and_again(config, conditions, metrics, stopped));
        Self { stop, task }
    }

    /// Ends the roles, and lets go of the Lease. Takes some seconds at most.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

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
                drop(work);
                tracing::error!(error = chain(&ended), "the control plane's roles have ended and stand by; this node's server goes on");
            }
        }
        tokio::select! {
            _ = &mut stopped => return,
            // The election paces this; a defect would not.
            () = sleep(backoff.next(None)) => {}
        }
    }
}
