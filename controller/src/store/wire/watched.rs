//! The kinds of objects that only the control plane watches.

use contract::names::PodKey;
use kube::api::ObjectMeta;
use kubeapi::watched;

use super::{NodeObject, PodObject};
use crate::{
    key::NodeName,
    store::{Node, Pod},
};

watched! {
    NodeObject, "nodes" at "/api/v1/nodes", NodeName = node, Node =
        |object: NodeObject| Ok(object.into_node());
    PodObject, "pods" at "/api/v1/pods", PodKey = pod, (PodKey, Pod) =
        |object: PodObject| object.into_pod().map_err(|error| error.to_string());
}

fn node(metadata: &ObjectMeta) -> Result<NodeName, String> {
    Ok(metadata.name.as_deref().filter(|name| !name.is_empty()).ok_or("it has no name")?.into())
}

fn pod(metadata: &ObjectMeta) -> Result<PodKey, String> {
    let ObjectMeta { namespace, name, .. } = metadata;
    PodKey::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())
}
