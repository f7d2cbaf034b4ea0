//! What is missing, and what should not be there: rows, links and pods compared. Pure.

use std::{
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
    mark::{Mark, MarkedPod},
    plan::{Attachment, Identity},
    rows::Content,
};

use super::{OwnNode, journal::Attached};
use crate::pods::{MIGRATABLE, PodFacts};

/// So many pods may be gone at once beside one that is there, although nothing confirms that the source of pods speaks of this host: a
/// Deployment that is deleted, but not a node.
const BELIEVABLE: usize = 10;

/// What is known of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    Living(PodFacts),
    /// It is gone, or another one has its name.
    Gone,
    /// Nobody can say at the moment.
    Unknown,
}

/// Everything that is compared.
pub(super) struct View<'a> {
    /// What rows said that were seen, whether they are there or not.
    pub(super) recorded: &'a [Arc<Attached>],
    /// Pods' ports that are there.
    pub(super) present: &'a [Arc<Attached>],
    /// Names of all interfaces that are there.
    pub(super) names: &'a HashSet<&'a str>,
    /// The host's ends of veths.
    pub(super) links: &'a HashMap<u32, Link>,
    /// Names of the host's links that are no veths.
    pub(super) others: &'a HashSet<&'a str>,
    /// Names of interfaces for which ovs-vswitchd finds no device.
    pub(super) deviceless: &'a HashSet<&'a str>,
    pub(super) own_node: &'a OwnNode,
    pub(super) pods: &'a dyn Fn(&PodKey, &str) -> Life,
}

/// What the comparison came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To be put back.
    pub(super) missing: Vec<Arc<Attached>>,
    /// What should not be there.
    pub(super) suspects: Vec<Suspect>,
    /// Pods are said to be gone that are not believed to be. None of them is suspected.
    pub(super) doubt: Option<Doubt>,
}

/// More is said to be gone than what nothing confirms is believed for: the server may have been started in the name of another node, with
/// the API server of another cluster, or before its manifests were mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doubt {
    /// Attached pods that are said to be gone.
    pub(super) gone: usize,
    /// Attached pods that are known.
    pub(super) known: usize,
    /// Why nothing confirms it.
    pub(super) why: String,
}

/// An attachment that should not be there.
#[derive(Debug, Clone)]
pub(super) struct Suspect {
    pub(super) identity: Identity,
    pub(super) pod: PodKey,
    /// Of the pod; empty if nobody said it.
    pub(super) uid: String,
    pub(super) reason: Reason,
    pub(super) witnesses: Witnesses,
}

/// Who says that it should not be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Witnesses {
    /// What this server knows.
    Server,
    /// ovs-vswitchd, too: it has no device for the port.
    Vswitchd,
}

/// The same one, for the same reason, whoever says so.
impl PartialEq for Suspect {
    fn eq(&self, other: &Self) -> bool {
        let Self { identity, pod, uid, reason, witnesses: _ } = self;
        (identity, pod, uid, reason) == (&other.identity, &other.pod, &other.uid, &other.reason)
    }
}

impl Eq for Suspect {}

impl Suspect {
    fn of(attached: &Attached, reason: Reason) -> Self {
        let (identity, pod, uid) = (attached.identity.clone(), attached.pod.clone(), attached.uid().to_owned());
        Self { identity, pod, uid, reason, witnesses: Witnesses::Server }
    }

    /// Whether its pod is one of these, each with its UID.
    pub(super) fn lives_among(&self, pods: &HashMap<PodKey, String>) -> bool {
        pods.get(&self.pod).is_some_and(|uid| self.uid.is_empty() || uid.is_empty() || *uid == self.uid)
    }
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// A port without a link.
    LinkGone,
    /// The pod is gone, and no DEL came.
    PodGone,
    /// A link without a port, whose pod has another sandbox.
    Replaced,
}

impl Reason {
    pub(crate) const ALL: [Self; 3] = [Self::LinkGone, Self::PodGone, Self::Replaced];

    /// As log and label say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LinkGone => "link-gone",
            Self::PodGone => "pod-gone",
            Self::Replaced => "replaced",
        }
    }
}

