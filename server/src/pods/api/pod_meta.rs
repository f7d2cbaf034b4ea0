//! The fields that are read of a pod: some of its metadata.

use std::collections::BTreeMap;

use contract::names::{BadName, PodKey};
use serde::{Deserialize, Deserializer};

use super::versioned_pods::Version;
use crate::pods::{KEPT_ANNOTATIONS, PodFacts};

/// One object of a list, a watch or a lookup (`PartialObjectMetadata`). Fields that are not listed
/// here are skipped while parsing.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PodMeta {
    metadata: Metadata,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: Version,
    #[serde(default, deserialize_with = "kept")]
    annotations: BTreeMap<String, String>,
}

/// A pod as of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VersionedPod {
    pub(super) pod: PodKey,
    pub(super) version: Version,
    pub(super) facts: PodFacts,
}

impl PodMeta {
    pub(super) fn pod(&self) -> Result<PodKey, BadName> {
        PodKey::new(&self.metadata.namespace, &self.metadata.name)
    }

    /// The version of the object.
    pub(super) fn as_of(&self) -> &Version {
        &self.metadata.resource_version
    }
}

impl TryFrom<PodMeta> for VersionedPod {
    type Error = BadName;

    fn try_from(PodMeta { metadata }: PodMeta) -> Result<Self, BadName> {
        let Metadata { namespace, name, uid, resource_version, annotations } = metadata;
        Ok(Self {
            pod: PodKey::new(&namespace, &name)?,
            version: resource_version,
            facts: PodFacts { uid, annotations },
        })
    }
}

/// Parses annotations, and keeps only [`KEPT_ANNOTATIONS`]. `null` counts as none.
fn kept<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut annotations =
        Option::<BTreeMap<String, String>>::deserialize(deserializer)?.unwrap_or_default();
    annotations.retain(|key, _| KEPT_ANNOTATIONS.contains(&key.as_str()));
    Ok(annotations)
}
