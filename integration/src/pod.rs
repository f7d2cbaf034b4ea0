//! A pod: identity, sandbox, addresses, annotation and manifest. Pure; [`crate::Lab`] and
//! [`crate::Node`] create it.

use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Families, subnet};

/// A pod of the lab. A test may change fields before use, for a pod that is not as it should be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pod {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Name, unique in the lab.
    pub name: String,
    /// UID, as the API server gives it.
    pub uid: String,
    /// Container id of its sandbox: 64 hexadecimal digits. The first 15 are unique in the lab.
    pub sandbox: String,
    /// MAC address of its interface.
    pub mac: String,
    /// One per family, with the prefix length of the node's subnet.
    pub addresses: Vec<IpNet>,
    /// One per family.
    pub gateways: Vec<IpAddr>,
    /// Destination and next hop, besides the default route.
    pub routes: Vec<(IpNet, IpAddr)>,
    /// What its manifest has beside `k8s.ovn.org/pod-networks`.
    pub annotations: Vec<(String, String)>,
    /// Name of its node.
    pub node: String,
    /// Path of its network namespace, as the node sees it.
    pub netns: PathBuf,
    /// How many sandboxes it had before this one.
    generation: u32,
    serial: u32,
}

/// `lab/node1-pod3`
impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Pod {
    /// The pod with host number `host` on node `index`, whose subnets are `subnets`.
    pub(crate) fn plan(index: u32, subnets: &[IpNet], families: Families, host: u32) -> Self {
        let node = format!("node{index}");
        let name = format!("{node}-pod{host}");
        let addresses: Vec<IpNet> = subnets.iter().map(|net| subnet::host(net, host)).collect();
        let gateways: Vec<IpAddr> = subnets.iter().map(|net| subnet::gateway(net).addr()).collect();
        let pod = Self {
            namespace: "lab".to_owned(),
            uid: format!("00000000-0000-4000-8000-{index:04x}{host:08x}"),
            sandbox: String::new(),
            mac: subnet::mac(addresses[0].addr()),
            routes: subnet::of_cluster(families)
                .into_iter()
                .zip(gateways.iter().copied())
                .collect(),
            addresses,
            gateways,
            annotations: Vec::new(),
            node,
            netns: PathBuf::new(),
            name,
            generation: 0,
            serial: index << 24 | host,
        };
        pod.with_generation(0)
    }

    /// The same pod after its sandbox was lost: the runtime makes another one, with its own id and
    /// namespace.
    #[must_use]
    pub fn next_sandbox(&self) -> Self {
        self.clone().with_generation(self.generation + 1)
    }

    /// A pod of the same name after this one was deleted: another UID and another sandbox.
    #[must_use]
    pub fn recreated(&self) -> Self {
        let mut pod = self.next_sandbox();
        pod.uid = format!("{:08x}{}", pod.generation, &self.uid[8..]);
        pod
    }

    fn with_generation(mut self, generation: u32) -> Self {
        let Self { serial, .. } = self;
        self.generation = generation;
        // 8 and 7 digits: the 15 that name the interface on the host (IFNAMSIZ is 16 with the final
        // zero).
        self.sandbox = format!("{serial:08x}{generation:07x}{:0<49}", "abcdef0123456789");
        self.netns = Path::new("/var/run/netns").join(format!("{}-{generation}", self.name));
        self
    }

    /// Its first address, without the prefix length.
    pub fn address(&self) -> IpAddr {
        self.addresses[0].addr()
    }

    /// Name of its logical switch port, and `iface-id` of its interface.
    pub fn port(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }

    /// Name of its interface on the node.
    pub fn host_interface(&self) -> String {
        self.sandbox.chars().take(15).collect()
    }

    /// Name of its network namespace for `ip netns`.
    pub fn netns_name(&self) -> String {
        self.netns.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Value of the annotation `k8s.ovn.org/pod-networks`.
    pub fn annotation(&self) -> Value {
        let routes: Vec<Value> = self
            .routes
            .iter()
            .map(|(dest, next_hop)| json!({"dest": dest.to_string(), "nextHop": next_hop}))
            .collect();
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        json!({"default": {
            "ip_addresses": addresses,
            "mac_address": self.mac,
            "gateway_ips": self.gateways,
            "routes": routes,
            "role": "primary",
        }})
    }

    /// The pod as a YAML manifest, with `annotation` as `k8s.ovn.org/pod-networks`, or without
    /// annotations.
    pub fn manifest(&self, annotation: Option<&Value>) -> String {
        let Self { namespace, name, uid, node, .. } = self;
        let annotations = annotation.map_or(String::new(), |value| {
            let quoted = value.to_string().replace('\'', "''");
            let others =
                self.annotations.iter().map(|(key, value)| format!("\n    {key}: {value}"));
            let others: String = others.collect();
            format!("\n  annotations:{others}\n    k8s.ovn.org/pod-networks: '{quoted}'")
        });
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: {namespace}\n  name: {name}\n  uid: {uid}{annotations}\n\
             spec:\n  nodeName: {node}\n  containers:\n  - name: main\n    image: none\n"
        )
    }

    /// File name of its manifest.
    pub fn manifest_name(&self) -> String {
        format!("{}_{}.yaml", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        Pod::plan(1, &subnet::of_node(1, Families::Dual, 24), Families::Dual, 3)
    }

    #[test]
    fn a_new_sandbox_has_its_own_id_interface_and_namespace() {
        let (first, second) = (pod(), pod().next_sandbox());
        assert_eq!(first.sandbox.len(), 64);
        assert_ne!(first.host_interface(), second.host_interface());
        assert_ne!(first.netns, second.netns);
        assert_eq!(first.uid, second.uid);
        assert_ne!(first.uid, first.recreated().uid);
        assert_eq!(first.recreated().uid.len(), 36);
    }

    #[test]
    fn the_manifest_carries_the_annotation() {
        let pod = pod();
        let text = pod.manifest(Some(&pod.annotation()));
        assert!(
            text.contains(r#""ip_addresses":["10.244.1.3/24","fd00:10:244:1::3/64"]"#),
            "{text}"
        );
        assert!(!pod.manifest(None).contains("annotations"));
        let limited = Pod { annotations: vec![("limit".to_owned(), "1M".to_owned())], ..pod };
        assert!(
            limited
                .manifest(Some(&limited.annotation()))
                .contains("annotations:\n    limit: 1M\n    k8s")
        );
    }
}
