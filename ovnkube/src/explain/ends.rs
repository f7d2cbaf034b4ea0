//! The ends of a connection: which pod, node or other machine a question means, and the addresses
//! that the other end sees. Reads only; knows nothing of policies.

use std::{collections::BTreeMap, net::IpAddr};

use contract::{names::PodKey, node_annotation::NodeAnnotations, ovn};
use controller::kinds::{
    node::{object::Node, wire::NodeObject},
    pod::{
        object::{Annotated, Phase, Pod},
        wire::PodObject,
    },
};
use ipnet::IpNet;
use kube::api::ListParams;
use kubeapi::Connection;

use super::{
    api::{Unanswered, get, list, list_where},
    model::{pairs, protocol},
    question::Asked,
};

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Party {
    pub(super) who: Who,
    /// Those that the other end sees; at most one of each family counts.
    pub(super) addresses: Vec<IpAddr>,
}

#[derive(Debug)]
pub(super) enum Who {
    Pod(PodFacts),
    /// A node, or a pod in its network, which policies do not tell from it.
    Node {
        name: String,
        pod: Option<PodKey>,
    },
    /// Neither is known to have the address.
    Outside,
}

/// A pod, as far as policies can tell.
#[derive(Debug)]
pub(super) struct PodFacts {
    pub(super) key: PodKey,
    pub(super) node: Option<String>,
    labels: BTreeMap<String, String>,
    ports: Vec<(String, verdict::Protocol, u16)>,
}

/// What the model sees of an end: namespace, labels and named ports of a pod.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pod: Option<(&'a str, verdict::Labels<'a>, Vec<verdict::ContainerPort<'a>>)>,
}

/// The side of a connection that an end is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

/// Finds ends. Nodes are read once, and only if an end may be one.
#[derive(Debug)]
pub(super) struct Finder<'a> {
    api: &'a Connection,
    nodes: Option<Vec<Node>>,
    /// Pods that were looked for by their addresses, by their nodes.
    pods: BTreeMap<String, Vec<(PodKey, Pod)>>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(api: &'a Connection) -> Self {
        Self { api, nodes: None, pods: BTreeMap::new() }
    }

    /// The nodes; none if no end was a node or an address.
    pub(super) fn into_nodes(self) -> Vec<Node> {
        self.nodes.unwrap_or_default()
    }

    /// # Errors
    ///
    /// The API server does not answer, or there is no such end.
    pub(super) async fn find(&mut self, asked: &Asked, role: Role) -> Result<Party, Unanswered> {
        match asked {
            Asked::Pod(key) => self.pod(key, role).await,
            Asked::Node(name) => self.node(name, None, role).await,
            Asked::Address(address) => self.address(*address).await,
            Asked::Service(_) => Err(Unanswered::ServiceAsClient),
        }
    }

    async fn pod(&mut self, key: &PodKey, role: Role) -> Result<Party, Unanswered> {
        let collection = format!("/api/v1/namespaces/{}/pods", key.namespace());
        let object: PodObject = get(self.api, &collection, key.name()).await?;
        let (_, pod) = object.into_pod().map_err(|_| Unanswered::NoAddress(key.clone()))?;
        match (pod.phase, pod.host_network) {
            (Phase::Ended, _) => Err(Unanswered::Ended(key.clone())),
            (Phase::Active, true) => {
                let node =
                    pod.node.as_deref().ok_or_else(|| Unanswered::Unscheduled(key.clone()))?;
                self.node(node, Some(key), role).await
            }
            (Phase::Active, false) => {
                let addresses =
                    addresses_of(&pod).ok_or_else(|| Unanswered::NoAddress(key.clone()))?;
                Ok(Party { who: Who::Pod(PodFacts::new(key.clone(), &pod)), addresses })
            }
        }
    }

    async fn node(
        &mut self,
        name: &str,
        pod: Option<&PodKey>,
        role: Role,
    ) -> Result<Party, Unanswered> {
        let mut nodes = self.nodes().await?.iter();
        let node = nodes
            .find(|node| *node.name == *name)
            .ok_or_else(|| Unanswered::NoNode(name.to_owned()))?;
        let management = ovn::managements(&node.subnets);
        let addresses = match role {
            // The route to pods is over the management port.
            Role::Client if !management.is_empty() => management.iter().map(IpNet::addr).collect(),
            Role::Client | Role::Server => host_addresses(node),
        };
        if addresses.is_empty() {
            return Err(Unanswered::NodeWithoutAddress(name.to_owned()));
        }
        Ok(Party { who: Who::Node { name: name.to_owned(), pod: pod.cloned() }, addresses })
    }

    async fn address(&mut self, address: IpAddr) -> Result<Party, Unanswered> {
        if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
            return Err(Unanswered::NoEnd(address));
        }
        let nodes = self.nodes().await?;
        let has = |node: &&Node| {
            let mut management = ovn::managements(&node.subnets).into_iter();
            node.host_addresses.contains(&address) || management.any(|net| net.addr() == address)
        };
        let who = if let Some(node) = nodes.iter().find(has) {
            Who::Node { name: node.name.to_string(), pod: None }
        } else if let Some(node) = node_of(nodes, address) {
            let node = node.name.to_string();
            let pod = pod_at(self.pods_of(&node).await?, address);
            Who::Pod(pod.ok_or(Unanswered::NobodyAt { address, node })?)
        } else {
            Who::Outside
        };
        Ok(Party { who, addresses: vec![address] })
    }

    async fn pods_of(&mut self, node: &str) -> Result<&[(PodKey, Pod)], Unanswered> {
        if !self.pods.contains_key(node) {
            let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
            let found: Vec<PodObject> = list_where(self.api, "/api/v1/pods", on_node).await?;
            let pods = found.into_iter().filter_map(|object| object.into_pod().ok()).collect();
            self.pods.insert(node.to_owned(), pods);
        }
        Ok(self.pods.get(node).map(Vec::as_slice).unwrap_or_default())
    }

    async fn nodes(&mut self) -> Result<&[Node], Unanswered> {
        if self.nodes.is_none() {
            let found: Vec<NodeObject> = list(self.api, "/api/v1/nodes").await?;
            self.nodes = Some(found.into_iter().map(NodeObject::into_node).collect());
        }
        Ok(self.nodes.as_deref().unwrap_or_default())
    }
}

