//! API objects, reduced to the fields in use while they are parsed: a whole pod of 10 kB never exists in
//! memory.
//!
//! Knows the API's spelling, and produces [`Node`]s, [`Pod`]s, [`Namespace`]s and [`Policy`]s. Unknown and unused fields are skipped.
//! Services and what belongs to them are read by [`kubeapi::services`], because nodes read them, too.

mod metadata;
mod watched;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contract::{
    annotation::{self, PodNetwork},
    names::{BadName, ClusterPolicyKey, ClusterPolicyKind, Network, PodKey, PolicyKey, of_egress_firewall},
    namespace_annotation::{AclLogging, Multicast},
    node_annotation::{NodeAnnotationError, NodeAnnotations},
};
use ipnet::IpNet;
use kube::api::ObjectMeta;
use kubeapi::services::Protocol;
pub use kubeapi::services::{RangeObject, ServiceObject, SliceObject};
use serde::Deserialize;

use super::{
    Annotated, ClusterPolicy, EgressFirewall, NamedPort, Namespace, Node, Phase, Pod, Policy, Reported,
    Spelled, Texts, Unreadable, ZoneCondition, specification::Specification,
};
use crate::config::Zone;

/// The label with the zone of the data centre that a node is in.
const TOPOLOGY_ZONE: &str = "topology.kubernetes.io/zone";

/// The taint of a node of which Kubernetes hears nothing any more. The node lifecycle controller sets it; the
/// admission plugin NodeRestriction keeps kubelets from it.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A Node of the API. Its metadata are name, UID, resource version, timestamps, labels and this project's
/// annotations.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    #[serde(deserialize_with = "metadata::of_node")]
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

/// A Namespace of the API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceObject {
    #[serde(deserialize_with = "metadata::of_namespace")]
    pub metadata: ObjectMeta,
}

/// A NetworkPolicy of the API. Its specification is read later, so that one that cannot be read is a policy,
/// too: it must not open the pods that it closes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PolicyObject {
    #[serde(deserialize_with = "metadata::of_policy")]
    pub metadata: ObjectMeta,
    pub spec: Specification,
}

/// A policy of the whole cluster, of the kind that `K` names. Its specification is read later, as that of a
/// [`PolicyObject`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, bound = "K: Default")]
pub struct ClusterPolicyObject<K> {
    #[serde(deserialize_with = "metadata::of_namespace")]
    pub metadata: ObjectMeta,
    pub spec: Specification,
    pub status: Specification,
    #[serde(skip)]
    kind: std::marker::PhantomData<K>,
}

/// An EgressFirewall of the API. What it specifies is read later, so that one that cannot be read is an
/// EgressFirewall, too: it must not open what it closes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct EgressFirewallObject {
    #[serde(deserialize_with = "metadata::of_namespace")]
    pub metadata: ObjectMeta,
    pub spec: Specification,
    pub status: Specification,
}

/// A [`ClusterPolicyKind`] as a type.
pub trait OfKind {
    const KIND: ClusterPolicyKind;
}

/// [`ClusterPolicyKind::ClusterNetworkPolicy`]
#[derive(Debug, Clone, Copy, Default)]
pub struct OfCluster;
/// [`ClusterPolicyKind::AdminNetworkPolicy`]
#[derive(Debug, Clone, Copy, Default)]
pub struct OfAdmin;
/// [`ClusterPolicyKind::BaselineAdminNetworkPolicy`]
#[derive(Debug, Clone, Copy, Default)]
pub struct OfBaseline;

impl OfKind for OfCluster {
    const KIND: ClusterPolicyKind = ClusterPolicyKind::ClusterNetworkPolicy;
}

impl OfKind for OfAdmin {
    const KIND: ClusterPolicyKind = ClusterPolicyKind::AdminNetworkPolicy;
}

impl OfKind for OfBaseline {
    const KIND: ClusterPolicyKind = ClusterPolicyKind::BaselineAdminNetworkPolicy;
}

