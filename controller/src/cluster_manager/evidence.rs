//! What the pods of a node show about its subnets, for a node whose own record is lost.

use std::{collections::BTreeMap, time::Duration};

use contract::{annotation::PodNetwork, backoff::Backoff, names::Network};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use kubeapi::{Connection, Trouble};
use tokio::time::{Instant, sleep};

/// Deadline of one request: longer than a busy API server takes for the metadata of one node's pods. All
/// nodes wait for the answer, so ten times as much would keep new nodes waiting for a server that is dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests are repeated: three that time out. Without an answer the node gets other subnets, which
/// cuts its pods off; but all other nodes wait, too.
const ALL: Duration = Duration::from_secs(30);

/// The networks that the addresses of the node's pods are in, the most frequent one first. None if the API
/// server does not tell.
pub(super) async fn networks_of_pods(api: &Connection, node: &str) -> Vec<IpNet> {
    let (begun, mut backoff) = (Instant::now(), Backoff::default());
    loop {
        match ask(api, node).await {
            Ok(networks) => return networks,
            // No right to list pods: a retry gets the same answer.
            Err(trouble) if matches!(trouble.code, Some(403 | 404)) || begun.elapsed() > ALL => {
                tracing::warn!(node, problem = %trouble, "cannot look for pods of a node without a record");
                return Vec::new();
            }
            Err(_) => sleep(backoff.next(None)).await,
        }
    }
}

async fn ask(api: &Connection, node: &str) -> Result<Vec<IpNet>, Trouble> {
    // The annotations of a pod that has ended may be from an earlier subnet.
    let living = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
    let pods = Api::<Pod>::all(api.client().clone());
    let pods = api.ask(PATIENCE, pods.list_metadata(&ListParams::default().fields(&living))).await?;
    let mut counted = BTreeMap::<IpNet, usize>::new();
    for annotations in pods.items.into_iter().filter_map(|pod| pod.metadata.annotations) {
        // What cannot be read shows nothing.
        let network = PodNetwork::from_annotations(&annotations, &Network::Default).ok().flatten();
        for address in network.into_iter().flat_map(|network| network.addresses) {
            *counted.entry(address.trunc()).or_default() += 1;
        }
    }
    let mut networks: Vec<(IpNet, usize)> = counted.into_iter().collect();
    networks.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
    Ok(networks.into_iter().map(|(network, _)| network).collect())
}
