//! One answer to a list, as the API server spells it.

use serde::Deserialize;

/// Some of the objects, and where the others are.
#[derive(Debug, Deserialize)]
pub(super) struct Page<K> {
    pub(super) metadata: ListMetadata,
    /// null for none
    #[serde(default = "none")]
    pub(super) items: Option<Vec<K>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMetadata {
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) continue_token: String,
}

fn none<K>() -> Option<Vec<K>> {
    None
}
