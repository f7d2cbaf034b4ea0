//! Compares rows, links and pods: which ports are missing, and which attachments are stale. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use contract::{
    annotation::PodNetwork,
    bandwidth::Bandwidth,
    external_ids::NETWORK,
    mtu::Mtu,
    names::{IfaceId, Network, PodKey},
    wire::PodInterface,
};
use podnet::{
    link::Link,
    ownership_tag::{OwnershipTag, TaggedPod},
    plan::{Attachment, Identity},
    rows::PortColumns,
};

use super::{OwnNode, port_cache::RecordedPort};
use crate::{
    metrics::Reason,
    pods::{MIGRATABLE, PodFacts},
};

/// So many attached pods may be gone at once beside at least one that is known, although nothing
/// confirms that the source of pods speaks of this host: a Deployment that is deleted, but not a
/// node. Smaller, and ordinary deletions are doubted; larger, and the list of another cluster could
/// empty a small node.
const BELIEVABLE: usize = 10;

/// What is known of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    Living(PodFacts),
    /// The pod is gone, or another one has its name.
    Gone,
    /// The source cannot tell at the moment.
    Unknown,
}

/// Everything that is compared.
pub(super) struct AttachmentView<'a> {
    /// Attachments as recorded, whether their rows still exist or not.
    pub(super) recorded: &'a [Arc<RecordedPort>],
    /// The pods' ports that exist.
    pub(super) present: &'a [Arc<RecordedPort>],
    /// Names of all interfaces in the database.
    pub(super) names: &'a HashSet<&'a str>,
    /// The host's ends of veths.
    pub(super) links: &'a HashMap<u32, Link>,
    /// Names of the host's links other than veths.
    pub(super) others: &'a HashSet<&'a str>,
    /// Names of the interfaces for which ovs-vswitchd finds no device.
    pub(super) deviceless: &'a HashSet<&'a str>,
    pub(super) own_node: &'a OwnNode,
    pub(super) pods: &'a dyn Fn(&PodKey, &str) -> Life,
}

/// The result of the comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Ports to restore.
    pub(super) missing: Vec<Arc<RecordedPort>>,
    /// Stale attachments.
    pub(super) suspects: Vec<StaleAttachment>,
    /// Why the source is not believed that pods are gone. None of them is suspected then.
    pub(super) doubt: Option<Doubt>,
}

/// More pods are said to be gone than an unconfirmed source is believed: the server may have been
/// started in the name of another node, with the API server of another cluster, or before its
/// manifests were mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doubt {
    /// Attached pods that are said to be gone.
    pub(super) gone: usize,
    /// Attached pods that are known.
    pub(super) known: usize,
    /// Why the source is not confirmed.
    pub(super) why: String,
}

/// An attachment that is stale, if that is confirmed.
#[derive(Debug, Clone)]
pub(super) struct StaleAttachment {
    pub(super) identity: Identity,
    pub(super) pod: PodKey,
    /// UID of the pod; empty if unknown.
    pub(super) uid: String,
    pub(super) reason: Reason,
    pub(super) witnesses: Witnesses,
}

/// The evidence that an attachment is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Witnesses {
    /// What this server knows.
    Server,
    /// ovs-vswitchd as well: it has no device for the port.
    Vswitchd,
}

/// The same attachment for the same reason, whatever the evidence.
impl PartialEq for StaleAttachment {
    fn eq(&self, other: &Self) -> bool {
        let Self { identity, pod, uid, reason, witnesses: _ } = self;
        (identity, pod, uid, reason) == (&other.identity, &other.pod, &other.uid, &other.reason)
    }
}

impl Eq for StaleAttachment {}

impl StaleAttachment {
    fn of(attached: &RecordedPort, reason: Reason) -> Self {
        let (identity, pod, uid) =
            (attached.identity.clone(), attached.pod.clone(), attached.uid().to_owned());
        Self { identity, pod, uid, reason, witnesses: Witnesses::Server }
    }

    /// Whether its pod is one of these, each with its UID.
    pub(super) fn lives_among(&self, pods: &HashMap<PodKey, String>) -> bool {
        pods.get(&self.pod)
            .is_some_and(|uid| self.uid.is_empty() || uid.is_empty() || *uid == self.uid)
    }
}

