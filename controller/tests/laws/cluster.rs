//! Nodes and pods, as watches deliver them.

use std::{net::IpAddr, sync::Arc};

use contract::{
    annotation::{PodNetwork, Role},
    names::PodKey,
};
use controller::{
    config::{ClusterConfig, ClusterSubnet, Multicast},
    kinds::{
        node::object::Node,
        pod::object::{Annotated, NamedPort, Pod, Spelled},
    },
    watch_event::{Seen, WatchEvent},
};
use kubeapi::services::Protocol;

pub(crate) fn config() -> ClusterConfig {
    ClusterConfig {
        cluster_subnets: vec![ClusterSubnet {
            cidr: "10.0.0.0/8".parse().unwrap(),
            host_length: 24,
        }],
        service_cidrs: vec!["172.16.0.0/16".parse().unwrap()],
        multicast: Multicast::On,
        ..ClusterConfig::default()
    }
}

pub(crate) fn node_name(number: u32) -> Arc<str> {
    format!("n{number}").into()
}

pub(crate) fn node(number: u32) -> Node {
    Node {
        name: node_name(number),
        subnets: vec![format!("10.{}.{}.0/24", number / 256, number % 256).parse().unwrap()],
        host_addresses: vec![host(number)],
        chassis: Some(format!("chassis-{number}")),
        ..Node::named(&node_name(number))
    }
}

/// The address of a node's host.
pub(crate) fn host(node: u32) -> IpAddr {
    format!("192.168.{}.{}", node / 256, node % 256).parse().unwrap()
}

pub(crate) fn pod_key(number: u32) -> PodKey {
    PodKey::new(&format!("ns{}", number % 3), &format!("p{number}")).unwrap()
}

/// A pod with an annotation from before. Of a hundred consecutive numbers on one node, no two have
/// the same address.
///
/// The pod that has an address first keeps it, which the final state of a cluster does not show. So
/// annotations from before must have no address that the controller assigns meanwhile: it assigns
/// in order from the lowest one, and after a start from the highest that is in use.
pub(crate) fn pod(number: u32, node: u32, generation: u32) -> (PodKey, Pod) {
    // Forty free addresses before the first pod's, and after each of the first six: those are the
    // pods of histories. 251 is prime.
    let host = 3 + 41 * number % 251;
    let (high, low) = (node / 256, node % 256);
    let network = PodNetwork {
        mac: format!("0a:58:0a:{high:02x}:{low:02x}:{host:02x}").parse().unwrap(),
        addresses: vec![format!("10.{high}.{low}.{host}/24").parse().unwrap()],
        gateways: vec![format!("10.{high}.{low}.1").parse().unwrap()],
        routes: Vec::new(),
        role: Role::Primary,
        tunnel_id: 0,
        ipv6_link_local_gateway: None,
    };
    let port =
        |name: &str, number| NamedPort { name: name.into(), protocol: Protocol::Tcp, number };
    let pod = Pod {
        node: Some(node_name(node)),
        labels: [("app".to_owned(), format!("a{}", number % 2))].into_iter().collect(),
        // Of two pods of a namespace, one has another number.
        ports: [port("web", 8080 + u16::from(number > 3))].into(),
        annotated: Annotated::Network {
            network: Arc::new(network.into()),
            spelled: Spelled::Current,
        },
        ..Pod::with_uid(&format!("uid-{number}-{generation}"))
    };
    (pod_key(number), pod)
}

pub(crate) fn all_nodes(nodes: impl IntoIterator<Item = Node>) -> WatchEvent {
    WatchEvent::Nodes(Seen::All(nodes.into_iter().collect()))
}

pub(crate) fn all_pods(pods: impl IntoIterator<Item = (PodKey, Pod)>) -> WatchEvent {
    WatchEvent::Pods(Seen::All(pods.into_iter().collect()))
}
