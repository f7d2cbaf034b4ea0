//! A secondary network: its logical switch, its part of the pods' annotations, and its CNI
//! configuration.

use std::{net::IpAddr, slice};

use anyhow::{Context as _, Result};
use integration::{Lab, Node, Pod, Runtime};
use serde_json::json;

/// A network attachment definition in the pods' own namespace.
#[derive(Debug)]
pub(crate) struct Second {
    /// Name of the network and of its definition.
    pub(crate) name: String,
}

impl Second {
    /// Creates the logical switch.
    pub(crate) fn create(lab: &Lab, name: &str) -> Result<Self> {
        lab.central.nbctl(["ls-add", name])?;
        Ok(Self { name: name.to_owned() })
    }

    /// Key in annotations, and `netAttachDefName` in configurations.
    pub(crate) fn nad(&self) -> String {
        format!("lab/{}", self.name)
    }

    /// Name of a pod's logical port, which is also the `iface-id` of its interface.
    pub(crate) fn port(&self, pod: &Pod) -> String {
        format!("{}_{}", self.nad().replace(['-', '/'], "."), pod.port())
    }

    /// A pod's address, with the same host number as on the cluster's network.
    pub(crate) fn address(&self, pod: &Pod) -> IpAddr {
        let IpAddr::V4(own) = pod.address() else { panic!("the pod has an IPv4 address") };
        let [.., host] = own.octets();
        [192, 168, 77, host].into()
    }

    /// A pod's MAC address.
    pub(crate) fn mac(&self, pod: &Pod) -> String {
        pod.mac.replacen("0a:58:0a:f4", "0a:58:c0:a8", 1)
    }

    /// Creates pods that have both networks in their annotation, and both logical ports.
    pub(crate) fn new_pods(&self, lab: &Lab, node: &Node, count: usize) -> Result<Vec<Pod>> {
        let mut pods = Vec::new();
        for _ in 0..count {
            let pod = lab.plan_pod(node);
            lab.add_ports(slice::from_ref(&pod))?;
            node.add_namespaces(slice::from_ref(&pod))?;
            self.join(lab, node, &pod)?;
            pods.push(pod);
        }
        Ok(pods)
    }

    /// Gives a pod without an annotation both networks, and creates its logical port on this one.
    pub(crate) fn join(&self, lab: &Lab, node: &Node, pod: &Pod) -> Result<()> {
        let (port, address, mac) = (self.port(pod), self.address(pod), self.mac(pod));
        let mut annotation = pod.annotation();
        annotation[self.nad()] = json!({"ip_addresses": [format!("{address}/24")], "mac_address": mac, "role": "secondary"});
        lab.central.nbctl([
            "lsp-add",
            &self.name,
            &port,
            "--",
            "lsp-set-addresses",
            &port,
            &format!("{mac} {address}"),
        ])?;
        node.write_manifest_text(pod, &pod.manifest(Some(&annotation)))
    }

    /// A runtime that attaches `net1` to this network; in a cluster that is Multus.
    pub(crate) fn runtime<'node>(&self, node: &'node Node) -> Runtime<'node> {
        let mut runtime =
            node.runtime().with("name", json!(self.name)).with("topology", json!("layer2"));
        runtime = runtime.with("netAttachDefName", json!(self.nad()));
        runtime.ifname = "net1".to_owned();
        runtime
    }

    /// Name of the node's end of a pod's `net1`, which is also the name of its port.
    pub(crate) fn host_interface(&self, node: &Node, pod: &Pod) -> Result<String> {
        let nad = format!("external_ids:k8s.ovn.org/nad={}", self.nad());
        let sandbox = format!("external_ids:sandbox={}", pod.sandbox);
        let name = node.vsctl(["--bare", "--columns=name", "find", "Interface", &sandbox, &nad])?;
        let name = name.trim();
        (!name.is_empty())
            .then(|| name.to_owned())
            .with_context(|| format!("{} has no port of {}", pod.name, self.name))
    }
}
