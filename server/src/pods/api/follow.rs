//! What the watch of this node's pods tells, into the ledger. Knows nothing of how the API server is asked.

use std::{collections::HashMap, sync::Arc, time::Duration};

use contract::names::PodKey;
use kubeapi::watch::{self, Extent, First, Observer, Selection, Watched, WrongVersion};

use super::{
    Shared,
    ledger::{Version, WentBack},
    pod_meta::{PodMeta, Seen},
};

/// How long one answer to a list may take: twice what another request gets, for it names all pods of the node at once.
const LIST: Duration = Duration::from_secs(60);

/// Keeps the ledger as the API server is.
pub(super) async fn follow(shared: Arc<Shared>) {
    let (connection, prompt) = (shared.connection.clone(), shared.prompt.clone());
    let selection = selection(&shared);
    watch::follow::<PodMeta, _>(connection, selection, prompt, Follower { shared, complained: None }).await;
}

struct Follower {
    shared: Arc<Shared>,
    /// What was last said about what is wrong.
    complained: Option<String>,
}

impl Observer<PodMeta> for Follower {
    fn all(&mut self, pods: Vec<Seen>, version: String) {
        tracing::debug!(pods = pods.len(), version, "listed this node's pods");
        self.shared.ledger().listed(Version::from(version), pods);
    }

    fn applied(&mut self, seen: Seen, _version: &str) -> Result<(), WrongVersion> {
        self.shared.ledger().changed(seen).map_err(WrongVersion::from)
    }

    fn deleted(&mut self, pod: PodKey, version: &str) -> Result<(), WrongVersion> {
        self.shared.ledger().deleted(&pod, Version::from(version.to_owned())).map_err(WrongVersion::from)
    }

    fn advanced(&mut self, version: &str) -> Result<(), WrongVersion> {
        self.shared.ledger().advance(Version::from(version.to_owned())).map_err(WrongVersion::from)
    }

    fn left_out(&mut self, reason: &str) {
        left_out(reason);
    }

    fn heard(&mut self) {
        self.shared.found();
        if self.complained.take().is_some() {
            tracing::info!(api_server = self.shared.connection.url(), "pods are heard of again");
        }
    }

    fn lost(&mut self, why: &str) {
        if self.complained.as_deref() != Some(why) {
            tracing::warn!(problem = why, "pods are not heard of");
        }
        self.complained = Some(why.to_owned());
        self.shared.lost(why.to_owned());
    }

    fn begins_anew(&mut self, why: &str) {
        tracing::info!(reason = why, "the watch of pods begins anew, with a list");
    }

    fn behind(&mut self) {
        tracing::warn!("the watch of pods is behind what the API server tells others: it is begun anew");
    }
}

impl Watched for PodMeta {
    type Key = PodKey;
    type Value = Seen;
    const PATH: &'static str = "/api/v1/pods";
    const KIND: &'static str = "pods";

    fn version(&self) -> &str {
        self.as_of().as_str()
    }

    fn key(&self) -> Result<PodKey, String> {
        self.pod().map_err(|error| error.to_string())
    }

    fn value(self) -> Result<Seen, String> {
        Seen::try_from(self).map_err(|error| error.to_string())
    }
}

impl From<WentBack> for WrongVersion {
    fn from(error: WentBack) -> Self {
        Self(error.to_string())
    }
}

/// The node's pods as they are, beside the watch: for a caller that doubts what the watch told.
pub(super) async fn list_now(shared: &Shared) -> Result<HashMap<PodKey, String>, String> {
    let pods = watch::list::<PodMeta>(&shared.connection, &selection(shared), left_out).await.map_err(|trouble| trouble.text)?;
    Ok(pods.into_iter().map(|seen| (seen.pod, seen.facts.uid)).collect())
}

fn selection(shared: &Shared) -> Selection {
    Selection { fields: Some(format!("spec.nodeName={}", shared.node)), extent: Extent::Metadata, first: First::Memory, patience: LIST }
}

fn left_out(reason: &str) {
    tracing::warn!(error = %reason, "a pod of the API server is left out");
}
