//! The kinds of policies of the whole cluster, which the API server has by their definitions alone.
//!
//! Must not know: whether a network carries them out.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::Cluster;
use crate::eventually;

const GROUP: &str = "policy.networking.k8s.io";
/// Each kind, with its plural and version.
const KINDS: [(&str, &str, &str); 3] = [
    ("ClusterNetworkPolicy", "clusternetworkpolicies", "v1alpha2"),
    ("AdminNetworkPolicy", "adminnetworkpolicies", "v1alpha1"),
    // A network that knows the other one of this version waits for it.
    ("BaselineAdminNetworkPolicy", "baselineadminnetworkpolicies", "v1alpha1"),
];
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The API server serves a kind a moment after its definition is there; longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl Cluster {
    /// Defines the kinds, and waits until the API server has them.
    ///
    /// # Errors
    /// If it does not take a definition, or does not serve a kind in time.
    pub fn define_cluster_policies(&self) -> Result<()> {
        for kind in KINDS {
            self.api.create(DEFINITIONS, &definition(kind))?;
        }
        eventually("the kinds are served", PATIENCE, || self.cluster_policies().map(drop))
    }

    /// The names of all policies of these kinds.
    ///
    /// # Errors
    /// If the API server does not have the kinds.
    pub fn cluster_policies(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (_, plural, version) in KINDS {
            let listed = self.api.read(&format!("/apis/{GROUP}/{version}/{plural}"))?;
            let items = listed["items"].as_array().cloned().unwrap_or_default();
            names.extend(items.iter().map(|item| item["metadata"]["name"].to_string()));
        }
        Ok(names)
    }
}

/// The definition of a kind, without a schema.
fn definition((kind, plural, version): (&str, &str, &str)) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": version,
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    });
    let singular = kind.to_lowercase();
    let list = format!("{kind}List");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            // A group of Kubernetes' needs its word.
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": singular, "listKind": list},
            "versions": [version],
        },
    })
}
