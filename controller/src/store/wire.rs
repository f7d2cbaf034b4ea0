//! Objects of the API, reduced to the fields that are used, while they are read: a pod of 10 kB never exists in memory.
//!
//! Knows the API's spelling; gives [`Node`]s and [`Pod`]s. What is unknown or of no use is skipped unread.

mod metadata;
mod watched;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use contract::{
    annotation::{self, PodNetwork},
    names::{BadName, Network, PodKey},
    node_annotation::{NodeAnnotationError, NodeAnnotations},
};
use kube::{
    Resource,
    api::ObjectMeta,
    core::{ClusterResourceScope, NamespaceResourceScope},
};
use serde::Deserialize;

use super::{Annotated, Node, Phase, Pod, Spelled, Texts, Unreadable};
use crate::config::Zone;

/// A Node of the API. Of its metadata there are name, uid, resource version, times, labels and this project's annotations.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    #[serde(deserialize_with = "metadata::of_node")]
    pub metadata: ObjectMeta,
}

/// A Pod of the API. Of its metadata there are name, namespace, uid, resource version, times and the annotations that give its network
/// and say whether it is a static pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodObject {
    #[serde(deserialize_with = "metadata::of_pod")]
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: Option<String>,
    pub host_network: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    pub phase: Option<String>,
}

impl NodeObject {
    /// The node that the object describes.
    pub fn into_node(self) -> Node {
        let ObjectMeta { name, uid, resource_version, creation_timestamp, labels, annotations, .. } = self.metadata;
        let annotations = annotations.unwrap_or_default();
        let read = NodeAnnotations(&annotations);
        let mut unreadable = Vec::new();
        let mut node = Node::named(&name.unwrap_or_default());
        node.subnets = readable(read.subnets(), &mut unreadable);
        node.chassis = readable(read.chassis_id(), &mut unreadable);
        node.zone = readable(read.zone(), &mut unreadable).map(Zone);
        node.id = readable(read.id(), &mut unreadable);
        node.join = readable(read.join_addresses(), &mut unreadable);
        node.transit = readable(read.transit_addresses(), &mut unreadable);
        node.management_mac = readable(read.management_mac(), &mut unreadable);
        Node {
            uid: uid.unwrap_or_default().into(),
            version: resource_version.unwrap_or_default().into(),
            created: creation_timestamp.map_or(0, |time| time.0.as_second()),
            labels: Arc::new(labels.unwrap_or_default()),
            annotations: Arc::new(annotations),
            unreadable,
            ..node
        }
    }
}

/// What was read, or nothing and a note of why not.
fn readable<T: Default>(read: Result<T, NodeAnnotationError>, unreadable: &mut Vec<Unreadable>) -> T {
    read.unwrap_or_else(|error| {
        unreadable.push(Unreadable { annotation: error.annotation, why: error.source.to_string() });
        T::default()
    })
}

impl PodObject {
    /// The pod that the object describes. The error is of a name that no API server accepts.
    pub fn into_pod(self) -> Result<(PodKey, Pod), BadName> {
        let ObjectMeta { name, namespace, uid, creation_timestamp, annotations, .. } = self.metadata;
        let has_annotations = annotations.is_some();
        let annotations = annotations.unwrap_or_default();
        let pod = Pod {
            uid: uid.unwrap_or_default().into(),
            created: creation_timestamp.map_or(0, |time| time.0.as_second()),
            node: self.spec.node_name.filter(|node| !node.is_empty()).map(Into::into),
            host_network: self.spec.host_network.unwrap_or_default(),
            phase: match self.status.phase.as_deref() {
                Some("Succeeded" | "Failed") => Phase::Ended,
                _ => Phase::Active,
            },
            annotated: annotated(&annotations),
            other_networks: other_networks(&annotations),
            config_hash: config_hash(&annotations),
            texts: if has_annotations { texts(annotations) } else { Texts::NoneAtAll },
        };
        Ok((PodKey::new(&namespace.unwrap_or_default(), &name.unwrap_or_default())?, pod))
    }
}

fn annotated(annotations: &BTreeMap<String, String>) -> Annotated {
    let spelled = match (annotations.contains_key(annotation::POD_NETWORKS), annotations.contains_key(annotation::LEGACY)) {
        (true, true) => Spelled::Both,
        (true, false) => Spelled::Current,
        (false, _) => Spelled::Legacy,
    };
    match PodNetwork::from_annotations(annotations, &Network::Default) {
        Ok(None) => Annotated::Nothing,
        Ok(Some(network)) => Annotated::Network { network: Arc::new(network), spelled },
        Err(error) => Annotated::Unusable(error.to_string()),
    }
}

/// Those that say the pod's network.
fn texts(mut annotations: BTreeMap<String, String>) -> Texts {
    let texts = [annotation::POD_NETWORKS, annotation::LEGACY].into_iter().filter_map(|name| Some((name, annotations.remove(name)?)));
    Texts::These(Arc::new(texts.collect()))
}

/// The text of the current annotation, if more than the cluster's own network is in it.
fn other_networks(annotations: &BTreeMap<String, String>) -> Option<Arc<str>> {
    let text = annotations.get(annotation::POD_NETWORKS)?;
    annotation::names_others(text, &Network::Default).then(|| text.as_str().into())
}

/// Of a mirror, the hash of the static pod.
fn config_hash(annotations: &BTreeMap<String, String>) -> Option<Arc<str>> {
    let source = annotations.get(annotation::CONFIG_SOURCE).filter(|source| *source != "api");
    annotations.get(annotation::CONFIG_HASH).filter(|_| source.is_some()).map(|hash| hash.as_str().into())
}

impl Resource for NodeObject {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for PodObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
