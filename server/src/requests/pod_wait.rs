//! What an ADD makes of each thing that it learns of its pod. Pure: no clock, no channel.

use std::fmt;

use contract::{
    annotation::{CONFIG_HASH, POD_NETWORKS, PodNetwork, Role},
    bandwidth::Bandwidth,
    cni_args::PodArgs,
    mtu::Mtu,
    names::{Network, PodKey},
    wire::{PodChange, PodInterface},
};

use super::AddDefaults;
use crate::{
    pods::{MIGRATABLE, Pod, PodFacts},
    refusal::Refusal,
};

/// One ADD's view of its pod.
#[derive(Debug)]
pub(super) struct PodWait {
    args: PodArgs,
    network: Network,
    mtu: Option<Mtu>,
    defaults: AddDefaults,
    /// The incarnation that was recognised as the pod that is meant.
    settled: Option<u64>,
    said: Option<Missing>,
}

/// What one look at the pod leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Answer(Box<PodInterface>),
    Wait(Missing),
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Missing {
    Pod,
    Uid { there: String },
    Annotation,
}

impl PodWait {
    /// `mtu` is what the CNI configuration asks for.
    pub(super) fn new(args: PodArgs, network: Network, mtu: Option<Mtu>, defaults: AddDefaults) -> Self {
        Self { args, network, mtu, defaults, settled: None, said: None }
    }

    /// Decides by what is known of the pod now.
    pub(super) fn look(&mut self, pod: Option<&Pod>) -> Result<Step, Refusal> {
        let pod = match (pod, self.settled) {
            (None, None) => return Ok(Step::Wait(Missing::Pod)),
            (None, Some(_)) => return Err(self.changed(PodChange::Deleted)),
            (Some(pod), Some(settled)) if pod.incarnation != settled => return Err(self.changed(PodChange::Replaced)),
            (Some(pod), _) => pod,
        };
        let PodFacts { uid: there, annotations } = &pod.facts;
        let uid = match &self.args.uid {
            Some(asked) if there.is_empty() => asked,
            Some(asked) if asked != there && !is_mirror_of(&pod.facts, asked) => {
                return Ok(Step::Wait(Missing::Uid { there: there.clone() }));
            }
            Some(_) | None => there,
        };
        self.settled = Some(pod.incarnation);

        let network = PodNetwork::from_annotations(annotations, &self.network)
            .map_err(|source| Refusal::BadAnnotation { pod: self.args.pod.clone(), source })?;
        let Some(addressing) = network else {
            return Ok(Step::Wait(Missing::Annotation));
        };
        match addressing.role {
            // What the pod is to use is another network, which nobody here would attach.
            Role::InfrastructureLocked => return Err(Refusal::PrimaryNetwork { pod: self.args.pod.clone() }),
            Role::Primary | Role::Secondary => {}
        }
        // The limits are the pod's, not each interface's: its first one carries them.
        let bandwidth = match self.network {
            Network::Default => {
                Bandwidth::from_annotations(annotations).map_err(|source| Refusal::BadBandwidth { pod: self.args.pod.clone(), source })?
            }
            Network::Attachment { .. } => Bandwidth::default(),
        };
        Ok(Step::Answer(Box::new(PodInterface {
            network: self.network.clone(),
            addressing,
            mtu: self.mtu.unwrap_or(self.defaults.mtu),
            routable_mtu: self.defaults.routable_mtu,
            bandwidth,
            pod_uid: uid.clone(),
            skip_ip_config: annotations.contains_key(MIGRATABLE),
        })))
    }

    pub(super) fn pod(&self) -> &PodKey {
        &self.args.pod
    }

    /// Whether `missing` is something else than the last time.
    pub(super) fn is_new(&mut self, missing: &Missing) -> bool {
        self.said.replace(missing.clone()).as_ref() != Some(missing)
    }

    /// Why a wait for `missing` ended without it. `not_synced`: why the source may not know everything.
    pub(super) fn refusal(&self, missing: Missing, not_synced: Option<String>) -> Refusal {
        let PodArgs { pod, uid, .. } = self.args.clone();
        match missing {
            Missing::Pod => Refusal::NoSuchPod { pod, why: not_synced },
            Missing::Uid { there } => Refusal::OtherUid { pod, asked: uid.unwrap_or_default(), there },
            Missing::Annotation => Refusal::NoAnnotation { pod, network: self.network.clone() },
        }
    }

    fn changed(&self, change: PodChange) -> Refusal {
        Refusal::PodChanged { pod: self.args.pod.clone(), change }
    }
}

impl Missing {
    /// Whether somebody may still be at work on it; the rest is a matter of the source catching up.
    pub(super) fn is_worth_a_long_wait(&self) -> bool {
        match self {
            Self::Annotation => true,
            Self::Pod | Self::Uid { .. } => false,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod => f.write_str("the pod is not known yet"),
            Self::Uid { there } => write!(f, "the pod that is known has another UID, {there}"),
            Self::Annotation => write!(f, "the pod has no annotation {POD_NETWORKS} yet"),
        }
    }
}

/// The runtime knows a pod out of a node's file by the file's hash, the API server by the UID that it gave the mirror of it. A mirror of
/// an older file has another hash.
fn is_mirror_of(facts: &PodFacts, asked: &str) -> bool {
    facts.is_mirror() && facts.annotations.get(CONFIG_HASH).is_none_or(|hash| hash == asked)
}

#[cfg(test)]
mod tests;
