//! The task that keeps the flows of the bridge, also over restarts of ovs-vswitchd. Knows no flow.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use contract::error::chain;
use tokio::{sync::watch, task::JoinHandle};
use uplink::flows::{self, Event, Flows, InstallError};

/// The task, and the flows that it keeps.
#[derive(Debug)]
pub(super) struct FlowKeeper {
    run_dir: PathBuf,
    kept: Option<Kept>,
    /// Why the flows cannot be written now.
    lost: watch::Sender<Option<String>>,
}

#[derive(Debug)]
struct Kept {
    bridge: String,
    flows: Arc<Flows>,
    /// The task ends without it.
    _desired: watch::Sender<Arc<Flows>>,
    task: JoinHandle<()>,
}

impl FlowKeeper {
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), kept: None, lost: watch::Sender::default() }
    }

    /// Why the flows cannot be written; changes with it.
    pub(super) fn lost(&self) -> watch::Receiver<Option<String>> {
        self.lost.subscribe()
    }

    /// Installs the flows in the bridge, unless they are kept there already. They are there when this returns,
    /// and kept from then on.
    pub(super) async fn install(&mut self, bridge: &str, flows: Flows) -> Result<(), InstallError> {
        let is_kept = |kept: &Kept| kept.bridge == bridge && *kept.flows == flows;
        if self.kept.as_ref().is_some_and(is_kept) && self.lost.borrow().is_none() {
            return Ok(());
        }
        // The task would take the change for that of another program. The flows stay when it ends.
        if let Some(kept) = self.kept.take() {
            kept.task.abort();
        }
        let outcome = flows::install(&self.run_dir, bridge, &flows).await?;
        tracing::debug!(bridge, ?outcome, "the flows of the gateway's bridge are installed");
        self.lost.send_if_modified(|lost| lost.take().is_some());
        self.kept = Some(self.keep(bridge, Arc::new(flows)));
        Ok(())
    }

    fn keep(&self, bridge: &str, flows: Arc<Flows>) -> Kept {
        let (desired, receiver) = watch::channel(Arc::clone(&flows));
        let (run_dir, name, lost) = (self.run_dir.clone(), bridge.to_owned(), self.lost.clone());
        let task = tokio::spawn(async move {
            flows::keep(&run_dir, &name, receiver, |event| tell(&name, &lost, event)).await;
        });
        Kept { bridge: bridge.to_owned(), flows, _desired: desired, task }
    }
}

fn tell(bridge: &str, lost: &watch::Sender<Option<String>>, event: Event) {
    match event {
        Event::Installed(_) => {
            if lost.send_replace(None).is_some() {
                tracing::info!(bridge, "the flows of the gateway's bridge are back");
            }
        }
        Event::Changed => {
            tracing::warn!(
                bridge,
                "another program has changed the flows of the gateway's bridge; they are put back"
            );
        }
        Event::Lost(error) => {
            let why = chain(&error);
            tracing::warn!(bridge, error = why, "the flows of the gateway's bridge cannot be written");
            lost.send_replace(Some(why));
        }
    }
}
