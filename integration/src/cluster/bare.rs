//! Nodes without kubelets: their objects and those of EndpointSlices are written by hand, and the
//! plugins are called as a container runtime calls them, with the configuration that is on the
//! node.
//!
//! Must not know: which network a node has.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    slice,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use contract::paths;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Cluster, worker};
use crate::{Lab, Node, Pod, eventually, mounts};

/// How long the nodes may take until they take pods: an idle machine needs some seconds, an
/// emulated processor minutes.
const PATIENCE: Duration = Duration::from_secs(600);

impl Cluster {
    /// Whether kubelets start the pods that the API server has.
    pub fn has_kubelets(&self) -> bool {
        self.kubelets
    }

    pub(super) fn write_node(&self, node: &Node) -> Result<()> {
        let nodes = "/api/v1/nodes";
        let name = &node.name;
        self.api.create(
            nodes,
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}),
        )?;
        let addresses: Vec<Value> = worker::addresses(node, self.families)
            .split(',')
            .map(|address| json!({"type": "InternalIP", "address": address}))
            .collect();
        let status = json!({"status": {"addresses": addresses}});
        self.api.patch(&format!("{nodes}/{name}/status"), &status).map(drop)
    }

    pub(super) fn wait_for_plugins(&self) -> Result<()> {
        eventually("every node has its configuration of plugins", PATIENCE, || {
            self.lab.nodes.iter().try_for_each(|node| configuration(node).map(drop))
        })
    }

    /// Starts a pod of the API server, as it was created, on its node: a network namespace in which
    /// nothing runs yet. Tells the API server that the pod is ready.
    ///
    /// # Errors
    /// If the object names no node of the lab, or a plugin fails.
    pub fn run(&self, object: &Value) -> Result<Pod> {
        let pod = attach(&self.lab, object)?;
        self.api.patch(
            &format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name),
            &running(&pod),
        )?;
        Ok(pod)
    }

    /// Writes what the controller of EndpointSlices would: the pod is all there is behind the
    /// Service, an object of the API server whose target ports are numbers.
    pub fn write_endpoint(&self, service: &Value, pod: &Pod) -> Result<()> {
        let name = &service["metadata"]["name"];
        let ports = service["spec"]["ports"].as_array().context("a Service has ports")?;
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({"name": port["name"], "port": port["targetPort"], "protocol": port["protocol"]}))
            .collect();
        let target =
            json!({"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid});
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "ports": ports,
            "endpoints": [{
                "addresses": [pod.address()], "nodeName": pod.node, "conditions": {"ready": true}, "targetRef": target,
            }],
        });
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", pod.namespace);
        self.api.create(&path, &slice).map(drop)
    }
}

/// Attaches a pod to the network, as it was created in an API server, on the node that the object
/// names: a network namespace in which nothing runs yet.
///
/// # Errors
/// If the object names no node of the lab, or a plugin fails.
pub fn attach(lab: &Lab, object: &Value) -> Result<Pod> {
    let text = |pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.map(str::to_owned).with_context(|| format!("the pod has no {pointer}"))
    };
    let name = text("/spec/nodeName")?;
    let node = lab.nodes.iter().find(|node| node.name == name);
    let node = node.with_context(|| format!("there is no node {name}"))?;
    let mut pod = lab.plan_pod(node);
    pod.namespace = text("/metadata/namespace")?;
    pod.name = text("/metadata/name")?;
    pod.uid = text("/metadata/uid")?;
    node.add_namespaces(slice::from_ref(&pod))?;
    let result = add(node, &pod).with_context(|| format!("attach {} on {name}", pod.name))?;
    let addresses =
        result["ips"].as_array().into_iter().flatten().filter_map(|ip| ip["address"].as_str());
    pod.addresses = addresses.map(str::parse).collect::<Result<Vec<IpNet>, _>>()?;
    let interfaces = result["interfaces"].as_array().into_iter().flatten();
    let own = interfaces
        .filter(|interface| interface["name"] == "eth0")
        .find_map(|eth0| eth0["mac"].as_str());
    own.unwrap_or_default().clone_into(&mut pod.mac);
    ensure!(!pod.addresses.is_empty(), "no address for {}: {result}", pod.name);
    Ok(pod)
}

/// The status that a kubelet writes of such a pod.
pub fn running(pod: &Pod) -> Value {
    let addresses: Vec<Value> = addresses_of(pod).map(|ip| json!({"ip": ip})).collect();
    json!({"status": {
        "phase": "Running", "podIP": pod.address(), "podIPs": addresses,
        "conditions": [{"type": "Ready", "status": "True"}],
    }})
}

fn addresses_of(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    pod.addresses.iter().map(IpNet::addr)
}

/// The first list of plugins in the node's directory, which is the one that runtimes use.
fn configuration(node: &Node) -> Result<Value> {
    let directory = node.path(paths::CNI_CONF_DIR);
    let mut files: Vec<PathBuf> =
        fs::read_dir(&directory)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "conflist"));
    files.sort();
    let file = files.first().with_context(|| format!("{} has no list of plugins", node.name))?;
    serde_json::from_slice(&fs::read(file)?).with_context(|| format!("read {}", file.display()))
}

/// ADD of each plugin of the list, with the result of the one before. Returns the last one's.
fn add(node: &Node, pod: &Pod) -> Result<Value> {
    let list = configuration(node)?;
    let mut result = Value::Null;
    for plugin in list["plugins"].as_array().context("a list of plugins")? {
        let name = plugin["type"].as_str().context("a plugin has a type")?;
        let mut runtime = node.runtime();
        runtime.program = Some(Path::new(mounts::PLUGINS).join(name));
        runtime.config = plugin.clone();
        for key in ["cniVersion", "name"] {
            runtime.config[key] = list[key].clone();
        }
        if !result.is_null() {
            runtime.config["prevResult"] = result;
        }
        result = node.inside(|| runtime.call("ADD", Some(pod)).run())?.success()?;
    }
    Ok(result)
}
