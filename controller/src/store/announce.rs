//! The store's outbox: annotations and conditions to write, and problems to report as events. Knows nothing
//! of requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contract::{
    annotation::{LEGACY, POD_NETWORKS},
    names::{ClusterPolicyKey, Network, PodKey, PolicyKey, ServiceKey},
    namespace_annotation::BadNamespaceAnnotation,
};

use super::{
    Annotated, ClusterPolicyTrouble, EgressFirewallTrouble, FirewallStatus, Spelled, Store, Texts,
    pods::Known, policy::PolicyTrouble,
};
use crate::{
    allocate::pod_network::Assigned,
    config::ClusterConfig,
    key::NodeName,
    trouble::{NodeTrouble, PodTrouble, ServiceTrouble, SharedAddress, Trouble},
};

/// Annotations to write on a pod. The patch applies only to the pod with this UID; a later pod of the same
/// name gets its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAnnotation {
    pub pod: PodKey,
    pub uid: Arc<str>,
    /// The annotations that the network was decided on. The patch replaces these and no others.
    pub over: Texts,
    network: Arc<Assigned>,
    other_networks: Option<Arc<str>>,
    config: Arc<ClusterConfig>,
}

impl PodAnnotation {
    /// The annotations by name. Thousands of pods may wait for their patch, so the text is built only when
    /// the patch is sent.
    pub fn annotations(&self) -> BTreeMap<&'static str, String> {
        let Some(network) = self.network.network(&self.config) else { return BTreeMap::new() };
        // Unreadable text is overwritten: the assigned network counts, whatever the annotation says.
        let text = network
            .write(&Network::Default, self.other_networks.as_deref())
            .or_else(|_| network.write(&Network::Default, None));
        // For programs that read only the annotation of 2018.
        let legacy = self.config.legacy_annotations.then(|| network.write_legacy()).flatten();
        [(POD_NETWORKS, text.ok()), (LEGACY, legacy)]
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)))
            .collect()
    }
}

/// Items that wait for the caller.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    annotations: BTreeSet<PodKey>,
    troubles: Vec<Trouble<PodKey, PodTrouble>>,
    of_nodes: Vec<Trouble<NodeName, NodeTrouble>>,
    shared: Vec<Trouble<PodKey, SharedAddress>>,
    of_services: Vec<Trouble<ServiceKey, ServiceTrouble>>,
    /// Idled Services that clients connect to, with their UIDs.
    need_pods: Vec<(ServiceKey, Arc<str>)>,
    of_namespaces: Vec<Trouble<Arc<str>, BadNamespaceAnnotation>>,
    of_policies: Vec<Trouble<PolicyKey, PolicyTrouble>>,
    /// Policies to read again.
    rereads: BTreeSet<PolicyKey>,
    of_cluster_policies: Vec<Trouble<ClusterPolicyKey, ClusterPolicyTrouble>>,
    conditions: BTreeSet<ClusterPolicyKey>,
    of_egress_firewalls: Vec<Trouble<Arc<str>, EgressFirewallTrouble>>,
    statuses: Vec<FirewallStatus>,
}

/// Whether the API server has a pod's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Announced {
    #[default]
    No,
    /// The annotation is queued or on its way, and has not been observed on the pod since.
    Sent,
    /// The annotation was observed on the pod.
    Seen,
}

impl Outbox {
    pub(super) fn tell_node(&mut self, trouble: Trouble<NodeName, NodeTrouble>) {
        self.of_nodes.push(trouble);
    }

    pub(super) fn tell_service(&mut self, trouble: Trouble<ServiceKey, ServiceTrouble>) {
        self.of_services.push(trouble);
    }

    pub(super) fn tell_namespace(&mut self, trouble: Trouble<Arc<str>, BadNamespaceAnnotation>) {
        self.of_namespaces.push(trouble);
    }

    pub(super) fn tell_policy(&mut self, trouble: Trouble<PolicyKey, PolicyTrouble>) {
        self.of_policies.push(trouble);
    }