impl View<'_> {
    pub(super) fn compare(&self) -> Plan {
        let links: HashMap<&str, (&Link, Option<Mark>)> =
            self.links.values().map(|link| (link.name.as_str(), (link, Mark::read(&link.alias)))).collect();
        let ports: HashMap<&str, &Arc<Attached>> = self.present.iter().map(|port| (port.iface_id(), port)).collect();
        let mut plan = Plan::default();

        let mut living = 0;
        for port in self.present {
            let life = (self.pods)(&port.pod, port.uid());
            living += usize::from(matches!(life, Life::Living(_)));
            let reason = match (links.get(port.name.as_str()), life) {
                // A device of a kind that no plugin of this project attaches, such as the representor of a function of a NIC.
                (None, _) if self.others.contains(port.name.as_str()) => continue,
                (None, _) => Reason::LinkGone,
                // Upstream's older plugins do not say which pods they are done with.
                (Some(_), Life::Gone) if port.names_pods_end() => Reason::PodGone,
                (Some(_), _) => continue,
            };
            let witnesses = match reason {
                Reason::LinkGone if self.deviceless.contains(port.name.as_str()) => Witnesses::Vswitchd,
                Reason::LinkGone | Reason::PodGone | Reason::Replaced => Witnesses::Server,
            };
            plan.suspects.push(Suspect { witnesses, ..Suspect::of(port, reason) });
        }

        // Of several sandboxes of a pod the one whose link is the newest.
        let mut newest: BTreeMap<String, (u32, Arc<Attached>)> = BTreeMap::new();
        let mut offer = |index: u32, attached: Arc<Attached>| {
            if newest.get(attached.iface_id()).is_none_or(|(other, _)| *other < index) {
                newest.insert(attached.iface_id().to_owned(), (index, attached));
            }
        };
        let recorded: HashMap<&str, &Arc<Attached>> = self.recorded.iter().map(|attached| (attached.name.as_str(), attached)).collect();
        for (name, (link, mark)) in links.iter().filter(|(name, _)| !self.names.contains(*name)) {
            let known = recorded.get(name).filter(|attached| fits(attached, link, mark.as_ref()));
            if let Some(attached) = known {
                // A link without a port is left alone unless its alias says that it is ours.
                let marked = |suspect| mark.is_some().then_some(suspect);
                match (self.pods)(&attached.pod, attached.uid()) {
                    Life::Gone => plan.suspects.extend(marked(Suspect::of(attached, Reason::PodGone))),
                    Life::Living(_) | Life::Unknown if ports.contains_key(attached.iface_id()) => {
                        plan.suspects.extend(marked(Suspect::of(attached, Reason::Replaced)));
                    }
                    Life::Living(_) | Life::Unknown => offer(link.index, Arc::clone(attached)),
                }
                continue;
            }
            let Some(Mark { identity, pod: Some(MarkedPod { key, uid }) }) = mark else { continue };
            let suspect = |reason| {
                let (identity, pod, uid) = (identity.clone(), key.clone(), uid.clone());
                Suspect { identity, pod, uid, reason, witnesses: Witnesses::Server }
            };
            match (self.pods)(key, uid) {
                Life::Gone => plan.suspects.push(suspect(Reason::PodGone)),
                Life::Living(_) if ports.contains_key(IfaceId::new(key, &identity.network).as_str()) => {
                    plan.suspects.push(suspect(Reason::Replaced));
                }
                // A plugin that died before there was a port has not brought the pod's end up either.
                Life::Living(facts) if link.has_carrier => {
                    if let Some(attached) = anew(name, identity, key, uid, &facts) {
                        offer(link.index, attached.into());
                    }
                }
                Life::Living(_) | Life::Unknown => {}
            }
        }
        let gone = plan.suspects.iter().filter(|suspect| suspect.reason == Reason::PodGone).count();
        plan.doubt = self.doubt(gone, living);
        if plan.doubt.is_some() {
            plan.suspects.retain(|suspect| suspect.reason != Reason::PodGone);
        }
        plan.missing = newest.into_values().map(|(_, attached)| attached).collect();
        plan
    }

    /// Whether so many pods can be gone where so many are known.
    fn doubt(&self, gone: usize, known: usize) -> Option<Doubt> {
        let OwnNode::Unconfirmed(why) = self.own_node else { return None };
        let is_believable = gone == 0 || known > 0 && gone <= BELIEVABLE.max(known);
        (!is_believable).then(|| Doubt { gone, known, why: why.clone() })
    }
}

/// Whether a link is the one that a port had. Upstream's links have no alias, and are called after their sandbox.
fn fits(attached: &Attached, link: &Link, mark: Option<&Mark>) -> bool {
    match mark {
        Some(_) => attached.identity.owns(&link.alias),
        None => link.alias.is_empty() && attached.identity.sandbox.host_if_name().as_str() == link.name,
    }
}

/// What the port of a link said that nobody remembers: what the plugin would write now.
fn anew(name: &str, identity: &Identity, pod: &PodKey, uid: &str, facts: &PodFacts) -> Option<Attached> {
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
    let mut content = Content::of(&Attachment::plan(identity.clone(), pod, Some(uid).filter(|uid| !uid.is_empty()), interface));
    // The alias does not say it.
    content.external_ids.retain(|key, value| key != NETWORK || !value.is_empty());
    Some(Attached { name: name.to_owned(), identity: identity.clone(), pod: pod.clone(), content, qos: None })
}

#[cfg(test)]
mod tests;
