//! A pod that a kubelet started, as a pod of the lab: packets can be sent from it.

use std::{net::IpAddr, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use contract::{annotation::PodNetwork, names::Network};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod as KubernetesPod;
use kube::ResourceExt as _;

use super::{Cluster, worker::CONTAINERD};
use crate::{Node, Pod};

impl Cluster {
    /// The running pod `namespace/name`, with its current sandbox and network namespace.
    ///
    /// # Errors
    /// If the pod is unknown, has no network or no IPv4 address, or has no interface on its node.
    pub fn attached(&self, key: &str) -> Result<Pod> {
        let known = self.pods.now();
        let pod = known.get(key).with_context(|| format!("there is no pod {key}"))?;
        let node = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .with_context(|| format!("{key} has no node"))?;
        let node = self.lab.nodes.iter().find(|known| known.name == node).context("the pod's node")?;
        let network = PodNetwork::from_annotations(pod.annotations(), &Network::Default)?
            .with_context(|| format!("{key} has no network"))?;
        let host = match network.addresses.first().map(IpNet::addr) {
            Some(IpAddr::V4(address)) => u32::from(address.octets()[3]),
            other => bail!("{key} has no IPv4 address first: {other:?}"),
        };
        // A template: what the cluster decides replaces its fields below.
        let mut attached = self.lab.pod_at(node, host);
        attached.mac = network.mac.to_string();
        attached.addresses = network.addresses;
        attached.gateways = network.gateways;
        attached.routes =
            network.routes.iter().filter_map(|route| Some((route.destination, route.next_hop?))).collect();
        attached.namespace = pod.namespace().unwrap_or_default();
        attached.name = pod.name_any();
        attached.uid = pod.uid().unwrap_or_default();
        let condition = format!("external_ids:iface-id={}", attached.port());
        let sandbox = node.vsctl(["--bare", "--columns=external_ids", "find", "Interface", &condition])?;
        let sandbox = sandbox.split_whitespace().find_map(|pair| pair.strip_prefix("sandbox="));
        attached.sandbox =
            sandbox.with_context(|| format!("no interface with {condition} on {}", node.name))?.to_owned();
        // The runtime chose the path of the namespace; it is in the sandbox's OCI configuration.
        let info = containers(node, &["info", &attached.sandbox])?;
        let info: serde_json::Value = serde_json::from_str(&info).context("what ctr says of the sandbox")?;
        let namespaces =
            info["Spec"]["linux"]["namespaces"].as_array().context("namespaces of the sandbox")?;
        let network = namespaces
            .iter()
            .find(|namespace| namespace["type"] == "network")
            .context("its network namespace")?;
        attached.netns =
            PathBuf::from(network["path"].as_str().context("the path of its network namespace")?);
        Ok(attached)
    }
}

/// The sandboxes of pods that a node's containerd has, whether it attached them or not.
///
/// # Errors
/// If containerd does not answer.
pub fn sandboxes(node: &Node) -> Result<Vec<String>> {
    let of_pods = "labels.\"io.cri-containerd.kind\"==sandbox";
    let list = containers(node, &["list", "--quiet", of_pods])?;
    Ok(list.split_whitespace().map(str::to_owned).collect())
}

/// Asks a node's containerd about the kubelet's containers.
fn containers(node: &Node, question: &[&str]) -> Result<String> {
    let ask = ["ctr", "--address", CONTAINERD, "--namespace", "k8s.io", "containers"];
    node.run(ask.iter().chain(question))
}

/// The address in the status of the pod.
pub fn address_of(pod: &KubernetesPod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref()
}

/// Whether the pod is ready, and with it all its containers.
pub fn is_ready(pod: &KubernetesPod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