/// A link without a port of its name, by the evidence of its owner. A link without evidence is left
/// alone.
enum Stray<'a> {
    /// It had a port, and its alias is ours.
    Known(&'a Arc<RecordedPort>),
    /// It had a port of upstream's plugin, which gives links no alias.
    Upstreams(&'a Arc<RecordedPort>),
    /// Its alias is ours; no port is recorded.
    Tagged(&'a Identity, &'a TaggedPod),
}

/// What to do about a link without a port.
enum Action {
    Leave,
    Remove(Reason),
    /// Restore its port, unless a newer link of its pod needs one.
    PutBack(Arc<RecordedPort>),
}

impl<'a> Stray<'a> {
    fn of(
        link: &Link,
        mark: Option<&'a OwnershipTag>,
        recorded: Option<&'a Arc<RecordedPort>>,
    ) -> Option<Self> {
        match (mark, recorded) {
            // The record comes before the alias: it has all that the rows said.
            (Some(_), Some(attached)) if attached.identity.owns(&link.alias) => {
                Some(Self::Known(attached))
            }
            (Some(OwnershipTag { identity, pod }), _) => {
                Some(Self::Tagged(identity, pod.as_ref()?))
            }
            // Upstream's links are named after their sandbox.
            (None, Some(attached))
                if link.alias.is_empty()
                    && attached.identity.sandbox.host_if_name().as_str() == link.name =>
            {
                Some(Self::Upstreams(attached))
            }
            (None, _) => None,
        }
    }

    /// Its interface, its pod with the UID, and the logical port.
    fn subject(&self) -> (&'a Identity, &'a PodKey, &'a str, Cow<'a, str>) {
        match self {
            Self::Known(attached) | Self::Upstreams(attached) => {
                (&attached.identity, &attached.pod, attached.uid(), attached.iface_id().into())
            }
            Self::Tagged(identity, TaggedPod { key, uid }) => {
                (identity, key, uid, IfaceId::new(key, &identity.network).to_string().into())
            }
        }
    }

    /// The decision, by the life of its pod, and by the port that the pod has with another link in
    /// the same network.
    fn action(&self, link: &Link, life: &Life, other: Option<&Arc<RecordedPort>>) -> Action {
        match (self, life, other) {
            // A link without our alias is never removed.
            (Self::Upstreams(_), Life::Gone, _)
            | (Self::Upstreams(_), Life::Living(_) | Life::Unknown, Some(_)) => Action::Leave,
            (Self::Known(_) | Self::Tagged(..), Life::Gone, _) => Action::Remove(Reason::PodGone),
            (Self::Known(_), Life::Living(_) | Life::Unknown, Some(_))
            | (Self::Tagged(..), Life::Living(_), Some(_)) => Action::Remove(Reason::Replaced),
            (
                Self::Known(attached) | Self::Upstreams(attached),
                Life::Living(_) | Life::Unknown,
                None,
            ) => Action::PutBack(Arc::clone(attached)),
            // A carrier shows that the pod's end is up: a plugin that died before there was a port
            // has not brought it up.
            (Self::Tagged(identity, pod), Life::Living(facts), None) if link.has_carrier => {
                anew(&link.name, identity, pod, facts)
                    .map_or(Action::Leave, |attached| Action::PutBack(attached.into()))
            }
            // Unknown annotations, or a plugin that died early: nothing to restore, and no reason
            // to remove.
            (Self::Tagged(..), Life::Living(_) | Life::Unknown, _) => Action::Leave,
        }
    }
}

impl AttachmentView<'_> {
    pub(super) fn compare(&self) -> Plan {
        let links: HashMap<&str, &Link> =
            self.links.values().map(|link| (link.name.as_str(), link)).collect();
        let mut plan = Plan::default();
        let mut living = 0;
        for port in self.present {
            let life = (self.pods)(&port.pod, port.uid());
            living += usize::from(matches!(life, Life::Living(_)));
            plan.suspects.extend(self.suspect(port, links.get(port.name.as_str()).copied(), &life));
        }

        let ports: HashMap<&str, &Arc<RecordedPort>> =
            self.present.iter().map(|port| (port.iface_id(), port)).collect();
        let recorded: HashMap<&str, &Arc<RecordedPort>> =
            self.recorded.iter().map(|attached| (attached.name.as_str(), attached)).collect();
        // Of several sandboxes of a pod the one whose link is the newest: the kernel counts the
        // indexes of links up.
        let mut newest: BTreeMap<String, (u32, Arc<RecordedPort>)> = BTreeMap::new();
        // Links that have a row are the ports above.
        for (name, link) in links.into_iter().filter(|(name, _)| !self.names.contains(name)) {
            let mark = OwnershipTag::read(&link.alias);
            let Some(stray) = Stray::of(link, mark.as_ref(), recorded.get(name).copied()) else {
                continue;
            };
            let (identity, pod, uid, iface_id) = stray.subject();
            match stray.action(link, &(self.pods)(pod, uid), ports.get(&*iface_id).copied()) {
                Action::Leave => {}
                Action::Remove(reason) => {
                    let (identity, pod, uid) = (identity.clone(), pod.clone(), uid.to_owned());
                    plan.suspects.push(StaleAttachment {
                        identity,
                        pod,
                        uid,
                        reason,
                        witnesses: Witnesses::Server,
                    });
                }
                Action::PutBack(attached) => {
                    if newest.get(attached.iface_id()).is_none_or(|(other, _)| *other < link.index)
                    {
                        newest.insert(attached.iface_id().to_owned(), (link.index, attached));
                    }
                }
            }
        }
        // Only the source of pods can be wrong about this host; a link that is gone was seen here.
        let gone = plan.suspects.iter().filter(|suspect| suspect.reason == Reason::PodGone).count();
        plan.doubt = self.doubt(gone, living);
        if plan.doubt.is_some() {
            plan.suspects.retain(|suspect| suspect.reason != Reason::PodGone);
        }
        plan.missing = newest.into_values().map(|(_, attached)| attached).collect();
        plan
    }

    /// Whether a port is stale, and why.
    fn suspect(
        &self,
        port: &RecordedPort,
        link: Option<&Link>,
        life: &Life,
    ) -> Option<StaleAttachment> {
        match (link, life) {
            // A device of a kind that this project's plugin does not attach, such as the
            // representor of a function of a NIC.
            (None, _) if self.others.contains(port.name.as_str()) => None,
            (None, _) => {
                let is_deviceless = self.deviceless.contains(port.name.as_str());
                let witnesses = if is_deviceless { Witnesses::Vswitchd } else { Witnesses::Server };
                Some(StaleAttachment { witnesses, ..StaleAttachment::of(port, Reason::LinkGone) })
            }
            // Rows of upstream's older plugins do not name the interface in the pod. They go with
            // their link only.
            (Some(_), Life::Gone) if port.names_pods_end() => {
                Some(StaleAttachment::of(port, Reason::PodGone))
            }
            (Some(_), Life::Gone | Life::Living(_) | Life::Unknown) => None,
        }
    }

    /// A doubt, unless so many pods can be gone where so many are known.
    fn doubt(&self, gone: usize, known: usize) -> Option<Doubt> {
        let OwnNode::Unconfirmed(why) = self.own_node else { return None };
        let is_believable = gone == 0 || known > 0 && gone <= BELIEVABLE.max(known);
        (!is_believable).then(|| Doubt { gone, known, why: why.clone() })
    }
}

