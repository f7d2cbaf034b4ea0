//! Worlds of pods and policies in the namespace of the lab's pods.

use anyhow::{Result, ensure};
use integration::{Lab, Pod, by_hand};
use oracle::policies::{
    Direction, Labels, NetworkPolicy, Number, Peer, Pod as PodModel, Port, Rule, Selector, World,
    manifest::Manifests,
};

use crate::support::api::Api;

pub(crate) const NAMESPACE: &str = "lab";

/// The pod with this number on the node with that one, as the lab names it.
pub(crate) fn pod(node: u8, host: u8, labels: Labels) -> PodModel {
    let name = format!("node{node}-pod{host}");
    PodModel { namespace: NAMESPACE, name, node, host, labels, ports: Vec::new() }
}

/// The lab's pods, attached where the world has them.
pub(crate) fn attached(lab: &Lab, pods: &[PodModel]) -> Result<Vec<Pod>> {
    let attach = |of: &PodModel| {
        let node = &lab.nodes[usize::from(of.node) - 1];
        let pod = lab.plan_pod(node);
        node.add_namespaces(std::slice::from_ref(&pod))?;
        by_hand::attach(node, &pod)?;
        ensure!(pod.name == of.name, "{} is not {}", pod.name, of.name);
        Ok(pod)
    };
    pods.iter().map(attach).collect()
}

/// Makes these all nodes, namespaces, pods and policies of the API server.
pub(crate) fn tell(api: &Api, world: &World) {
    let nodes =
        oracle::World { nodes: world.nodes(), ..oracle::World::default() }.manifests().nodes;
    let Manifests { namespaces, pods, policies, cluster_policies } = world.manifests();
    let kinds = [
        ("Node", nodes),
        ("Namespace", namespaces),
        ("Pod", pods),
        ("NetworkPolicy", policies),
        ("ClusterNetworkPolicy", cluster_policies),
    ];
    kinds.into_iter().for_each(|(kind, objects)| api.replace(kind, objects));
}

/// The policy that lets clients reach port 8080 of servers, and nobody anything else of them.
pub(crate) fn clients_alone(name: &str) -> NetworkPolicy {
    let selector = |app: &'static str| Selector {
        match_labels: vec![("app", app)],
        match_expressions: Vec::new(),
    };
    let peer = Peer::Selectors { namespaces: None, pods: Some(selector("client")) };
    let port = Port { protocol: None, number: Some(Number::Of(8080)) };
    NetworkPolicy {
        namespace: NAMESPACE,
        name: name.to_owned(),
        pod_selector: selector("server"),
        policy_types: vec![Direction::Ingress],
        ingress: vec![Rule { peers: vec![peer], ports: vec![port] }],
        egress: Vec::new(),
    }
}
