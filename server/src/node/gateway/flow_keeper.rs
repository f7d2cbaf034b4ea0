//! The task that keeps the flows of the bridge, also over restarts of ovs-vswitchd. Knows no flow.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use contract::error::chain;
use tokio::{sync::watch, task::JoinHandle};
use uplink::flows::{self, Event, Flows};

/// The task, and the flows that it keeps.
#[derive(Debug)]
pub(super) struct FlowKeeper {
    run_dir: PathBuf,
    kept: Option<Kept>,
    /// What the task says of the bridge.
    said: Said,
}

#[derive(Debug)]
struct Kept {
    bridge: String,
    /// The task ends without it.
    desired: watch::Sender<Arc<Flows>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, Default)]
struct Said {
    /// The flows that the bridge had last.
    installed: watch::Sender<Option<Arc<Flows>>>,
    /// Why the flows cannot be written now.
    lost: watch::Sender<Option<String>>,
}

impl FlowKeeper {
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), kept: None, said: Said::default() }
    }

    /// Why the flows cannot be written; changes with it.
    pub(super) fn lost(&self) -> watch::Receiver<Option<String>> {
        self.said.lost.subscribe()
    }

    /// Has the flows kept in the bridge from now on. They are there when this returns.
    ///
    /// # Errors
    /// Why they cannot be written. They are kept all the same, as soon as they can.
    pub(super) async fn install(&mut self, bridge: &str, flows: Flows) -> Result<(), String> {
        let flows = self.desire(bridge, flows);
        let (mut installed, mut lost) =
            (self.said.installed.subscribe(), self.said.lost.subscribe());
        loop {
            if let Some(why) = &*lost.borrow_and_update() {
                return Err(why.clone());
            }
            if installed.borrow_and_update().as_ref().is_some_and(|now| Arc::ptr_eq(now, &flows)) {
                return Ok(());
            }
            // Neither ends while this keeper has its senders.
            tokio::select! {
                _ = installed.changed() => {}
                _ = lost.changed() => {}
            }
        }
    }

    /// Tells the task of the flows, if they are others. Returns them as the task will name them.
    fn desire(&mut self, bridge: &str, flows: Flows) -> Arc<Flows> {
        match &self.kept {
            Some(kept) if kept.bridge == bridge => {
                let before = Arc::clone(&kept.desired.borrow());
                if *before == flows {
                    return before;
                }
                let flows = Arc::new(flows);
                kept.desired.send_replace(Arc::clone(&flows));
                flows
            }
            _ => {
                // The flows of another bridge stay when the task ends.
                self.leave();
                let flows = Arc::new(flows);
                self.kept = Some(self.keep(bridge, Arc::clone(&flows)));
                flows
            }
        }
    }

    /// Keeps no flows any more: the bridge goes.
    pub(super) fn leave(&mut self) {
        if let Some(kept) = self.kept.take() {
            kept.task.abort();
        }
        self.said.lost.send_if_modified(|lost| lost.take().is_some());
    }

    fn keep(&mut self, bridge: &str, flows: Arc<Flows>) -> Kept {
        let (desired, receiver) = watch::channel(flows);
        let (run_dir, name, said) = (self.run_dir.clone(), bridge.to_owned(), self.said.clone());
        let task = tokio::spawn(async move {
            flows::keep(&run_dir, &name, receiver, |event| said.tell(&name, event)).await;
        });
        Kept { bridge: bridge.to_owned(), desired, task }
    }
}

impl Said {
    fn tell(&self, bridge: &str, event: Event) {
        match event {
            Event::Installed { flows, outcome } => {
                tracing::debug!(
                    bridge,
                    ?outcome,
                    "the flows of the gateway's bridge are installed"
                );
                self.installed.send_replace(Some(flows));
                if self.lost.send_if_modified(|lost| lost.take().is_some()) {
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
                tracing::warn!(
                    bridge,
                    error = why,
                    "the flows of the gateway's bridge cannot be written"
                );
                self.lost.send_replace(Some(why));
            }
        }
    }
}
