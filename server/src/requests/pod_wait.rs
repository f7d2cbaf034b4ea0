//! What an ADD decides at each state of its pod. Pure: no clock, no channel.

use std::fmt;

use contract::{
    annotation::{CONFIG_HASH, POD_NETWORKS, Role},
    bandwidth::Bandwidth,
    cni_args::PodArgs,
    mtu::Mtu,
    names::{Network, PodKey},
    wire::{PodChange, PodInterface},
};

use super::AddDefaults;
use crate::{
    api_error::ApiError,
    pods::{MIGRATABLE, Pod, PodFacts},
};

/// One ADD's view of its pod.
#[derive(Debug)]
pub(super) struct PodWait {
    args: PodArgs,
    network: Network,
    mtu: Option<Mtu>,
    defaults: AddDefaults,
    /// The incarnation that was recognised as the requested pod.
    settled: Option<u64>,
    said: Option<Missing>,
}

/// The result of one look at the pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WaitStep {
    Answer(Box<PodInterface>),
    Wait(Missing),
}

/// What an ADD waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Missing {
    Pod,
    Uid { there: String },
    Annotation,
}

impl PodWait {
    /// `mtu` comes from the CNI configuration.
    pub(super) fn new(
        args: PodArgs,
        network: Network,
        mtu: Option<Mtu>,
        defaults: AddDefaults,
    ) -> Self {
        Self { args, network, mtu, defaults, settled: None, said: None }
    }

    /// Decides by what is known of the pod now.
    pub(super) fn look(&mut self, pod: Option<&Pod>) -> Result<WaitStep, ApiError> {
        let pod = match (pod, self.settled) {
            (None, None) => return Ok(WaitStep::Wait(Missing::Pod)),
            (None, Some(_)) => return Err(self.changed(PodChange::Deleted)),
            (Some(pod), Some(settled)) if pod.incarnation != settled => {
                return Err(self.changed(PodChange::Replaced));
            }
            (Some(pod), _) => pod,
        };
        let PodFacts { uid: there, annotations } = &pod.facts;
        // Manifests may lack a UID, and older runtimes send none. A pod with another UID may be a
        // predecessor of the same name whose deletion the source has not seen yet: its annotation
        // must not be used.
        let uid = match &self.args.uid {
            Some(asked) if there.is_empty() => asked,
            Some(asked) if asked != there && !is_mirror_of(&pod.facts, asked) => {
                return Ok(WaitStep::Wait(Missing::Uid { there: there.clone() }));
            }
            Some(_) | None => there,
        };
        // From now on a deletion or a replacement of the pod ends the wait.
        self.settled = Some(pod.incarnation);

        let network = pod
            .network(&self.network)
            .map_err(|source| ApiError::BadAnnotation { pod: self.args.pod.clone(), source })?;
        let Some(addressing) = network else {
            return Ok(WaitStep::Wait(Missing::Annotation));
        };
        match addressing.role {
            // The pod's traffic belongs to a user-defined network, which this version does not
            // attach as the primary one.
            Role::InfrastructureLocked => {
                return Err(ApiError::PrimaryNetwork { pod: self.args.pod.clone() });
            }
            Role::Primary | Role::Secondary => {}
        }
        // The limits are the pod's, not an interface's: its first interface carries them.
        let bandwidth = match self.network {
            Network::Default => Bandwidth::from_annotations(annotations)
                .map_err(|source| ApiError::BadBandwidth { pod: self.args.pod.clone(), source })?,
            Network::Attachment { .. } => Bandwidth::default(),
        };
        Ok(WaitStep::Answer(Box::new(PodInterface {
            network: self.network.clone(),
            addressing: (*addressing).clone(),
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

    /// Whether `missing` differs from the last one.
    pub(super) fn is_new(&mut self, missing: &Missing) -> bool {
        self.said.replace(missing.clone()).as_ref() != Some(missing)
    }

    /// The refusal after a wait for `missing` in vain. `not_synced`: why the source may not know
    /// every pod.
    pub(super) fn refusal(&self, missing: Missing, not_synced: Option<String>) -> ApiError {
        let PodArgs { pod, uid, .. } = self.args.clone();
        match missing {
            Missing::Pod => ApiError::NoSuchPod { pod, why: not_synced },
            Missing::Uid { there } => {
                ApiError::OtherUid { pod, asked: uid.unwrap_or_default(), there }
            }
            Missing::Annotation => ApiError::NoAnnotation { pod, network: self.network.clone() },
        }
    }

    fn changed(&self, change: PodChange) -> ApiError {
        ApiError::PodChanged { pod: self.args.pod.clone(), change }
    }
}

impl Missing {
    /// Whether another program may still provide it; otherwise the source only has to catch up.
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

/// Whether the pod is the mirror of the static pod `asked`. The runtime knows a static pod by the
/// hash of its manifest, the API server by the UID of its mirror. The mirror of an older manifest
/// has another hash.
fn is_mirror_of(facts: &PodFacts, asked: &str) -> bool {
    facts.is_mirror() && facts.annotations.get(CONFIG_HASH).is_none_or(|hash| hash == asked)
}

#[cfg(test)]
mod tests;