    pub(super) fn reread(&mut self, key: PolicyKey) {
        self.rereads.insert(key);
    }

    pub(super) fn tell_cluster_policy(&mut self, trouble: Trouble<ClusterPolicyKey, ClusterPolicyTrouble>) {
        self.of_cluster_policies.push(trouble);
    }

    pub(super) fn tell_egress_firewall(&mut self, trouble: Trouble<Arc<str>, EgressFirewallTrouble>) {
        self.of_egress_firewalls.push(trouble);
    }

    pub(super) fn write_status(&mut self, status: FirewallStatus) {
        self.statuses.push(status);
    }

    pub(super) fn tell_pod(&mut self, trouble: Trouble<PodKey, PodTrouble>) {
        self.troubles.push(trouble);
    }

    pub(super) fn tell_shared(&mut self, trouble: Trouble<PodKey, SharedAddress>) {
        self.shared.push(trouble);
    }

    pub(super) fn forget(&mut self, key: &PodKey) {
        self.annotations.remove(key);
    }

    pub(super) fn say_condition(&mut self, key: ClusterPolicyKey) {
        self.conditions.insert(key);
    }

    pub(super) fn forget_condition(&mut self, key: &ClusterPolicyKey) {
        self.conditions.remove(key);
    }

    pub(super) fn take_conditions(&mut self) -> BTreeSet<ClusterPolicyKey> {
        std::mem::take(&mut self.conditions)
    }
}

impl Store {
    /// Annotations to write, each returned once. The writer retries until the pod is gone, has another UID,
    /// or has other annotations than the decision was based on. The store returns an annotation again if it
    /// disappears from the pod or changes.
    pub fn take_annotations(&mut self) -> Vec<PodAnnotation> {
        let keys = std::mem::take(&mut self.outbox.annotations);
        keys.into_iter().filter_map(|pod| self.annotation(pod)).collect()
    }

    /// Problems that arose since the last call, for events.
    ///
    /// A node without a subnet is not reported here: that is one problem of the node, not one of each of its
    /// pods.
    pub fn take_troubles(&mut self) -> Vec<Trouble<PodKey, PodTrouble>> {
        std::mem::take(&mut self.outbox.troubles)
    }

    /// The same for nodes.
    pub fn take_node_troubles(&mut self) -> Vec<Trouble<NodeName, NodeTrouble>> {
        std::mem::take(&mut self.outbox.of_nodes)
    }

    /// The same for Services.
    pub fn take_service_troubles(&mut self) -> Vec<Trouble<ServiceKey, ServiceTrouble>> {
        std::mem::take(&mut self.outbox.of_services)
    }

    /// Idled Services that clients have connected to since the last call, with their UIDs.
    pub fn take_needs_of_pods(&mut self) -> Vec<(ServiceKey, Arc<str>)> {
        std::mem::take(&mut self.outbox.need_pods)
    }

    /// A client connects to a Service without pods. One that is not known any more needs none.
    pub(super) fn need_pods(&mut self, service: ServiceKey) {
        if let Some((known, _)) = self.service(&service) {
            let uid = Arc::clone(&known.uid);
            self.outbox.need_pods.push((service, uid));
        }
    }

    /// The same for namespaces.
    pub fn take_namespace_troubles(&mut self) -> Vec<Trouble<Arc<str>, BadNamespaceAnnotation>> {
        std::mem::take(&mut self.outbox.of_namespaces)
    }

    /// The same for policies.
    pub fn take_policy_troubles(&mut self) -> Vec<Trouble<PolicyKey, PolicyTrouble>> {
        std::mem::take(&mut self.outbox.of_policies)
    }

    /// The same for policies of the whole cluster.
    pub fn take_cluster_policy_troubles(&mut self) -> Vec<Trouble<ClusterPolicyKey, ClusterPolicyTrouble>> {
        std::mem::take(&mut self.outbox.of_cluster_policies)
    }

