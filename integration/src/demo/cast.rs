//! The pods of the demo, and their state before the runtime calls the plugin.

use std::path::Path;

use anyhow::Result;
use integration::{Lab, Node, Pod};

/// Kubernetes namespace of the pods.
const NAMESPACE: &str = "shop";
/// Each pod with the index of its node.
const PODS: &[(&str, usize)] = &[("front", 0), ("cart", 0), ("stock", 1)];
/// The annotation that limits the first pod's ingress rate, and its value.
pub(crate) const LIMIT_ANNOTATION: &str = "kubernetes.io/ingress-bandwidth";
pub(crate) const LIMIT_MEGABITS: u32 = 100;

/// Plans the pods; nothing is created yet.
pub(crate) fn plan(lab: &Lab) -> Vec<Pod> {
    let pod = |(name, node): &(&str, usize)| {
        let mut pod = lab.plan_pod(&lab.nodes[*node]);
        pod.namespace = NAMESPACE.to_owned();
        pod.name = (*name).to_owned();
        pod.netns = Path::new("/var/run/netns").join(name);
        pod
    };
    PODS.iter().map(pod).collect()
}

/// The control plane's part: creates logical ports, and manifests with the pods' annotations.
pub(crate) fn declare(lab: &Lab, pods: &[Pod]) -> Result<()> {
    lab.add_ports(pods)?;
    for (index, pod) in pods.iter().enumerate() {
        let manifest = pod.manifest(Some(&pod.annotation()));
        let limit = format!("  annotations:\n    {LIMIT_ANNOTATION}: {LIMIT_MEGABITS}M\n");
        let manifest = if index == 0 { manifest.replacen("  annotations:\n", &limit, 1) } else { manifest };
        lab.node_of(pod).write_manifest_text(pod, &manifest)?;
    }
    Ok(())
}

/// The container runtime's part: creates an empty network namespace for each pod.
pub(crate) fn make_sandboxes(lab: &Lab, pods: &[Pod]) -> Result<()> {
    lab.nodes.iter().try_for_each(|node| node.add_namespaces(&of_node(node, pods)))
}

/// Removes everything that `declare` and `make_sandboxes` have created.
pub(crate) fn withdraw(lab: &Lab, pods: &[Pod]) -> Result<()> {
    lab.nodes.iter().try_for_each(|node| node.remove_namespaces(&of_node(node, pods)))?;
    pods.iter().try_for_each(|pod| lab.node_of(pod).remove_manifest(pod))?;
    lab.remove_ports(pods)
}

fn of_node(node: &Node, pods: &[Pod]) -> Vec<Pod> {
    pods.iter().filter(|pod| pod.node == node.name).cloned().collect()
}

/// `shop/front`
pub(crate) fn title(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}