/// The node whose pods may have the address.
pub(super) fn node_of(nodes: &[Node], address: IpAddr) -> Option<&Node> {
    nodes.iter().find(|node| node.subnets.iter().any(|subnet| subnet.contains(&address)))
}

/// The pod that has the address. Of its addresses the API server finds only the first one by
/// itself.
fn pod_at(pods: &[(PodKey, Pod)], address: IpAddr) -> Option<PodFacts> {
    let has = |pod: &Pod| {
        let is_it = addresses_of(pod).is_some_and(|addresses| addresses.contains(&address));
        is_it && !pod.host_network && pod.phase == Phase::Active
    };
    pods.iter().find(|(_, pod)| has(pod)).map(|(key, pod)| PodFacts::new(key.clone(), pod))
}

fn addresses_of(pod: &Pod) -> Option<Vec<IpAddr>> {
    match &pod.annotated {
        Annotated::Network { network, .. } => {
            Some(network.addresses.iter().map(IpNet::addr).collect())
        }
        Annotated::Nothing | Annotated::Unusable(_) => None,
    }
}

/// The addresses at which other machines know the node, before its other ones.
fn host_addresses(node: &Node) -> Vec<IpAddr> {
    let primary = NodeAnnotations(&node.annotations).primary_addresses().unwrap_or_default();
    primary.iter().map(IpNet::addr).chain(node.host_addresses.iter().copied()).collect()
}

impl Party {
    /// What the model sees of it, beside its address.
    pub(super) fn facts(&self) -> Facts<'_> {
        Facts { pod: self.pod().map(|pod| (pod.key.namespace(), pod.labels(), pod.ports())) }
    }

    /// The node that it is on.
    pub(super) fn node(&self) -> Option<&str> {
        match &self.who {
            Who::Pod(pod) => pod.node.as_deref(),
            Who::Node { name, .. } => Some(name),
            Who::Outside => None,
        }
    }

    pub(super) fn pod(&self) -> Option<&PodFacts> {
        match &self.who {
            Who::Pod(pod) => Some(pod),
            Who::Node { .. } | Who::Outside => None,
        }
    }

    /// Its address of the family.
    pub(super) fn address(&self, is_ipv6: bool) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv6() == is_ipv6)
    }

    /// Whether it is the pod's node, at the address by which a node reaches its pods.
    pub(super) fn is_own_node(&self, pod: &PodFacts, address: IpAddr, nodes: &[Node]) -> bool {
        let Who::Node { name, .. } = &self.who else { return false };
        let mut nodes = nodes.iter().filter(|node| *node.name == **name);
        let is_management =
            |node: &Node| ovn::managements(&node.subnets).iter().any(|net| net.addr() == address);
        pod.node.as_ref() == Some(name) && nodes.any(is_management)
    }
}

impl Facts<'_> {
    /// The end, by one of its addresses.
    pub(super) fn end(&self, address: IpAddr) -> verdict::End<'_> {
        let pod = self.pod.as_ref();
        let pod = pod.map(|(namespace, labels, ports)| verdict::Pod { namespace, labels, ports });
        verdict::End { pod, address }
    }
}

impl std::fmt::Display for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.who {
            Who::Pod(pod) => pod.key.fmt(f),
            Who::Node { name, pod: None } => write!(f, "node {name}"),
            Who::Node { name, pod: Some(pod) } => write!(f, "{pod} in the network of node {name}"),
            Who::Outside => f.write_str("a machine outside of the cluster"),
        }
    }
}

impl PodFacts {
    fn new(key: PodKey, pod: &Pod) -> Self {
        let labels = pod.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let ports = pod.ports.iter();
        Self {
            key,
            node: pod.node.as_deref().map(str::to_owned),
            labels: labels.collect(),
            ports: ports
                .map(|port| (port.name.to_string(), protocol(port.protocol), port.number))
                .collect(),
        }
    }

    fn labels(&self) -> verdict::Labels<'_> {
        pairs(&self.labels)
    }

    fn ports(&self) -> Vec<verdict::ContainerPort<'_>> {
        self.ports
            .iter()
            .map(|(name, protocol, number)| verdict::ContainerPort {
                name,
                protocol: *protocol,
                number: *number,
            })
            .collect()
    }
}
