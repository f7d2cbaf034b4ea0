//! The fields of a Pod object that the store keeps.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use contract::{annotation::POD_NETWORKS, names::Network};
use ipnet::IpNet;
use kubeapi::services::Protocol;

use crate::{allocate::pod_network::Assigned, config::ClusterConfig, key::NodeName};

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub uid: Arc<str>,
    /// Seconds since 1970. At the start and after a list, the older of two pods gets an address
    /// that both claim.
    pub created: i64,
    pub node: Option<NodeName>,
    pub host_network: bool,
    pub phase: Phase,
    /// The network in its annotations. They may come from this controller, from an earlier one, or
    /// from the pod's creator.
    pub annotated: Annotated,
    /// The addresses that its node reports. Once the pod has its network, the first report stays.
    pub reported: Reported,
    /// The text of `k8s.ovn.org/pod-networks`, if it has entries of other networks than the
    /// cluster's own. A patch preserves those entries.
    pub other_networks: Option<Arc<str>>,
    /// Its annotations, for the patch that replaces them.
    pub texts: Texts,
    /// Set on the mirror of a static pod: the pod's own identity on the node. A mirror that is
    /// deleted comes back with another UID, while the pod keeps running.
    pub config_hash: Option<Arc<str>>,
    /// Its containers' ports that have names, sorted.
    pub ports: Box<[NamedPort]>,
    /// Its owner asks when it is in force (`REPORT_APPLIED`).
    pub reports_applied: bool,
    /// Its labels, until the store has taken them: it keeps each label once.
    pub labels: PodLabels,
}

/// Labels as one text: a list of all pods is in memory for a moment, and a map of texts is ten
/// times as large.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodLabels(Box<str>);

/// Ends each key and each value. The API server accepts it in neither.
const END: char = '\0';

/// A container's port that has a name. A pod may have several of one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamedPort {
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub number: u16,
}

/// A pod's annotations when its network was decided. The patch tests for them before it replaces
/// them: different annotations come from another leader, which decided later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Texts {
    /// The pod has no annotations at all.
    #[default]
    NoneAtAll,
    /// The pod has annotations. These are the ones that describe its network; there may be none.
    These(Arc<BTreeMap<&'static str, String>>),
    /// `k8s.ovn.org/pod-networks` alone, in this program's words for the network in
    /// [`Pod::annotated`], from which the text can be made again.
    Derived,
    /// They match the assigned network. No patch follows, so the texts are not kept.
    Right,
}

/// Whether a pod needs its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Active,
    /// `Succeeded` or `Failed`: its containers never run again.
    Ended,
}

/// The network that a pod's annotations describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Annotated {
    Nothing,
    Network {
        network: Arc<Assigned>,
        spelled: Spelled,
    },
    /// The annotation cannot be used, for this reason.
    Unusable(String),
}

/// The addresses that the pod's node reports for it (`status.podIPs`): those of its interface. Who
/// may create or annotate a pod cannot write them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reported {
    /// None: the pod has no interface yet.
    #[default]
    Nothing,
    /// Those that its annotations describe.
    AsAnnotated,
    Others(Box<[IpAddr]>),
}

/// Which annotations describe the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelled {
    /// `k8s.ovn.org/pod-networks`.
    Current,
    /// Only `ovn`, the annotation of 2018.
    Legacy,
    Both,
}

impl Reported {
    /// The reported addresses of a pod with these annotations.
    pub fn new(addresses: Vec<IpAddr>, annotated: &Annotated) -> Self {
        let is_annotated = |network: &Assigned| {
            let own: Vec<IpAddr> = network.addresses.iter().map(IpNet::addr).collect();
            own.len() == addresses.len() && own.iter().all(|address| addresses.contains(address))
        };
        match annotated {
            _ if addresses.is_empty() => Self::Nothing,
            Annotated::Network { network, .. } if is_annotated(network) => Self::AsAnnotated,
            Annotated::Network { .. } | Annotated::Nothing | Annotated::Unusable(_) => {
                Self::Others(addresses.into())
            }
        }
    }
}

impl Pod {
    /// An active pod with nothing but a UID.
    pub fn with_uid(uid: &str) -> Self {
        Self {
            uid: uid.into(),
            created: 0,
            node: None,
            host_network: false,
            phase: Phase::Active,
            annotated: Annotated::Nothing,
            reported: Reported::default(),
            other_networks: None,
            texts: Texts::default(),
            config_hash: None,
            ports: [].into(),
            reports_applied: false,
            labels: PodLabels::default(),
        }
    }

    /// Drops what follows from its addresses.
    pub fn shorten(&mut self, config: &ClusterConfig) {
        if let Annotated::Network { network, .. } = &mut self.annotated {
            Arc::make_mut(network).shorten(config);
        }
        if let Texts::These(texts) = &self.texts
            && texts.len() == 1
            && let Some(text) = texts.get(POD_NETWORKS)
            && self.derived_text(config).as_ref() == Some(text)
        {
            self.texts = Texts::Derived;
        }
    }

    /// The annotations that describe its network, spelled out.
    pub(crate) fn spelled_texts(&self, config: &ClusterConfig) -> Texts {
        match &self.texts {
            Texts::Derived => {
                let text = self.derived_text(config).map(|text| (POD_NETWORKS, text));
                Texts::These(Arc::new(text.into_iter().collect()))
            }
            texts @ (Texts::NoneAtAll | Texts::These(_) | Texts::Right) => texts.clone(),
        }
    }

    /// `k8s.ovn.org/pod-networks` as this program spells the network in its annotations.
    fn derived_text(&self, config: &ClusterConfig) -> Option<String> {
        let Annotated::Network { network, .. } = &self.annotated else { return None };
        network.network(config)?.write(&Network::Default, None).ok()
    }

    /// Whether both are the same pod on the same node. The caller has compared the names.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // The mirrors of one static pod differ in their UIDs, but not in the hash.
        let is_static = self.config_hash.is_some() && self.config_hash == other.config_hash;
        (is_static || self.uid == other.uid) && self.node == other.node
    }

    /// Whether the annotations of both say the same about networks.
    pub(crate) fn has_networks_of(&self, other: &Self) -> bool {
        (&self.annotated, &self.other_networks) == (&other.annotated, &other.other_networks)
    }

    /// Whether a port with this `iface-id-ver` was made for this pod. The port of a static pod may
    /// have none.
    pub(crate) fn is_of(&self, port_uid: Option<&Arc<str>>) -> bool {
        port_uid == Some(&self.uid) || port_uid.is_none() && self.config_hash.is_some()
    }

    /// Whether the pod gets an address and a port on its node's switch, once it is scheduled.
    pub fn needs_network(&self) -> bool {
        self.phase == Phase::Active && !self.host_network
    }
}

impl PodLabels {
    /// Keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.0.split_terminator(END);
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }
}

impl FromIterator<(String, String)> for PodLabels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        let is_valid = |(key, value): &(String, String)| !key.contains(END) && !value.contains(END);
        let labels = labels.into_iter().filter(is_valid);
        let text =
            labels.fold(String::new(), |text, (key, value)| text + &key + "\0" + &value + "\0");
        Self(text.into())
    }
}
