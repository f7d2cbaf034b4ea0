//! Ports of pods, which plugins have the server write: how to ask for one, and what is said of it; and which ports are about to go. Must not
//! know who writes.

pub(crate) mod names;

use std::sync::Arc;

use contract::{
    names::{Network, SandboxId},
    wire::{BridgeFacts, PortNews, PortRequest},
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use names::Names;

/// Takes requests for ports. Clones share whoever writes them.
#[derive(Debug, Clone)]
pub struct Ports {
    jobs: mpsc::UnboundedSender<Job>,
    leaving: mpsc::UnboundedSender<String>,
    bridge: watch::Receiver<Option<BridgeFacts>>,
    names: Arc<Names>,
}

/// What comes in, for whoever writes.
#[derive(Debug)]
pub struct Orders {
    pub(crate) jobs: mpsc::UnboundedReceiver<Job>,
    /// Sandboxes whose ports are about to go.
    pub(crate) leaving: mpsc::UnboundedReceiver<String>,
    /// Where ports can be written now.
    pub(crate) bridge: watch::Sender<Option<BridgeFacts>>,
    /// To be kept up to date.
    pub(crate) names: Arc<Names>,
}

/// One port that is asked for. Whoever asked has gone if nobody listens to the news.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: PortRequest,
    pub(crate) news: mpsc::UnboundedSender<PortNews>,
}

impl Ports {
    /// Requests, and who is to read them. As long as nobody does, every plugin writes its own port.
    pub fn channel() -> (Self, Orders) {
        let (sender, jobs) = mpsc::unbounded_channel();
        let (leaver, leaving) = mpsc::unbounded_channel();
        let (bridge, facts) = watch::channel(None);
        let names = Arc::new(Names::default());
        let orders = Orders { jobs, leaving, bridge, names: Arc::clone(&names) };
        (Self { jobs: sender, leaving: leaver, bridge: facts, names }, orders)
    }

    /// The bridge, as long as ports can be written and ovs-vswitchd knows nothing of the name that the sandbox's link is going to have. If it
    /// may know something, the plugin has to wait until ovs-vswitchd has let go of it, for which it needs the database itself.
    pub fn bridge_for(&self, sandbox: &SandboxId, network: &Network) -> Option<BridgeFacts> {
        let name = sandbox.host_if_name_beforehand(network);
        let is_free = name.is_none_or(|name| !self.names.may_be_held(name.as_str(), Instant::now()));
        self.bridge.borrow().clone().filter(|_| is_free)
    }

    /// Asks for a port. The news end without [`PortNews::Installed`] if it is for the plugin to go on.
    pub fn write(&self, request: PortRequest) -> mpsc::UnboundedReceiver<PortNews> {
        let (news, listener) = mpsc::unbounded_channel();
        // If nobody writes any more, the news are over.
        let _ = self.jobs.send(Job { request, news });
        listener
    }

    /// A plugin that is not this project's is about to detach a sandbox: its ports must not be put back.
    pub fn leaves(&self, sandbox: &str) {
        // If nobody reads any more, nobody puts back.
        let _ = self.leaving.send(sandbox.to_owned());
    }
}