/// A Pod of the API. Its metadata are name, namespace, UID, resource version, timestamps, labels and the
/// annotations that describe its network or mark the mirror of a static pod.
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
    pub containers: Option<Vec<ContainerSpec>>,
    pub init_containers: Option<Vec<ContainerSpec>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerSpec {
    pub ports: Option<Vec<PortSpec>>,
    /// Of an init container: `Always` if it runs as long as the pod.
    pub restart_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PortSpec {
    pub name: Option<String>,
    pub container_port: Option<i64>,
    pub protocol: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    pub phase: Option<String>,
    #[serde(rename = "podIPs")]
    pub pod_ips: Option<Vec<PodIp>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodIp {
    pub ip: Option<String>,
}

impl NodeObject {
    /// The node that the object describes, with all annotations parsed.
    pub fn into_node(self) -> Node {
        let ObjectMeta { name, uid, resource_version, creation_timestamp, labels, annotations, .. } =
            self.metadata;
        let annotations = annotations.unwrap_or_default();
        let read = NodeAnnotations(&annotations);
        let mut unreadable = Vec::new();
        let mut node = Node::named(&name.unwrap_or_default());
        node.subnets = readable(read.subnets(), &mut unreadable);
        node.chassis = readable(read.chassis_id(), &mut unreadable);
        node.zone = readable(read.zone(), &mut unreadable).map(Zone);
        node.id = readable(read.id(), &mut unreadable);
        node.own_addresses = read.own_addresses();
        node.join = readable(read.join_addresses(), &mut unreadable);
        node.transit = readable(read.transit_addresses(), &mut unreadable);
        node.management_mac = readable(read.management_mac(), &mut unreadable);
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
fn readable<T: Default>(read: Result<T, NodeAnnotationError>, unreadable: &mut Vec<Unreadable>) -> T {
    read.unwrap_or_else(|error| {
        // Two values may come from one annotation.
        if !unreadable.iter().any(|other| other.annotation == error.annotation) {
            unreadable.push(Unreadable { annotation: error.annotation, why: error.source.to_string() });
        }
        T::default()
    })
}

impl PodObject {
    /// The pod that the object describes.
    ///
    /// # Errors
    /// The namespace or the name is one that no API server accepts.
    pub fn into_pod(self) -> Result<(PodKey, Pod), BadName> {
        let ObjectMeta { name, namespace, uid, creation_timestamp, annotations, labels, .. } = self.metadata;
        let has_annotations = annotations.is_some();
        let annotations = annotations.unwrap_or_default();
        let ports = self.spec.named_ports();
        let annotated = annotated(&annotations);
        let pod = Pod {
            uid: uid.unwrap_or_default().into(),
            created: creation_timestamp.map_or(0, |time| time.0.as_second()),
            // An empty `nodeName` means that the pod is not scheduled.
            node: self.spec.node_name.filter(|node| !node.is_empty()).map(Into::into),
            host_network: self.spec.host_network.unwrap_or_default(),
            phase: match self.status.phase.as_deref() {
                Some("Succeeded" | "Failed") => Phase::Ended,
                // Containers may run in every other phase, also in one that this program does not know.
                _ => Phase::Active,
            },
            reported: Reported::new(self.status.addresses(), &annotated),
            annotated,
            other_networks: other_networks(&annotations),
            config_hash: config_hash(&annotations),
            ports,
            labels: labels.unwrap_or_default().into_iter().collect(),
            // A JSON patch cannot add a key to a map that does not exist, so it has to know.
            texts: if has_annotations { texts(annotations) } else { Texts::NoneAtAll },
        };
        Ok((PodKey::new(&namespace.unwrap_or_default(), &name.unwrap_or_default())?, pod))
    }
}

impl PodSpec {
    /// The ports with names of all containers that run as long as the pod.
    fn named_ports(&self) -> Box<[NamedPort]> {
        let sidecars = self.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let containers = self.containers.iter().flatten().chain(sidecars);
        let ports = containers.filter_map(|container| container.ports.as_ref()).flatten();
        let read = |port: &PortSpec| {
            let protocol = port.protocol.as_deref().unwrap_or(Protocol::Tcp.as_str());
            Some(NamedPort {
                name: port.name.as_deref().filter(|name| !name.is_empty())?.into(),
                protocol: Protocol::ALL.into_iter().find(|known| known.as_str() == protocol)?,
                number: u16::try_from(port.container_port?).ok().filter(|number| *number > 0)?,
            })
        };
        ports.filter_map(read).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

impl PodStatus {
    fn addresses(&self) -> Vec<IpAddr> {
        let texts = self.pod_ips.iter().flatten().filter_map(|pod_ip| pod_ip.ip.as_deref());
        texts.filter_map(|text| text.parse().ok()).collect()
    }
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

impl PolicyObject {
    /// The policy that the object describes.
    ///
    /// # Errors
    /// The namespace or the name is one that no API server accepts.
    pub fn into_policy(self) -> Result<(PolicyKey, Policy), BadName> {
        let ObjectMeta { name, namespace, uid, annotations, creation_timestamp, resource_version, .. } =
            self.metadata;
        let key = PolicyKey::new(&namespace.unwrap_or_default(), &name.unwrap_or_default())?;
        let policy = Policy::new(&key, &uid.unwrap_or_default(), self.spec);
        let mut policy = policy.annotated(&annotations.unwrap_or_default());
        policy.created = creation_timestamp.map_or(0, |time| time.0.as_second());
        policy.version = resource_version.unwrap_or_default().into();
        Ok((key, policy))
    }
}

impl EgressFirewallObject {
    /// The namespace of the EgressFirewall, and what the object describes.
    ///
    /// # Errors
    /// The namespace is one that no API server accepts, or the name is not the one that counts.
    pub fn into_firewall(self) -> Result<(Arc<str>, EgressFirewall), BadName> {
        let ObjectMeta { name, namespace, uid, .. } = self.metadata;
        let namespace = of_egress_firewall(&namespace.unwrap_or_default(), &name.unwrap_or_default())?;
        Ok((namespace, EgressFirewall::new(&uid.unwrap_or_default(), self.spec, self.status)))
    }
}

impl<K: OfKind> ClusterPolicyObject<K> {
    /// The policy that the object describes.
    ///
    /// # Errors
    /// The name is one that no API server accepts.
    pub fn into_policy(self) -> Result<(ClusterPolicyKey, ClusterPolicy), BadName> {
        let ObjectMeta { name, uid, generation, .. } = self.metadata;
        let key = ClusterPolicyKey::new(K::KIND, &name.unwrap_or_default())?;
        let uid = uid.unwrap_or_default();
        let policy = ClusterPolicy::new(K::KIND, &uid, generation.unwrap_or_default(), self.spec);
        Ok((key, policy.with_conditions(ZoneCondition::of_zones(&self.status))))
    }
}

fn annotated(annotations: &BTreeMap<String, String>) -> Annotated {
    let spelled = match (
        annotations.contains_key(annotation::POD_NETWORKS),
        annotations.contains_key(annotation::LEGACY),
    ) {
        (true, true) => Spelled::Both,
        (true, false) => Spelled::Current,
        (false, _) => Spelled::Legacy,
    };
    match PodNetwork::from_annotations(annotations, &Network::Default) {
        Ok(None) => Annotated::Nothing,
        Ok(Some(network)) => Annotated::Network { network: Arc::new(network.into()), spelled },
        Err(error) => Annotated::Unusable(error.to_string()),
    }
}

/// The annotations that describe the pod's network.
fn texts(mut annotations: BTreeMap<String, String>) -> Texts {
    let texts = [annotation::POD_NETWORKS, annotation::LEGACY]
        .into_iter()
        .filter_map(|name| Some((name, annotations.remove(name)?)));
    Texts::These(Arc::new(texts.collect()))
}

/// The text of the current annotation, if it has entries of other networks than the cluster's own.
fn other_networks(annotations: &BTreeMap<String, String>) -> Option<Arc<str>> {
    let text = annotations.get(annotation::POD_NETWORKS)?;
    annotation::names_others(text, &Network::Default).then(|| text.as_str().into())
}

/// The hash of the static pod, if this is its mirror.
fn config_hash(annotations: &BTreeMap<String, String>) -> Option<Arc<str>> {
    // A mirror has the source of its static pod, `file` or `http`. The source `api` is an ordinary pod's.
    let source = annotations.get(annotation::CONFIG_SOURCE).filter(|source| *source != "api");
    annotations.get(annotation::CONFIG_HASH).filter(|_| source.is_some()).map(|hash| hash.as_str().into())
}
