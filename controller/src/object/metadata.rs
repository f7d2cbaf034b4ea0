//! The metadata fields in use, as an `ObjectMeta`.
//!
//! Knows which annotations and labels are kept. Managed fields, owner references and the rest are
//! skipped.

use std::{collections::BTreeMap, fmt};

use contract::{
    annotation, applied_annotation::REPORT_APPLIED, namespace_annotation, node_annotation,
    policy_annotation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "S: Select")]
struct Metadata<S> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    generation: Option<i64>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    #[serde(default = "Chosen::none")]
    annotations: Chosen<S, true>,
    #[serde(default = "Chosen::none")]
    labels: Chosen<S, false>,
}

pub(crate) fn of_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Metadata::<OfNode>::deserialize(deserializer).map(Into::into)
}

pub(crate) fn of_pod<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Metadata::<OfPod>::deserialize(deserializer).map(Into::into)
}

pub(crate) fn of_namespace<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    Metadata::<OfNamespace>::deserialize(deserializer).map(Into::into)
}

pub(crate) fn of_policy<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    Metadata::<OfPolicy>::deserialize(deserializer).map(Into::into)
}

pub(crate) fn of_cluster_policy<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    Metadata::<OfClusterPolicy>::deserialize(deserializer).map(Into::into)
}

impl<S> From<Metadata<S>> for ObjectMeta {
    fn from(metadata: Metadata<S>) -> Self {
        let Metadata {
            name,
            namespace,
            uid,
            generation,
            resource_version,
            creation_timestamp,
            deletion_timestamp,
            annotations,
            labels,
        } = metadata;
        Self {
            name,
            namespace,
            uid,
            generation,
            resource_version,
            creation_timestamp,
            deletion_timestamp,
            // No annotations and none that are kept differ: the patch of a pod without any tests
            // for null.
            annotations: annotations.present.then_some(annotations.pairs),
            labels: (!labels.pairs.is_empty()).then_some(labels.pairs),
            ..Self::default()
        }
    }
}

/// Which annotations and labels of a kind of object are kept.
trait Select {
    fn annotation(key: &str) -> bool;
    fn label(key: &str) -> bool;
}

struct OfNode;
struct OfPod;
struct OfNamespace;
struct OfPolicy;
struct OfClusterPolicy;

impl Select for OfNode {
    fn annotation(key: &str) -> bool {
        node_annotation::ALL.contains(&key)
    }

    fn label(_: &str) -> bool {
        true
    }
}

impl Select for OfPod {
    fn annotation(key: &str) -> bool {
        [
            annotation::POD_NETWORKS,
            annotation::LEGACY,
            annotation::CONFIG_SOURCE,
            annotation::CONFIG_HASH,
            REPORT_APPLIED,
        ]
        .contains(&key)
    }

    fn label(_: &str) -> bool {
        true
    }
}

impl Select for OfNamespace {
    fn annotation(key: &str) -> bool {
        namespace_annotation::ALL.contains(&key)
    }

    fn label(_: &str) -> bool {
        true
    }
}

impl Select for OfPolicy {
    fn annotation(key: &str) -> bool {
        key == REPORT_APPLIED || policy_annotation::ALL.contains(&key)
    }

    fn label(_: &str) -> bool {
        false
    }
}

impl Select for OfClusterPolicy {
    fn annotation(key: &str) -> bool {
        key == REPORT_APPLIED
    }

    fn label(_: &str) -> bool {
        false
    }
}

/// The selected pairs of a string map: annotations if `ANNOTATIONS` is true, otherwise labels.
struct Chosen<S, const ANNOTATIONS: bool> {
    pairs: BTreeMap<String, String>,
    /// Whether the object has the map, even if none of its pairs is kept.
    present: bool,
    select: std::marker::PhantomData<S>,
}

impl<S, const ANNOTATIONS: bool> Chosen<S, ANNOTATIONS> {
    fn none() -> Self {
        Self { pairs: BTreeMap::new(), present: false, select: std::marker::PhantomData }
    }
}

impl<'de, S: Select, const ANNOTATIONS: bool> Deserialize<'de> for Chosen<S, ANNOTATIONS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(Self::none())
    }
}

impl<'de, S: Select, const ANNOTATIONS: bool> Visitor<'de> for Chosen<S, ANNOTATIONS> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_none<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        self.present = true;
        while let Some(key) =
            map.next_key_seed(Wanted::<S, ANNOTATIONS>(std::marker::PhantomData))?
        {
            if let Some(key) = key {
                self.pairs.insert(key, map.next_value()?);
            } else {
                // The value has to be consumed, but is not stored.
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(self)
    }
}

/// A key, if it is wanted. Objects have dozens of keys that are not, in each event of a watch:
/// those are compared where they are, without a copy.
struct Wanted<S, const ANNOTATIONS: bool>(std::marker::PhantomData<S>);

impl<'de, S: Select, const ANNOTATIONS: bool> DeserializeSeed<'de> for Wanted<S, ANNOTATIONS> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<S: Select, const ANNOTATIONS: bool> Visitor<'_> for Wanted<S, ANNOTATIONS> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key of a label or annotation")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        let wanted = if ANNOTATIONS { S::annotation(key) } else { S::label(key) };
        Ok(wanted.then(|| key.to_owned()))
    }
}
