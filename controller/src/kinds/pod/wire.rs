//! A Pod of the API, reduced to the fields in use while it is parsed: a whole pod of 10 kB never
//! exists in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contract::{
    annotation::{self, PodNetwork},
    applied_annotation,
    names::{BadName, Network, PodKey},
};
use kube::api::ObjectMeta;
use kubeapi::{services::Protocol, watched};
use serde::Deserialize;

use crate::kinds::pod::object::{Annotated, NamedPort, Phase, Pod, Reported, Spelled, Texts};

/// A Pod of the API. Its metadata are name, namespace, UID, resource version, timestamps, labels
/// and the annotations that describe its network or mark the mirror of a static pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodObject {
    #[serde(deserialize_with = "crate::object::metadata::of_pod")]
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

impl PodObject {
    /// The pod that the object describes.
    ///
    /// # Errors
    /// The namespace or the name is one that no API server accepts.
    pub fn into_pod(self) -> Result<(PodKey, Pod), BadName> {
        let ObjectMeta { name, namespace, uid, creation_timestamp, annotations, labels, .. } =
            self.metadata;
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
                // Containers may run in every other phase, also in one that this program does not
                // know.
                _ => Phase::Active,
            },
            reported: Reported::new(self.status.addresses(), &annotated),
            annotated,
            other_networks: other_networks(&annotations),
            config_hash: config_hash(&annotations),
            ports,
            reports_applied: applied_annotation::is_asked(&annotations),
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
        let sidecars =
            sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
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
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let texts = self.pod_ips.iter().flatten().filter_map(|pod_ip| pod_ip.ip.as_deref());
        texts.filter_map(|text| text.parse().ok()).collect()
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
    // A mirror has the source of its static pod, `file` or `http`. The source `api` is an ordinary
    // pod's.
    let source = annotations.get(annotation::CONFIG_SOURCE).filter(|source| *source != "api");
    annotations
        .get(annotation::CONFIG_HASH)
        .filter(|_| source.is_some())
        .map(|hash| hash.as_str().into())
}

watched! {
    PodObject, "pods" at "/api/v1/pods", PodKey = pod, (PodKey, Pod) =
        |object: PodObject| object.into_pod().map_err(|error| error.to_string());
}

fn pod(metadata: &ObjectMeta) -> Result<PodKey, String> {
    let ObjectMeta { namespace, name, .. } = metadata;
    PodKey::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())
}
