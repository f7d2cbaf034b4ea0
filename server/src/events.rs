//! What the owner of a pod is told about its network, as events on the pod: that it is late, or why it failed. And what the owner of
//! this node is told, as events on the node: what it waits for.
//!
//! ```text
//! requests ─Notice─▶ Events ═ bounded ═▶ teller ─▶ Book (what is due, of what series) ─▶ API server: create, patch
//! ```
//!
//! No request ever waits for it. What there is no room or no API server for is counted, and the count is in the log. Repetitions become
//! one event that counts. Needs `create` on `events.k8s.io/events`, and `patch` for the counting; without `patch` a repetition is
//! another event, some time later.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use contract::{
    error::Code,
    names::{IfaceId, Network, PodKey},
    stage::Stage,
    wire,
};
use tokio::sync::mpsc;

use crate::{api_server::Connection, refusal::Refusal};

mod book;
mod notice;
mod teller;

pub use notice::Notice;

/// After this long without a network, a pod's owner is told.
pub(crate) const LATE: Duration = Duration::from_secs(5);
/// Notices that may wait for the API server; more are lost.
const WAITING: usize = 256;

/// Where notices go. Clones are the same place; the default is none, for a server without an API server.
#[derive(Debug, Clone, Default)]
pub struct Events {
    to: Option<Recipient>,
}

#[derive(Debug, Clone)]
struct Recipient {
    notices: mpsc::Sender<Notice>,
    /// That found no room.
    lost: Arc<AtomicU64>,
}

impl Events {
    /// Tells the API server from now on, in the name of `node`. Needs a tokio runtime.
    pub fn start(connection: Connection, node: &str) -> Self {
        let (notices, waiting) = mpsc::channel(WAITING);
        let lost = Arc::<AtomicU64>::default();
        tokio::spawn(teller::tell(connection, node.to_owned(), waiting, Arc::clone(&lost)));
        Self { to: Some(Recipient { notices, lost }) }
    }

    /// An ADD has waited for a while, for what `missing` says.
    pub(crate) fn late_add(&self, pod: &PodKey, uid: &str, missing: &str, hint: &str) {
        let note = format!("no network after {} s: {missing}; {hint}", LATE.as_secs());
        self.tell(Notice::late(pod, uid, Stage::Annotation, note));
    }

    /// The plugin has been at work for a while.
    pub(crate) fn late_port(&self, pod: &PodKey, uid: &str, network: &Network) {
        let port = IfaceId::new(pod, network);
        let note = format!(
            "no network after {} s: Open vSwitch or ovn-controller on the node have not taken the pod's interface yet; does OVN know \
             port {} (ovn-nbctl lsp-get-type), and is ovn-controller on the node connected? See its log there",
            LATE.as_secs(),
            port.as_str()
        );
        self.tell(Notice::late(pod, uid, Stage::OvnInstalled, note));
    }

    /// An ADD was refused.
    pub(crate) fn refused(&self, pod: &PodKey, uid: &str, refusal: &Refusal, hint: &str) {
        if refusal.is_for_the_owner() {
            self.tell(Notice::failed(pod, uid, Some(Stage::Annotation), refusal.code(), format!("{}; {hint}", crate::chain(refusal))));
        }
    }

    /// The plugin reported. A refusal of this server's was told already, when it was answered.
    pub(crate) fn reported(&self, pod: &PodKey, uid: &str, report: &wire::Metrics) {
        let wire::Metrics { command, has_err, code, message, failed_stage, .. } = report;
        let code = code.map_or(Code::Internal, Code::from_number);
        let expected = matches!(code, Code::UnknownContainer | Code::Superseded);
        if command != "ADD" || !has_err || expected || *failed_stage == Some(Stage::Annotation) {
            return;
        }
        // Upstream's plugin does not say why.
        let why = message.as_deref().unwrap_or("the CNI plugin failed");
        let stage = failed_stage.map(|stage| format!(" (stage {stage})")).unwrap_or_default();
        let note = format!("{why}{stage}; see the log of the CNI plugin on the node");
        self.tell(Notice::failed(pod, uid, *failed_stage, code, note));
    }

    /// This node has waited for a while, for what `missing` says.
    pub(crate) fn no_subnet(&self, node: &str, uid: &str, missing: &str) {
        self.tell(Notice::no_subnet(node, uid, format!("{missing}; no pod of this node has a network before")));
    }

    fn tell(&self, notice: Notice) {
        let Some(Recipient { notices, lost }) = &self.to else { return };
        if notices.try_send(notice).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
