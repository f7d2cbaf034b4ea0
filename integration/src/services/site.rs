//! The cluster of a run: two nodes with this network, two with the reference network, and on the
//! second node of each a client.

use std::{fmt, time::Duration};

use anyhow::Result;
use integration::{
    Cluster, Daemon, Node, Pod,
    cluster::{
        Blueprint, GatewayMode,
        manifest::{idle_pod, on_node},
    },
};
use serde::Serialize;

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
/// Far longer than any time that is worth measuring, and enough for pods to become ready on a busy
/// machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// What carries Services to their pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Network {
    Ours,
    Reference,
}

/// Two nodes with one network.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) network: Network,
    /// Index of the node with the servers; the client's is the next.
    server_node: usize,
    pub(super) client: Pod,
}

/// The running cluster.
pub(crate) struct Site {
    pub(super) cluster: Cluster,
    sides: [Side; 2],
}

impl Site {
    pub(crate) fn start(blueprint: Blueprint, say: &(dyn Fn(&str) + Sync)) -> Result<Self> {
        let cluster = blueprint.build(say)?;
        say("starting a client on each side");
        let side = |network: Network, server_node: usize| {
            let client =
                idle(&cluster, &format!("client-{network}"), &cluster.lab.nodes[server_node + 1])?;
            anyhow::Ok(Side { network, server_node, client })
        };
        let sides = [side(Network::Ours, 0)?, side(Network::Reference, 2)?];
        Ok(Self { cluster, sides })
    }

    pub(crate) fn sides(&self) -> &[Side; 2] {
        &self.sides
    }

    /// The nodes of a side: that of its servers, and that of its client.
    pub(super) fn nodes(&self, side: &Side) -> [&Node; 2] {
        [0, 1].map(|offset| &self.cluster.lab.nodes[side.server_node + offset])
    }

    /// Measures while what writes the other side's rules is paused: both sides see the same
    /// objects, and must not take processor time from each other.
    pub(crate) fn alone<T>(&self, side: &Side, measure: impl FnOnce() -> Result<T>) -> Result<T> {
        let others = self.writers(match side.network {
            Network::Ours => Network::Reference,
            Network::Reference => Network::Ours,
        });
        others.iter().try_for_each(|writer| writer.pause())?;
        let measured = measure();
        others.iter().try_for_each(|writer| writer.resume())?;
        measured
    }

    /// Pauses what no packet needs, for good: the API server with etcd, and what writes the rules
    /// of either side. Where processors are slow, its idle moments cost more than a measurement can
    /// bear.
    pub(super) fn pause_writers(&self) -> Result<()> {
        let kubernetes = [&self.cluster.control_plane.api_server, &self.cluster.control_plane.etcd];
        let writers =
            [Network::Ours, Network::Reference].map(|network| self.writers(network)).concat();
        writers.into_iter().chain(kubernetes).try_for_each(Daemon::pause)
    }

    /// The programs that follow Services of a network.
    fn writers(&self, network: Network) -> Vec<&Daemon> {
        let [ours, reference] = [0, 2].map(|first| first..first + 2);
        match network {
            Network::Ours => {
                let servers = self.cluster.lab.nodes[ours].iter().map(|node| &node.server);
                servers.chain([&self.cluster.master]).collect()
            }
            Network::Reference => {
                self.cluster.workers[reference].iter().map(|worker| &worker.kube_proxy).collect()
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ours => "this",
            Self::Reference => "kube-proxy",
        })
    }
}

/// The cluster with kubelets.
pub(super) fn blueprint() -> Blueprint {
    Cluster::of_nodes(4).reference_nodes(2).gateway(GatewayMode::Shared)
}

/// Starts a pod from which or to which packets go.
pub(super) fn idle(cluster: &Cluster, name: &str, node: &Node) -> Result<Pod> {
    let created = cluster.api.create(PODS, &on_node(idle_pod(name), &node.name))?;
    if !cluster.has_kubelets() {
        return cluster.run(&created);
    }
    let key = format!("default/{name}");
    cluster.wait_for_pod(&key, PATIENCE)?;
    cluster.in_its_namespace(&key)
}
