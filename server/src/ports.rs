//! Ports that plugins ask the server to write: the queue of requests, the status updates that go
//! back, and the sandboxes that are being detached. Must not know which task writes the ports.

pub(crate) mod names;

use std::sync::Arc;

use contract::{
    names::{IfName, IfaceId, Network, SandboxId},
    wire::{BridgeFacts, PortStatus, PortWriter},
};
use podnet::{bridge::Datapath, plan::Attachment, rows::PortColumns};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use names::Names;

/// Up to so many calls at once are no burst: each plugin writes its own port. With 4, bursts of 8
/// to 32 pods are a tenth slower, because the first plugins of each write alone
/// (docs/decisions/ports-written-together.md).
pub(crate) const FEW_CALLS: usize = 2;

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
    /// The queue and its receiving end. Until a writer announces the bridge, every plugin writes
    /// its own port.
    pub fn channel() -> (Self, WriteQueue) {
        let (sender, requests) = mpsc::unbounded_channel();
        let (leaver, detaching) = mpsc::unbounded_channel();
        let (bridge, facts) = watch::channel(None);
        let names = Arc::new(Names::default());
        let queue = WriteQueue { requests, detaching, bridge, names: Arc::clone(&names) };
        (Self { requests: sender, detaching: leaver, bridge: facts, names }, queue)
    }

    /// The bridge, and the program that adds the port of this sandbox while so many calls are under
    /// way. `None` if the server is not connected to the database, or if ovs-vswitchd may still
    /// have the name that the sandbox's link will get: the plugin then waits in the database until
    /// the name is free.
    pub fn bridge_for(
        &self,
        sandbox: &SandboxId,
        network: &Network,
        calls: usize,
    ) -> Option<BridgeFacts> {
        // The name of a secondary network's link contains the index of the pod's end, and is new
        // each time.
        let name = sandbox.host_if_name_beforehand(network);
        let is_free =
            name.is_none_or(|name| !self.names.may_be_held(name.as_str(), Instant::now()));
        let writer = if calls <= FEW_CALLS { PortWriter::Plugin } else { PortWriter::Server };
        self.bridge
            .borrow()
            .clone()
            .filter(|_| is_free)
            .map(|bridge| BridgeFacts { writer, ..bridge })
    }

    /// The bridge's datapath, if the server knows the bridge.
    pub(crate) fn datapath(&self) -> Option<Datapath> {
        self.bridge.borrow().as_ref().map(|bridge| Datapath::of(&bridge.datapath_type))
    }

    /// Asks for a port. If the channel closes before [`PortStatus::Installed`], the plugin
    /// continues by itself.
    pub(crate) fn write(&self, port: PlannedPort) -> mpsc::UnboundedReceiver<PortStatus> {
        let (news, listener) = mpsc::unbounded_channel();
        // Without a writer, `news` is dropped here, which closes the channel.
        let _ = self.requests.send(WriteRequest { port, news });
        listener
    }

    /// A plugin other than this project's is about to detach a sandbox: its ports must not be
    /// restored.
    pub fn note_detach(&self, sandbox: &str) {
        // Without a reader, nothing restores ports either.
        let _ = self.detaching.send(sandbox.to_owned());
    }
}
