//! A Node of the API, reduced to the fields in use while it is parsed.

use std::sync::Arc;

use contract::node_annotation::{ENCAP_IPS, NodeAnnotationError, NodeAnnotations};
use ipnet::IpNet;
use kube::api::ObjectMeta;
use kubeapi::watched;
use serde::Deserialize;

use crate::{
    config::Zone,
    key::NodeName,
    kinds::node::object::{Node, Unreadable},
};

/// The label with the zone of the data centre that a node is in.
const TOPOLOGY_ZONE: &str = "topology.kubernetes.io/zone";

/// The taint of a node of which Kubernetes hears nothing any more. The node lifecycle controller
/// sets it; the admission plugin NodeRestriction keeps kubelets from it.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A Node of the API. Its metadata are name, UID, resource version, timestamps, labels and this
/// project's annotations.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    #[serde(deserialize_with = "crate::object::metadata::of_node")]
    pub metadata: ObjectMeta,
    pub spec: NodeSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    taints: Option<Vec<Taint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
}

impl NodeObject {
    /// The node that the object describes, with all annotations parsed.
    pub fn into_node(self) -> Node {
        let ObjectMeta {
            name, uid, resource_version, creation_timestamp, labels, annotations, ..
        } = self.metadata;
        let annotations = annotations.unwrap_or_default();
        let read = NodeAnnotations(&annotations);
        let mut unreadable = Vec::new();
        let mut node = Node::named(&name.unwrap_or_default());
        node.subnets = readable(read.subnets(), &mut unreadable);
        node.chassis = readable(read.chassis_id(), &mut unreadable);
        node.encap_ips = readable(read.encap_ips(), &mut unreadable);
        node.zone = readable(read.zone(), &mut unreadable).map(Zone);
        // What cannot be read is no wish: the node stays where it is.
        node.next_zone = read.next_zone().ok().flatten().map(Zone);
        node.id = readable(read.id(), &mut unreadable);
        node.own_addresses = read.own_addresses();
        node.join = readable(read.join_addresses(), &mut unreadable);
        node.transit = readable(read.transit_addresses(), &mut unreadable);
        node.management_mac = readable(read.management_mac(), &mut unreadable);
        node.router_mac = readable(read.router_mac(), &mut unreadable);
        // Before the annotation (2025), upstream's nodes had one tunnel address: this one.
        node.has_told_encap_ips = !node.encap_ips.is_empty();
        if !annotations.contains_key(ENCAP_IPS) {
            node.encap_ips = read.primary_tunnel_address().into_iter().collect();
        }
        let hosts = readable(read.host_cidrs(), &mut unreadable);
        node.host_addresses = hosts.iter().map(IpNet::addr).collect();
        let gateway = read.gateway();
        readable(gateway.unreadable.map_or(Ok(()), Err), &mut unreadable);
        node.node_ports = gateway.node_ports.unwrap_or(true);
        node.gateway = gateway.mode;
        node.external = gateway.place.map(Box::new);
        let zone = labels.as_ref().and_then(|labels| labels.get(TOPOLOGY_ZONE));
        node.topology_zone = zone.map(|zone| zone.as_str().into());
        node.forwarded_source = read.forwarded_source();
        node.answers_large_packets = read.gateway_mtu_support();
        let mut taints = self.spec.taints.iter().flatten();
        node.is_unreachable = taints.any(|taint| taint.key == UNREACHABLE);
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

/// The value, or the default and an entry in `unreadable`.
fn readable<T: Default>(
    read: Result<T, NodeAnnotationError>,
    unreadable: &mut Vec<Unreadable>,
) -> T {
    read.unwrap_or_else(|error| {
        // Two values may come from one annotation.
        if !unreadable.iter().any(|other| other.annotation == error.annotation) {
            unreadable
                .push(Unreadable { annotation: error.annotation, why: error.source.to_string() });
        }
        T::default()
    })
}

watched! {
    NodeObject, "nodes" at "/api/v1/nodes", NodeName = node, Node =
        |object: NodeObject| Ok(object.into_node());
}

fn node(metadata: &ObjectMeta) -> Result<NodeName, String> {
    Ok(metadata.name.as_deref().filter(|name| !name.is_empty()).ok_or("it has no name")?.into())
}
