//! A pod that a kubelet started, as a pod of the lab: packets can be sent from it.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use contract::{annotation::PodNetwork, names::Network};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod as KubernetesPod;
use kube::ResourceExt as _;

use super::{Cluster, worker::CONTAINERD};
use crate::{Node, Pod};

/// The filter of containerd for sandboxes.
const OF_PODS: &str = "labels.\"io.cri-containerd.kind\"==sandbox";

impl Cluster {
    /// Waits until the pod `namespace/name` is ready.
    ///
    /// # Errors
    /// If it is not within `patience`.
    pub fn wait_for_pod(&self, key: &str, patience: Duration) -> Result<()> {
        self.pods.wait("the pod is ready", patience, |known| {
            ensure!(known.get(key).is_some_and(is_ready), "{key} is not");
            Ok(())
        })
    }

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
        let node =
            self.lab.nodes.iter().find(|known| known.name == node).context("the pod's node")?;
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
        attached.routes = network
            .routes
            .iter()
            .filter_map(|route| Some((route.destination, route.next_hop?)))
            .collect();
        attached.namespace = pod.namespace().unwrap_or_default();
        attached.name = pod.name_any();
        attached.uid = pod.uid().unwrap_or_default();
        let condition = format!("external_ids:iface-id={}", attached.port());
        let sandbox =
            node.vsctl(["--bare", "--columns=external_ids", "find", "Interface", &condition])?;
        let sandbox = sandbox.split_whitespace().find_map(|pair| pair.strip_prefix("sandbox="));
        attached.sandbox = sandbox
            .with_context(|| format!("no interface with {condition} on {}", node.name))?
            .to_owned();
        attached.netns = namespace_of(node, &attached.sandbox)?;
        Ok(attached)
    }

    /// The running pod `namespace/name` of any network, as a pod of the lab that knows no more than
    /// what sending packets needs: its node, its network namespace and its address.
    ///
    /// # Errors
    /// If the pod is unknown, has no address, or not one sandbox.
    pub fn in_its_namespace(&self, key: &str) -> Result<Pod> {
        let known = self.pods.now();
        let pod = known.get(key).with_context(|| format!("there is no pod {key}"))?;
        let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let node = self.lab.nodes.iter().find(|node| name == Some(node.name.as_str()));
        let node = node.context("the pod's node")?;
        let address: IpAddr =
            address_of(pod).with_context(|| format!("{key} has no address"))?.parse()?;
        let uid = pod.uid().unwrap_or_default();
        let of_pod = format!("{OF_PODS},labels.\"io.kubernetes.pod.uid\"=={uid}");
        let sandboxes = containers(node, &["list", "--quiet", &of_pod])?;
        let sandbox = sandboxes.trim();
        ensure!(!sandbox.contains(char::is_whitespace), "sandboxes of {key}: {sandboxes:?}");
        let mut attached = self.lab.pod_at(node, 0);
        attached.addresses = vec![address.into()];
        attached.namespace = pod.namespace().unwrap_or_default();
        attached.name = pod.name_any();
        attached.netns = namespace_of(node, sandbox)?;
        sandbox.clone_into(&mut attached.sandbox);
        attached.uid = uid;
        Ok(attached)
    }
}

/// The network namespace of a sandbox: the runtime chose its path, which is in the OCI
/// configuration.
fn namespace_of(node: &Node, sandbox: &str) -> Result<PathBuf> {
    let info = containers(node, &["info", sandbox])?;
    let info: serde_json::Value =
        serde_json::from_str(&info).context("what ctr says of the sandbox")?;
    let namespaces =
        info["Spec"]["linux"]["namespaces"].as_array().context("namespaces of the sandbox")?;
    let network = namespaces
        .iter()
        .find(|namespace| namespace["type"] == "network")
        .context("its network namespace")?;
    Ok(PathBuf::from(network["path"].as_str().context("the path of its network namespace")?))
}

/// The sandboxes of pods that a node's containerd has, whether it attached them or not.
///
/// # Errors
/// If containerd does not answer.
pub fn sandboxes(node: &Node) -> Result<Vec<String>> {
    let list = containers(node, &["list", "--quiet", OF_PODS])?;
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
    let conditions =
        pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