    /// The same for EgressFirewalls, by their namespaces.
    pub fn take_egress_firewall_troubles(&mut self) -> Vec<Trouble<Arc<str>, EgressFirewallTrouble>> {
        std::mem::take(&mut self.outbox.of_egress_firewalls)
    }

    /// Statuses to write, each returned once.
    pub fn take_statuses(&mut self) -> Vec<FirewallStatus> {
        std::mem::take(&mut self.outbox.statuses)
    }

    /// Policies that count now, and whose rules are not in memory.
    pub fn take_rereads(&mut self) -> BTreeSet<PolicyKey> {
        std::mem::take(&mut self.outbox.rereads)
    }

    /// Address conflicts between a pod and a foreign port that began since the last call.
    pub fn take_shared(&mut self) -> Vec<Trouble<PodKey, SharedAddress>> {
        std::mem::take(&mut self.outbox.shared)
    }

    /// Queues an event that says why the pod waits.
    pub(super) fn tell_trouble(&mut self, key: &PodKey) {
        match (self.pods.get(key), self.trouble(key)) {
            // Without a subnet the node has the problem: no event on each of its pods.
            (_, Some(PodTrouble::NodeWithoutSubnet(_)) | None) | (None, _) => {}
            (Some(known), Some(why)) => {
                let trouble =
                    Trouble { subject: key.clone(), uid: Arc::clone(&known.pod.uid), why: why.clone() };
                self.outbox.tell_pod(trouble);
            }
        }
    }

    /// Queues the pod's annotations, unless they already match its network.
    pub(super) fn announce(&mut self, key: &PodKey) {
        let config = Arc::clone(&self.config);
        let node = self.pods.get(key).and_then(|known| known.pod.node.clone());
        // The controller of another zone writes the annotations of its own pods.
        let is_local = node.is_some_and(|node| self.is_local(&node));
        let Some(known) = self.pods.get_mut(key) else { return };
        match (known.is_annotated(&config), known.announced) {
            (true, _) => {
                known.announced = Announced::Seen;
                // Only a patch needs the texts, and none is needed now.
                known.pod.texts = Texts::Right;
                self.outbox.forget(key);
            }
            // The annotation is on its way; this event shows the pod as it was before.
            (false, Announced::Sent) => {}
            (false, Announced::No | Announced::Seen) if is_local => {
                known.announced = Announced::Sent;
                self.outbox.annotations.insert(key.clone());
            }
            (false, Announced::No | Announced::Seen) => {}
        }
    }

    fn annotation(&self, pod: PodKey) -> Option<PodAnnotation> {
        let known = self.pods.get(&pod)?;
        Some(PodAnnotation {
            uid: Arc::clone(&known.pod.uid),
            pod,
            over: known.pod.spelled_texts(&self.config),
            network: Arc::clone(known.network.as_ref()?),
            other_networks: known.pod.other_networks.clone(),
            config: Arc::clone(&self.config),
        })
    }
}

impl Known {
    /// Whether the pod's annotation has its network, or will have it.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(self.pod.annotated, Annotated::Network { .. }) || self.announced == Announced::Sent
    }

    /// Whether the pod's annotations match its network, in every spelling that is required.
    fn is_annotated(&self, config: &ClusterConfig) -> bool {
        match (&self.pod.annotated, &self.network) {
            (Annotated::Network { network, spelled }, Some(own)) => {
                let complete = match spelled {
                    Spelled::Both => true,
                    // A network without an address or gateway has no legacy spelling.
                    Spelled::Current => {
                        !config.legacy_annotations
                            || own.network(config).is_none_or(|network| network.write_legacy().is_none())
                    }
                    Spelled::Legacy => false,
                };
                complete && network == own
            }
            (Annotated::Network { .. } | Annotated::Nothing | Annotated::Unusable(_), _) => false,
        }
    }
}
