//! Pods on a node: prepared, attached by the plugin, or held back before their flows are installed.

use anyhow::{Context as _, Result};
use integration::{Lab, Node, Pod, runtime::Running};
use serde_json::Value;

/// A pod that the plugin has attached.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) pod: Pod,
    /// The result of ADD.
    pub(crate) result: Value,
}

/// Attaches `N` new pods, runs `body`, and detaches them; the node must then be as before.
pub(crate) fn with_pods<const N: usize>(
    lab: &Lab,
    node: &Node,
    body: impl FnOnce(&[Attached; N]) -> Result<()>,
) -> Result<()> {
    let pods = lab.new_pods(node, N)?;
    let before = node.census()?;
    let attached = pods.into_iter().map(|pod| attach(node, pod)).collect::<Result<Vec<_>>>()?;
    let attached: Box<[Attached; N]> =
        attached.into_boxed_slice().try_into().ok().context("as many as were asked for")?;
    body(&attached)?;
    attached.iter().try_for_each(|Attached { pod, .. }| detach(node, pod))?;
    before.must_equal(&node.census()?)
}

/// Calls ADD, which must succeed.
pub(crate) fn attach(node: &Node, pod: Pod) -> Result<Attached> {
    let result = node.runtime().add(&pod)?.success()?;
    Ok(Attached { pod, result })
}

/// Calls DEL, which must succeed.
pub(crate) fn detach(node: &Node, pod: &Pod) -> Result<()> {
    node.runtime().del(pod)?.success().map(drop)
}

/// Creates a planned pod's logical port, namespace and manifest, with a manifest of the test's own.
pub(crate) fn place(lab: &Lab, node: &Node, pod: &Pod, manifest: &str) -> Result<()> {
    lab.add_ports(std::slice::from_ref(pod))?;
    node.add_namespaces(std::slice::from_ref(pod))?;
    node.write_manifest_text(pod, manifest)
}

/// The manifest of a pod with these annotations besides that of its network.
pub(crate) fn manifest_with(pod: &Pod, annotations: &[(&str, &str)]) -> String {
    let more: String =
        annotations.iter().map(|(key, value)| format!("\n    {key}: '{value}'")).collect();
    pod.manifest(Some(&pod.annotation())).replacen(
        "\n  annotations:",
        &format!("\n  annotations:{more}"),
        1,
    )
}

/// Keeps OVN from installing the flows of this pod's port: the port is requested on another
/// chassis.
pub(crate) fn hold_back(lab: &Lab, pod: &Pod) -> Result<()> {
    request_chassis(lab, pod, "elsewhere")
}

/// Lets OVN install the flows.
pub(crate) fn let_go(lab: &Lab, pod: &Pod) -> Result<()> {
    request_chassis(lab, pod, &pod.node)
}

fn request_chassis(lab: &Lab, pod: &Pod, chassis: &str) -> Result<()> {
    let option = format!("options:requested-chassis={chassis}");
    lab.central.nbctl(["--wait=hv", "set", "Logical_Switch_Port", &pod.port(), &option]).map(drop)
}

/// Starts an ADD for a pod that is held back. On return, only the wait for OVN is left of it.
pub(crate) fn start_waiting_add(node: &Node, pod: &Pod) -> Result<Running> {
    let add = node.runtime().call("ADD", Some(pod)).start()?;
    node.vsctl(["wait-until", "Interface", &pod.host_interface(), "ofport>0"])?;
    Ok(add)
}
