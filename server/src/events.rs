//! What the owner of a pod is told about its network, as events on the pod: that it is late, or why it failed. And what the owner of
//! this node is told, as events on the node: what it waits for.
//!
//! ```text
//! requests ─Notice─▶ Events ─▶ kubeapi::events ─▶ API server
//! ```
//!
//! No request ever waits for it. How notices become events, and how many: [`kubeapi::events`].

use std::time::Duration;

use crate::refusal::Refusal;
use contract::{
    error::Code,
    names::{IfaceId, Network, PodKey},
    stage::Stage,
    wire,
};
use kubeapi::{
    Connection,
    events::{About, Notice, Reporter, Teller},
    object::Object,
};

/// Who tells.
const REPORTER: &str = "ovn-kubernetes/ovnkube-node";
/// After this long without a network, a pod's owner is told.
pub(crate) const LATE: Duration = Duration::from_secs(5);
/// Where notices go. Clones are the same place; the default is none, for a server without an API server.
#[derive(Debug, Clone, Default)]
pub struct Events {
    teller: Teller,
}

impl Events {
    /// Tells the API server from now on, in the name of `node`. Needs a tokio runtime.
    pub fn start(connection: &Connection, node: &str) -> Self {
        Self { teller: Teller::start(connection.clone(), reporter(node)) }
    }

    /// Tells somebody else.
    pub fn to(teller: Teller) -> Self {
        Self { teller }
    }

    /// An ADD has waited for a while, for what `missing` says.
    pub(crate) fn late_add(&self, pod: &PodKey, uid: &str, missing: &str, hint: &str) {
        let note = format!("no network after {} s: {missing}; {hint}", LATE.as_secs());
        self.teller.tell(late(pod, uid, Stage::Annotation, note));
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
        self.teller.tell(late(pod, uid, Stage::OvnInstalled, note));
    }

    /// An ADD was refused.
    pub(crate) fn refused(&self, pod: &PodKey, uid: &str, refusal: &Refusal, hint: &str) {
        if refusal.is_for_the_owner() {
            self.teller.tell(failed(pod, uid, Some(Stage::Annotation), refusal.code(), format!("{}; {hint}", crate::chain(refusal))));
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
        self.teller.tell(failed(pod, uid, *failed_stage, code, note));
    }

    /// The pod's port had vanished from Open vSwitch, and is there again.
    pub(crate) fn put_back(&self, pod: &PodKey, uid: &str) {
        let note = "the pod had no network for a moment: its port had vanished from Open vSwitch, and was put back; the log of ovnkube on \
                    the node says when";
        self.teller.tell(Notice::new(Object::Pod(pod.clone()), uid, About::new("KeepNetwork", "NetworkRestored"), note));
    }

    /// Attached pods of this node are said to be gone, and that is not believed.
    pub(crate) fn doubtful(&self, node: &str, note: &str) {
        let about = About::new("KeepNetwork", "PodsDoubtful");
        self.teller.tell(Notice::new(Object::Node(node.into()), "", about, note.to_owned()));
    }

    /// This node has waited for a while, for what `missing` says.
    pub(crate) fn no_subnet(&self, node: &str, uid: &str, missing: &str) {
        let about = About::new("AddManagementPort", "NoSubnet");
        self.teller.tell(Notice::new(
            Object::Node(node.into()),
            uid,
            about,
            format!("{missing}; no pod of this node has a network before"),
        ));
    }
}

fn reporter(node: &str) -> Reporter {
    Reporter { controller: REPORTER, instance: node.to_owned() }
}

fn late(pod: &PodKey, uid: &str, stage: Stage, note: String) -> Notice {
    let about = About { detail: stage.to_string(), ..About::new("AddNetwork", "NetworkLate") };
    Notice::new(Object::Pod(pod.clone()), uid, about, note)
}

fn failed(pod: &PodKey, uid: &str, stage: Option<Stage>, code: Code, note: String) -> Notice {
    let detail = format!("{} {stage:?}", code.number());
    Notice::new(Object::Pod(pod.clone()), uid, About { detail, ..About::new("AddNetwork", "NetworkFailed") }, note)
}

#[cfg(test)]
mod tests;
