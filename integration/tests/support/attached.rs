//! Pods on their way onto a node: prepared, attached by the plugin, held back before their flows are there.
#![allow(dead_code, reason = "every test program uses a part of it")]

use anyhow::{Context as _, Result};
use integration::{Lab, Node, Pod, runtime::Running};
use serde_json::Value;

/// A pod that the plugin has attached.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) pod: Pod,
    /// What the runtime was told.
    pub(crate) result: Value,
}

/// Attaches `N` new pods, runs `body`, detaches them; the node must be as before then.
pub(crate) fn with_pods<const N: usize>(lab: &Lab, node: &Node, body: impl FnOnce(&[Attached; N]) -> Result<()>) -> Result<()> {
    let pods = lab.new_pods(node, N)?;
    let before = node.census()?;
    let attached = pods.into_iter().map(|pod| attach(node, pod)).collect::<Result<Vec<_>>>()?;
    let attached: Box<[Attached; N]> = attached.into_boxed_slice().try_into().ok().context("as many as were asked for")?;
    body(&attached)?;
    attached.iter().try_for_each(|Attached { pod, .. }| detach(node, pod))?;
    before.must_equal(&node.census()?)
}

/// ADD, which must succeed.
pub(crate) fn attach(node: &Node, pod: Pod) -> Result<Attached> {
    let result = node.runtime().add(&pod)?.success()?;
    Ok(Attached { pod, result })
}

/// DEL, which must succeed.
pub(crate) fn detach(node: &Node, pod: &Pod) -> Result<()> {
    node.runtime().del(pod)?.success().map(drop)
}

/// Makes a planned pod real, with a manifest of the test's own: logical port, namespace, manifest.
pub(crate) fn place(lab: &Lab, node: &Node, pod: &Pod, manifest: &str) -> Result<()> {
    lab.add_ports(std::slice::from_ref(pod))?;
    node.add_namespaces(std::slice::from_ref(pod))?;
    node.write_manifest_text(pod, manifest)
}

/// The manifest of a pod that has these annotations besides that of its network.
pub(crate) fn manifest_with(pod: &Pod, annotations: &[(&str, &str)]) -> String {
    let more: String = annotations.iter().map(|(key, value)| format!("\n    {key}: '{value}'")).collect();
    pod.manifest(Some(&pod.annotation())).replacen("\n  annotations:", &format!("\n  annotations:{more}"), 1)
}

/// OVN shall not install the flows of this pod's port: it is said to be elsewhere.
pub(crate) fn hold_back(lab: &Lab, pod: &Pod) -> Result<()> {
    request_chassis(lab, pod, "elsewhere")
}

/// OVN may install them after all.
pub(crate) fn let_go(lab: &Lab, pod: &Pod) -> Result<()> {
    request_chassis(lab, pod, &pod.node)
}

fn request_chassis(lab: &Lab, pod: &Pod, chassis: &str) -> Result<()> {
    let option = format!("options:requested-chassis={chassis}");
    lab.central.nbctl(["--wait=hv", "set", "Logical_Switch_Port", &pod.port(), &option]).map(drop)
}

/// Starts an ADD for a pod that is held back; it has done everything but wait for OVN when this returns.
pub(crate) fn start_waiting_add(node: &Node, pod: &Pod) -> Result<Running> {
    let add = node.runtime().call("ADD", Some(pod)).start()?;
    node.vsctl(["wait-until", "Interface", &pod.host_interface(), "ofport>0"])?;
    Ok(add)
}