/// The record of a link that has none: what the plugin would write now.
fn anew(
    name: &str,
    identity: &Identity,
    TaggedPod { key: pod, uid }: &TaggedPod,
    facts: &PodFacts,
) -> Option<RecordedPort> {
    let PodFacts { uid: known, annotations } = facts;
    let network = &identity.network;
    let addressing = PodNetwork::from_annotations(annotations, network).ok()??;
    let bandwidth = match network {
        Network::Default => Bandwidth::from_annotations(annotations).ok()?,
        Network::Attachment { .. } => Bandwidth::default(),
    };
    let interface = PodInterface {
        network: network.clone(),
        addressing,
        mtu: Mtu::DEFAULT,
        routable_mtu: None,
        bandwidth,
        pod_uid: known.clone(),
        skip_ip_config: annotations.contains_key(MIGRATABLE),
    };
    let mut content = PortColumns::of(&Attachment::plan(
        identity.clone(),
        pod,
        Some(uid.as_str()).filter(|uid| !uid.is_empty()),
        interface,
    ));
    // The alias does not contain the network's name.
    content.external_ids.retain(|key, value| key != NETWORK || !value.is_empty());
    Some(RecordedPort {
        name: name.to_owned(),
        identity: identity.clone(),
        pod: pod.clone(),
        content,
        qos: None,
    })
}

#[cfg(test)]
mod tests;
