//! Ports that plugins ask the server to write: the queue of requests, the status updates that go back, and
//! the sandboxes that are being detached. Must not know which task writes the ports.

pub(crate) mod names;

use std::sync::Arc;

use contract::{
    names::{IfName, IfaceId, Network, SandboxId},
    wire::{BridgeFacts, PortStatus},
};
use podnet::{bridge::Datapath, plan::Attachment, rows::PortColumns};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use names::Names;

/// Takes requests for ports. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Ports {
    requests: mpsc::UnboundedSender<WriteRequest>,
    detaching: mpsc::UnboundedSender<String>,
    bridge: watch::Receiver<Option<BridgeFacts>>,
    names: Arc<Names>,
}

/// The receiving end of [`Ports`], for the task that writes the ports.
#[derive(Debug)]
pub struct WriteQueue {
    pub(crate) requests: mpsc::UnboundedReceiver<WriteRequest>,
    /// Sandboxes whose ports are about to be removed.
    pub(crate) detaching: mpsc::UnboundedReceiver<String>,
    /// The bridge while ports can be written; `None` otherwise.
    pub(crate) bridge: watch::Sender<Option<BridgeFacts>>,
    /// Names of interfaces that ovs-vswitchd may know; the writer keeps them up to date.
    pub(crate) names: Arc<Names>,
}

/// A request for one port. If `news` is closed, the caller has hung up.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub(crate) port: PlannedPort,
    pub(crate) news: mpsc::UnboundedSender<PortStatus>,
}

/// A port as planned from the annotations of its pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlannedPort {
    /// Name of the port, of its interface and of the host's link.
    pub(crate) name: IfName,
    /// The logical port.
    pub(crate) iface_id: IfaceId,
    pub(crate) columns: PortColumns,
}

impl PlannedPort {
    pub(crate) fn of(attachment: &Attachment, host_link: IfName) -> Self {
        let (iface_id, columns) = (attachment.iface_id.clone(), PortColumns::of(attachment));
        Self { name: host_link, iface_id, columns }
    }
}

impl Ports {
    /// The queue and its receiving end. Until a writer announces the bridge, every plugin writes its own
    /// port.
    pub fn channel() -> (Self, WriteQueue) {
        let (sender, requests) = mpsc::unbounded_channel();
        let (leaver, detaching) = mpsc::unbounded_channel();
        let (bridge, facts) = watch::channel(None);
        let names = Arc::new(Names::default());
        let queue = WriteQueue { requests, detaching, bridge, names: Arc::clone(&names) };
        (Self { requests: sender, detaching: leaver, bridge: facts, names }, queue)
    }

    /// The bridge, if the server can write the port of this sandbox: it is connected to the database, and
    /// ovs-vswitchd does not know the name that the sandbox's link will get. `None` otherwise: the plugin
    /// then connects to the database itself, and waits there until ovs-vswitchd has released the name.
    pub fn bridge_for(&self, sandbox: &SandboxId, network: &Network) -> Option<BridgeFacts> {
        // The name of a secondary network's link contains the index of the pod's end, and is new each time.
        let name = sandbox.host_if_name_beforehand(network);
        let is_free = name.is_none_or(|name| !self.names.may_be_held(name.as_str(), Instant::now()));
        self.bridge.borrow().clone().filter(|_| is_free)
    }

    /// The bridge's datapath, if the server knows the bridge.
    pub(crate) fn datapath(&self) -> Option<Datapath> {
        self.bridge.borrow().as_ref().map(|bridge| Datapath::of(&bridge.datapath_type))
    }

    /// Asks for a port. If the channel closes before [`PortStatus::Installed`], the plugin continues by
    /// itself.
    pub(crate) fn write(&self, port: PlannedPort) -> mpsc::UnboundedReceiver<PortStatus> {
        let (news, listener) = mpsc::unbounded_channel();
        // Without a writer, `news` is dropped here, which closes the channel.
        let _ = self.requests.send(WriteRequest { port, news });
        listener
    }

    /// A plugin other than this project's is about to detach a sandbox: its ports must not be restored.
    pub fn note_detach(&self, sandbox: &str) {
        // Without a reader, nothing restores ports either.
        let _ = self.detaching.send(sandbox.to_owned());
    }
}
