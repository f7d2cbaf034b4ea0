//! Puts the events of the watch on this node's pods into the versioned_pods. Knows nothing of
//! requests to the API server.

use std::{collections::HashMap, sync::Arc, time::Duration};

use contract::names::PodKey;
use kubeapi::watch::{self, Extent, First, Observer, Presence, Selection, Watched, WrongVersion};

use super::{
    Shared,
    pod_meta::{PodMeta, VersionedPod},
    versioned_pods::{Version, WentBack},
};

/// The timeout of one answer to a list. Twice that of other lists, because it has all pods of the
/// node in one answer; a list that is given up earlier starts from the beginning.
const LIST: Duration = Duration::from_secs(60);

/// Keeps the versioned_pods up to date, for as long as the task runs.
pub(super) async fn follow(shared: Arc<Shared>) {
    let (connection, prompt) = (shared.connection.clone(), shared.prompt.clone());
    let selection = selection(&shared);
    watch::follow::<PodMeta, _>(
        connection,
        selection,
        prompt,
        PodObserver { shared, complained: None },
    )
    .await;
}

struct PodObserver {
    shared: Arc<Shared>,
    /// The problem that was logged last, until it is over.
    complained: Option<String>,
}

impl Observer<PodMeta> for PodObserver {
    fn all(&mut self, pods: Vec<VersionedPod>, version: String) {
        tracing::debug!(pods = pods.len(), version, "listed this node's pods");
        self.shared.versioned_pods().listed(Version::from(version), pods);
    }

    fn applied(&mut self, seen: VersionedPod, _version: &str) -> Result<(), WrongVersion> {
        self.shared.versioned_pods().changed(seen).map_err(WrongVersion::from)
    }

    fn deleted(&mut self, pod: PodKey, version: &str) -> Result<(), WrongVersion> {
        self.shared
            .versioned_pods()
            .deleted(&pod, Version::from(version.to_owned()))
            .map_err(WrongVersion::from)
    }

    fn advanced(&mut self, version: &str) -> Result<(), WrongVersion> {
        self.shared
            .versioned_pods()
            .advance(Version::from(version.to_owned()))
            .map_err(WrongVersion::from)
    }

    fn left_out(&mut self, reason: &str) {
        left_out(reason);
    }

    fn heard(&mut self) {
        self.shared.found();
        if self.complained.take().is_some() {
            tracing::info!(
                api_server = self.shared.connection.url(),
                "the watch on pods is connected again"
            );
        }
    }

    fn lost(&mut self, why: &str) {
        // Called after each failed attempt: logged once for each reason.
        if self.complained.as_deref() != Some(why) {
            tracing::warn!(problem = why, "the watch on pods is disconnected");
        }
        self.complained = Some(why.to_owned());
        self.shared.lost(why.to_owned());
    }

    fn begins_anew(&mut self, why: &str) {
        tracing::info!(reason = why, "the watch on pods starts over, with a list");
    }

    fn behind(&mut self) {
        tracing::warn!(
            "the watch on pods is behind other answers of the API server: opening it again"
        );
    }
}

impl Watched for PodMeta {
    type Key = PodKey;
    type Value = VersionedPod;
    const PATH: &'static str = "/api/v1/pods";
    const KIND: &'static str = "pods";

    fn version(&self) -> &str {
        self.as_of().as_str()
    }

    fn key(&self) -> Result<PodKey, String> {
        self.pod().map_err(|error| error.to_string())
    }

    fn value(self) -> Result<VersionedPod, String> {
        VersionedPod::try_from(self).map_err(|error| error.to_string())
    }
}

impl From<WentBack> for WrongVersion {
    fn from(error: WentBack) -> Self {
        Self(error.to_string())
    }
}

/// Lists the node's pods, beside the watch, for a caller that needs a second source before it
/// removes something.
pub(super) async fn list_now(shared: &Shared) -> Result<HashMap<PodKey, String>, String> {
    let pods = watch::list::<PodMeta>(&shared.connection, &selection(shared), left_out)
        .await
        .map_err(|trouble| trouble.text)?;
    Ok(pods.into_iter().map(|seen| (seen.pod, seen.facts.uid)).collect())
}

/// The pods of this node. The API server's cache is good enough for the first list: the watch
/// brings what is newer.
fn selection(shared: &Shared) -> Selection {
    Selection {
        fields: Some(format!("spec.nodeName={}", shared.node)),
        labels: None,
        extent: Extent::Metadata,
        first: First::Memory,
        presence: Presence::Certain,
        patience: LIST,
    }
}

fn left_out(reason: &str) {
    tracing::warn!(error = %reason, "a pod of the API server is left out");
}
