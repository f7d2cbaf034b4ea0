//! A Namespace of the API, reduced to the fields in use while it is parsed.

use std::sync::Arc;

use contract::namespace_annotation::{AclLogging, Multicast};
use kube::api::ObjectMeta;
use kubeapi::watched;
use serde::Deserialize;

use crate::{key::NodeName, kinds::namespace::object::Namespace};

/// A Namespace of the API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceObject {
    #[serde(deserialize_with = "crate::object::metadata::of_namespace")]
    pub metadata: ObjectMeta,
}

impl NamespaceObject {
    /// The namespace that the object describes.
    pub fn into_namespace(self) -> (Arc<str>, Namespace) {
        let ObjectMeta { name, uid, labels, annotations, .. } = self.metadata;
        let annotations = annotations.unwrap_or_default();
        let (logging, no_logging) = AclLogging::from_annotations(&annotations);
        let multicast = Multicast::from_annotations(&annotations);
        let unusable = no_logging.or(multicast.clone().err()).map(Box::new);
        let multicast = multicast.unwrap_or_default();
        let (uid, labels) = (uid.unwrap_or_default().into(), labels.unwrap_or_default());
        let namespace = Namespace { uid, labels, logging, multicast, unusable };
        (name.unwrap_or_default().into(), namespace)
    }
}

watched! {
    NamespaceObject, "namespaces" at "/api/v1/namespaces", Arc<str> = node, (Arc<str>, Namespace) =
        |object: NamespaceObject| Ok(object.into_namespace());
}

fn node(metadata: &ObjectMeta) -> Result<NodeName, String> {
    Ok(metadata.name.as_deref().filter(|name| !name.is_empty()).ok_or("it has no name")?.into())
}
