//! What is missing, and what should not be there: rows, links and pods compared. Pure.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use cni::{
    link::Link,
    mark::{Mark, MarkedPod},
    plan::{Attachment, Identity},
    rows::Content,
};
use contract::{
    annotation::PodNetwork,
    bandwidth::Bandwidth,
    external_ids::NETWORK,
    mtu::Mtu,
    names::{IfaceId, Network, PodKey},
    wire::PodInterface,
};

use super::journal::Attached;
use crate::pods::{MIGRATABLE, PodFacts};

/// As many pods of a node may be gone at once where none is left.
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
    pub(super) pods: &'a dyn Fn(&PodKey, &str) -> Life,
}

/// What the comparison came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To be put back.
    pub(super) missing: Vec<Arc<Attached>>,
    /// What should not be there.
    pub(super) suspects: Vec<Suspect>,
    /// So many pods are gone, and none is there, that whoever says so is more likely to be wrong: a server that was started in the name of
    /// another node. None of them is suspected.
    pub(super) is_doubtful: bool,
}

/// An attachment that should not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) identity: Identity,
    pub(super) pod: PodKey,
    pub(super) reason: Reason,
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
                (None, _) => Reason::LinkGone,
                // Upstream's older plugins do not say which pods they are done with.
                (Some(_), Life::Gone) if port.names_pods_end() => Reason::PodGone,
                (Some(_), _) => continue,
            };
            plan.suspects.push(Suspect { identity: port.identity.clone(), pod: port.pod.clone(), reason });
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
                match (self.pods)(&attached.pod, attached.uid()) {
                    Life::Gone => plan.suspects.extend(suspect(attached.identity.clone(), &attached.pod, mark.is_some(), Reason::PodGone)),
                    Life::Living(_) | Life::Unknown if ports.contains_key(attached.iface_id()) => {
                        plan.suspects.extend(suspect(attached.identity.clone(), &attached.pod, mark.is_some(), Reason::Replaced));
                    }
                    Life::Living(_) | Life::Unknown => offer(link.index, Arc::clone(attached)),
                }
                continue;
            }
            let Some(Mark { identity, pod: Some(MarkedPod { key, uid }) }) = mark else { continue };
            match (self.pods)(key, uid) {
                Life::Gone => plan.suspects.extend(suspect(identity.clone(), key, true, Reason::PodGone)),
                Life::Living(_) if ports.contains_key(IfaceId::new(key, &identity.network).as_str()) => {
                    plan.suspects.extend(suspect(identity.clone(), key, true, Reason::Replaced));
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
        let gone = |suspect: &&Suspect| suspect.reason == Reason::PodGone;
        plan.is_doubtful = living == 0 && plan.suspects.iter().filter(gone).count() > BELIEVABLE;
        if plan.is_doubtful {
            plan.suspects.retain(|suspect| suspect.reason != Reason::PodGone);
        }
        plan.missing = newest.into_values().map(|(_, attached)| attached).collect();
        plan
    }
}

/// Whether a link is the one that a port had. Upstream's links have no alias, and are called after their sandbox.
fn fits(attached: &Attached, link: &Link, mark: Option<&Mark>) -> bool {
    match mark {
        Some(_) => attached.identity.owns(&link.alias),
        None => link.alias.is_empty() && attached.identity.sandbox.host_if_name().as_str() == link.name,
    }
}

/// A link without a port is left alone unless its alias says that it is ours.
fn suspect(identity: Identity, pod: &PodKey, is_marked: bool, reason: Reason) -> Option<Suspect> {
    is_marked.then(|| Suspect { identity, pod: pod.clone(), reason })
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
