//! What the pods of nodes show about the nodes' subnets, where no annotation of a node does.
//!
//! A pod counts with the addresses of its annotation that its node reports, too (`status.podIPs`):
//! whoever may create a pod chooses its annotation and its node, but not its status.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contract::{annotation::PodNetwork, backoff::Backoff, names::Network};
use ipnet::IpNet;
use kube::api::ObjectMeta;
use kubeapi::{
    Connection, Trouble,
    watch::{Selection, list},
    watched,
};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::{key::NodeName, kinds::pod::wire::PodStatus};

/// Deadline of one request: longer than a busy API server takes for the pods of one node. All nodes
/// wait for the answer, so ten times as much would keep new nodes waiting for a server that is
/// dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests are repeated: three that time out. Without an answer the node gets other
/// subnets, which cuts its pods off; but all other nodes wait, too.
const ALL: Duration = Duration::from_secs(30);
/// The longest selector of nodes in bytes, about a thousand names: a client's URL holds 64 KiB, in
/// which each name is longer.
const LONGEST: usize = 40_000;

/// Networks by node, the most frequent one first.
pub(super) type Networks = BTreeMap<NodeName, Vec<IpNet>>;

/// The networks that the addresses of the node's pods are in, the most frequent one first. None if
/// the API server does not tell.
pub(super) async fn networks_of_pods(api: &Connection, node: &str) -> Vec<IpNet> {
    let networks = insist(api, &of(node)).await;
    networks.into_values().next().unwrap_or_default()
}

/// The same at once, for a node that is gone.
///
/// # Errors
/// The API server does not tell.
pub(super) async fn networks_left(api: &Connection, node: &str) -> Result<Vec<IpNet>, Trouble> {
    Ok(ask(api, &of(node)).await?.into_values().next().unwrap_or_default())
}

/// The networks of pods that are on none of these nodes; none if there are too many nodes for one
/// question, or if the API server does not tell.
pub(super) async fn networks_elsewhere<'a>(
    api: &Connection,
    nodes: impl Iterator<Item = &'a NodeName>,
) -> Option<Networks> {
    let selector =
        nodes.fold("spec.nodeName!=".to_owned(), |all, name| all + ",spec.nodeName!=" + name);
    if selector.len() > LONGEST {
        return None;
    }
    Some(insist(api, &selector).await)
}

fn of(node: &str) -> String {
    format!("spec.nodeName={node}")
}

async fn insist(api: &Connection, selector: &str) -> Networks {
    let (begun, mut backoff) = (Instant::now(), Backoff::default());
    loop {
        match ask(api, selector).await {
            Ok(networks) => return networks,
            // No right to list pods: a retry gets the same answer.
            Err(trouble) if matches!(trouble.code, Some(403 | 404)) || begun.elapsed() > ALL => {
                tracing::warn!(problem = %trouble, "cannot look for pods of nodes without a record");
                return Networks::new();
            }
            Err(_) => sleep(backoff.next(None)).await,
        }
    }
}

async fn ask(api: &Connection, selector: &str) -> Result<Networks, Trouble> {
    // The annotation of a pod that has ended may be from an earlier subnet.
    let living = format!("{selector},status.phase!=Succeeded,status.phase!=Failed");
    let selection = Selection { fields: Some(living), patience: PATIENCE, ..Selection::default() };
    let witnesses = list::<Witness>(api, &selection, |_| {}).await?;
    let mut counted = BTreeMap::<NodeName, BTreeMap<IpNet, usize>>::new();
    for (node, networks) in witnesses {
        for network in networks {
            *counted.entry(node.clone()).or_default().entry(network).or_default() += 1;
        }
    }
    let by_frequency = |networks: BTreeMap<IpNet, usize>| {
        let mut networks: Vec<(IpNet, usize)> = networks.into_iter().collect();
        networks.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
        networks.into_iter().map(|(network, _)| network).collect()
    };
    Ok(counted.into_iter().map(|(node, networks)| (node, by_frequency(networks))).collect())
}

/// A pod, of which only its node and its networks are kept.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Witness {
    #[serde(deserialize_with = "crate::object::metadata::of_pod")]
    metadata: ObjectMeta,
    spec: WitnessSpec,
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WitnessSpec {
    node_name: String,
}

watched! {
    Witness, "pods" at "/api/v1/pods", () = |_: &ObjectMeta| Ok(()), (NodeName, Vec<IpNet>) =
        |pod: Witness| pod.testimony().ok_or_else(|| "it is on no node".to_owned());
}

impl Witness {
    /// The node, and the networks of the pod. What cannot be read shows nothing.
    fn testimony(&self) -> Option<(NodeName, Vec<IpNet>)> {
        let node = Some(&*self.spec.node_name).filter(|name| !name.is_empty())?;
        let reported = self.status.addresses();
        let annotations = self.metadata.annotations.as_ref();
        let network = annotations.and_then(|annotations| {
            PodNetwork::from_annotations(annotations, &Network::Default).ok().flatten()
        });
        let addresses = network.into_iter().flat_map(|network| network.addresses);
        let networks = addresses.filter(|net| reported.contains(&net.addr()));
        Some((Arc::from(node), networks.map(|net| net.trunc()).collect()))
    }
}
