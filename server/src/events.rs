//! Kubernetes events about the network. On a pod: that its network is late, or why it failed. On
//! the node: what it waits for.
//!
//! ```text
//! requests ─▶ Events ─▶ kubeapi::events ─▶ API server
//! ```
//!
//! No request ever waits for an event. [`kubeapi::events`] limits the number of events.

use std::time::Duration;

use crate::api_error::ApiError;
use contract::{
    error::Code,
    names::{IfaceId, Network, PodKey},
    stage::Stage,
    wire,
};
use kubeapi::{
    Connection,
    events::{Event, EventReason, Recorder, Reporter},
    object::Object,
};

/// Name of the reporting controller.
const REPORTER: &str = "ovn-kubernetes/ovnkube-node";
/// A pod that has no network after this long gets an event. Shorter, and pods that merely start
/// together would get one; longer, and their owners look for the reason elsewhere.
pub(crate) const LATE: Duration = Duration::from_secs(5);
/// Sends events. Clones share one queue; the default discards them, for a server without an API
/// server.
#[derive(Debug, Clone, Default)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// Sends events to the API server from now on, in the name of `node`. Needs a tokio runtime.
    pub fn start(connection: &Connection, node: &str) -> Self {
        Self { recorder: Recorder::start(connection.clone(), reporter(node)) }
    }

    /// Sends events to `recorder`.
    pub fn to(recorder: Recorder) -> Self {
        Self { recorder }
    }

    /// An ADD is late: it waits for what `missing` says.
    pub(crate) fn late_add(&self, pod: &PodKey, uid: &str, missing: &str, hint: &str) {
        let note = format!("no network after {} s: {missing}; {hint}", LATE.as_secs());
        self.recorder.event(late(pod, uid, Stage::Annotation, note));
    }

    /// A port is late: the plugin waits for Open vSwitch or OVN.
    pub(crate) fn late_port(&self, pod: &PodKey, uid: &str, network: &Network) {
        let port = IfaceId::new(pod, network);
        let note = format!(
            "no network after {} s: Open vSwitch or ovn-controller on the node have not taken \
             the pod's interface yet; does OVN know port {} (ovn-nbctl lsp-get-type), \
             and is ovn-controller on the node connected? See its log there",
            LATE.as_secs(),
            port.as_str()
        );
        self.recorder.event(late(pod, uid, Stage::OvnInstalled, note));
    }

    /// An ADD was refused.
    pub(crate) fn refused(&self, pod: &PodKey, uid: &str, refusal: &ApiError, hint: &str) {
        if refusal.is_for_the_owner() {
            self.recorder.event(failed(
                pod,
                uid,
                Some(Stage::Annotation),
                refusal.code(),
                format!("{}; {hint}", crate::chain(refusal)),
            ));
        }
    }

    /// A plugin has reported on a call. A refusal of this server became an event when it was
    /// answered.
    pub(crate) fn reported(&self, pod: &PodKey, uid: &str, report: &wire::Metrics) {
        let wire::Metrics { command, has_err, code, message, failed_stage, .. } = report;
        let code = code.map_or(Code::Internal, Code::from_number);
        // A pod that was deleted or replaced meanwhile has no owner to tell.
        let expected = matches!(code, Code::UnknownContainer | Code::Superseded);
        if command != "ADD" || !has_err || expected || *failed_stage == Some(Stage::Annotation) {
            return;
        }
        // Upstream's plugin does not say why.
        let why = message.as_deref().unwrap_or("the CNI plugin failed");
        let stage = failed_stage.map(|stage| format!(" (stage {stage})")).unwrap_or_default();
        let note = format!("{why}{stage}; see the log of the CNI plugin on the node");
        self.recorder.event(failed(pod, uid, *failed_stage, code, note));
    }

    /// The pod's port had vanished from Open vSwitch and was restored.
    pub(crate) fn put_back(&self, pod: &PodKey, uid: &str) {
        let note = "the pod had no network for a moment: its port had vanished from Open vSwitch, \
                    and was put back; the log of ovnkube on the node says when";
        self.recorder.event(Event::new(
            Object::Pod(pod.clone()),
            uid,
            EventReason::new("KeepNetwork", "NetworkRestored"),
            note,
        ));
    }

    /// The pod has a limit for what it sends, which the node's datapath cannot keep.
    pub(crate) fn not_limited(&self, pod: &PodKey, uid: &str) {
        let note = "what the pod sends is not limited: Open vSwitch polices in the kernel, and the packets \
                    of its userspace datapath (datapath_type=netdev of br-int) do not pass there";
        let reason = EventReason::new("AddNetwork", "EgressNotLimited");
        self.recorder.event(Event::new(Object::Pod(pod.clone()), uid, reason, note));
    }

    /// The source of pods says that attached pods are gone, and nothing confirms it.
    pub(crate) fn doubtful(&self, node: &str, note: &str) {
        let reason = EventReason::new("KeepNetwork", "PodsDoubtful");
        self.recorder.event(Event::new(Object::Node(node.into()), "", reason, note.to_owned()));
    }

    /// ovs-vswitchd of this node is of a release whose userspace datapath ends at an assertion.
    /// `fixed`: the releases that have the fix.
    pub(crate) fn aborting_switch(&self, node: &str, release: &str, fixed: &str) {
        let reason = EventReason::new("StartNode", "OpenVSwitchAborts");
        let note = format!(
            "Open vSwitch {release} aborts in its userspace datapath under connections of pods, and the node \
             has no network until it runs again; fixed in {fixed}"
        );
        self.recorder.event(Event::new(Object::Node(node.into()), "", reason, note));
    }

    /// The server does not make the node's NIC the uplink of a bridge, or has given it back.
    pub(crate) fn uplink_not_moved(&self, node: &str, note: &str) {
        let reason = EventReason::new("StartGateway", "UplinkNotMoved");
        self.recorder.event(Event::new(Object::Node(node.into()), "", reason, note.to_owned()));
    }

    /// The node waits for a subnet; `missing` says what is missing.
    pub(crate) fn no_subnet(&self, node: &str, uid: &str, missing: &str) {
        let reason = EventReason::new("AddManagementPort", "NoSubnet");
        self.recorder.event(Event::new(
            Object::Node(node.into()),
            uid,
            reason,
            format!("{missing}; no pod of this node gets a network until then"),
        ));
    }
}

fn reporter(node: &str) -> Reporter {
    Reporter { controller: REPORTER, instance: node.to_owned() }
}

fn late(pod: &PodKey, uid: &str, stage: Stage, note: String) -> Event {
    let reason =
        EventReason { detail: stage.to_string(), ..EventReason::new("AddNetwork", "NetworkLate") };
    Event::new(Object::Pod(pod.clone()), uid, reason, note)
}

fn failed(pod: &PodKey, uid: &str, stage: Option<Stage>, code: Code, note: String) -> Event {
    let detail = format!("{} {stage:?}", code.number());
    Event::new(
        Object::Pod(pod.clone()),
        uid,
        EventReason { detail, ..EventReason::new("AddNetwork", "NetworkFailed") },
        note,
    )
}

#[cfg(test)]
mod tests;
